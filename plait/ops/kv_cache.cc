// Keys and values in pages. Slot page * size + offset of a cache [C K H] holds one token; the table gives the pages of
// each sequence in order. Attributes page (tokens of a page), scale, and window (optional: only the last positions).
// A negative slot, position or sequence is padding: nothing is written, the row is zero.
#include "plait/graph/graph.h"

namespace plait {

namespace {

const Registry kKvWrite{Op{
    .name = "kv_write",
    .doc = "cache, rows, slots -> the cache with each row in its slot, in place",
    .rule = "c k h, t k h, t -> c k h",
    .whole = "h",
    .follows = {{'c', 't'}},
    .elem = {Elem::as_first},
    .flops_per_point = 0,
    .indexes = {{2, 'c'}},
}};

const Registry kAttentionPaged{Op{
    .name = "attention_paged",
    .doc = "q, keys, values, position, sequence, page table -> o: attention of each token to its sequence's cache",
    .rule = "t (k g) h, c k h, c k h, t, t, b p -> t (k g) h",
    .whole = "hbp",
    .follows = {{'c', 't'}},
    .elem = {Elem::compute},
    .flops_per_point = 4,
    .roles = {{3, Role::position}, {4, Role::sequence}, {5, Role::page_table}},
    .attributes = {{"page", 4}, {"scale", 0.6}},
}};

}  // namespace

}  // namespace plait
