// Joins the contributions of the ranks of a group, element by element and in rank order: what a collective computes.
//
//   sum  i32, i64, i128 wrap; f32, f64 in rank order; bf16 adds in f32 in rank order and rounds once
//   max  i32, i64, f32, f64, bf16: NaN if any contribution is NaN, +0 above -0, so no order matters
//   one  bitwise or of anything
// One source (join_loops.h) compiled for AVX-512, AVX2 and the base instruction set, chosen at run time; the bits do
// not depend on the choice.
#pragma once
#include "plait/comm/communicator.h"

namespace plait::comm {

/// True where `join` is defined for the type.
bool can_join(DType t, Join join);

/// out[i] = join over r of parts[r][i], i < count, 1 <= parts.size().
///   out    may equal any of the parts (not overlap one otherwise); any alignment
///   errors can_join(t, join) must hold
void join_parts(void* out, std::span<const std::byte* const> parts, i64 count, DType t, Join join);

/// The loops behind join_parts for this processor, for who calls often: two parts or more, the join defined.
using JoinFunction = void(std::byte* out, std::span<const std::byte* const> parts, i64 count, DType t, Join join);
JoinFunction* join_function();

/// The same of two parts, of which `theirs` is one that another core has written: its lines are fetched to be written,
/// and where `next` is not null its `count` elements take their place once they are read. In one pass, so that a line
/// crosses from core to core once.
using SwapFunction = void(std::byte* out, const std::byte* const* parts, std::byte* theirs, const std::byte* next,
                          i64 count, DType t, Join join);
SwapFunction* swap_function();

/// The same with a given instruction set, for tests: "avx512", "avx2", "base"; false when the processor lacks it.
bool join_parts_with(std::string_view isa, void* out, std::span<const std::byte* const> parts, i64 count, DType t,
                     Join join);

/// Copies with vector stores in several streams, fetching the lines to be written: for buffers another core has read.
void copy_streams(std::byte* to, const std::byte* from, i64 bytes);

inline const char* name_of(Join j) { return j == Join::sum ? "sum" : j == Join::max ? "max" : "one"; }

}  // namespace plait::comm
