// Rows by index: embedding, take_rows, kv_write and the gradients of the first two. Of a one-owner output a kernel
// gives the rows that its own range of the indexed factor holds, and zero elsewhere.
#include "plait/kernels/reference/rows.h"

#include "plait/kernels/reference/reference.h"

namespace plait::kernels::reference {

namespace {

/// out[i] = table[ids[i]] where the id is in `owned`.
template <class R>
Run gather(const Args& a, const View& ids, const View& table, const std::string& row, const std::string& indexed) {
  return fast([ids = Indices(ids), table = Rows<R>(table), out = Rows<R>(a.out[0]), rows = a.range(row),
               owned = a.range(indexed), columns = a.range(a.out_terms[0][1])](Context&) {
    for (i64 i = rows.begin; i < rows.end; i++) {
      i64 id = ids(i);
      bool mine = inside(id, owned);
      for (i64 d = columns.begin; d < columns.end; d++) out.set(i, d, mine ? table(id, d) : R(0));
    }
  });
}

template <class R>
Run embedding(const Args& a) {
  return gather<R>(a, a.in[0], a.in[1], "t", "v");
}

template <class R>
Run take_rows(const Args& a) {
  return gather<R>(a, a.in[1], a.in[0], "r", "t");
}

/// Chains over the tokens of a leaf that have one id.
template <class R>
Run embedding_dw(const Args& a) {
  return fast([ids = Indices(a.in[0]), dy = Rows<R>(a.in[1]), out = Rows<R>(a.out[0]),
               sums = Sums<R>(a.out[0], a.exponent, a.model_leaves), leaves = leaves_or_whole(a, 't', "t"),
               table = a.range("v"), columns = a.range("d")](Context& c) {
    sums.zero();
    for (Range leaf : leaves)
      for (i64 t = leaf.begin; t < leaf.end; t++) {
        i64 id = ids(t);
        if (!inside(id, table)) continue;
        bool seen = false;
        for (i64 s = leaf.begin; s < t && !seen; s++) seen = ids(s) == id;
        if (seen) continue;
        for (i64 d = columns.begin; d < columns.end; d++) {
          R chain = 0;
          for (i64 s = t; s < leaf.end; s++)
            if (ids(s) == id) chain += dy(s, d);
          sums.add(out.at(id, d), chain, c.overflow);
        }
      }
  });
}

template <class R>
Run take_rows_dx(const Args& a) {
  return fast([ids = Indices(a.in[0]), dy = Rows<R>(a.in[1]), out = Rows<R>(a.out[0]),
               sums = Sums<R>(a.out[0], a.exponent, a.model_leaves), rows = a.range("r"), tokens = a.range("t"),
               columns = a.range("d")](Context& c) {
    sums.zero();
    for (i64 r = rows.begin; r < rows.end; r++) {
      i64 t = ids(r);
      if (!inside(t, tokens)) continue;
      for (i64 d = columns.begin; d < columns.end; d++) sums.add(out.at(t, d), dy(r, d), c.overflow);
    }
  });
}

/// The cache may be written in place or copied first.
template <class R>
Run kv_write(const Args& a) {
  const View &from = a.in[0], &to = a.out[0];
  PLAIT_CHECK(from.dtype == to.dtype && from.elements() == to.elements(), "kv_write: the cache changes its shape");
  return fast([before = from.data, after = to.data, bytes = static_cast<size_t>(bytes_of(to.dtype, to.elements())),
               rows = Heads<R>(a.in[1]), slot = Indices(a.in[2]), out = Heads<R>(to), slots = to.box[0],
               tokens = a.range("t"), heads = a.range("k"), width = to.box[2]](Context&) {
    if (before != after && bytes > 0) std::memcpy(after, before, bytes);
    for (i64 t = tokens.begin; t < tokens.end; t++) {
      i64 c = slot(t);
      if (c < 0) continue;  // padding
      PLAIT_CHECK(inside(c, slots), "kv_write: token {} has slot {}, this rank has {}", t, c, to_string(slots));
      for (i64 k = heads.begin; k < heads.end; k++)
        for (i64 h = width.begin; h < width.end; h++) out.set(c, k, h, rows(t, k, h));
    }
  });
}

}  // namespace

template <class R>
std::vector<Kernel> row_kernels() {
  return {{"embedding", "reference", prepare<R, embedding<R>>},
          {"embedding_dw", "reference", prepare<R, embedding_dw<R>>},
          {"take_rows", "reference", prepare<R, take_rows<R>>},
          {"take_rows_dx", "reference", prepare<R, take_rows_dx<R>>},
          {"kv_write", "reference", prepare<R, kv_write<R>>}};
}
template std::vector<Kernel> row_kernels<float>();
template std::vector<Kernel> row_kernels<double>();

}  // namespace plait::kernels::reference
