// kv_write "c k h, t k h, t -> c k h": rows of new keys or values into their slots of a cache, in place (in[0] and
// out[0] are the same memory). x and the cache are f32 or bf16, the same; slot i32, a negative one skips its token.
// A cache of keys lies in pages, one of values in rows (pages.h).
#include "plait/kernels/cpu/fused.h"
#include "plait/kernels/cpu/ops.h"
#include "plait/kernels/cpu/pages.h"

namespace plait::kernels {

void read_cache_row(const View& cache, i64 slot, i64 head, float* out) {
  i64 s = slot - cache.box[0].begin, k = head - cache.box[1].begin, heads = cache.size(1), h = cache.size(2);
  PLAIT_CHECK(
      is_real(cache.dtype) && cache.box[0].contains({slot, slot + 1}) && cache.box[1].contains({head, head + 1}),
      "row ({}, {}) of a cache {}", slot, head, to_string(cache.box));
  for (i64 i = 0; i < h; i++) {
    i64 at = cache.layout == Layout::pages ? page_offset(cache.dtype, heads, h, s, k, i) : (s * heads + k) * h + i;
    out[i] = cache.dtype == DType::f32 ? cache.as<float>()[at] : static_cast<float>(cache.as<bf16>()[at]);
  }
}

namespace {

/// One row of keys into its place of a panel.
template <class T>
void spread(const T* x, T* panel, i64 place, i64 h) {
  if constexpr (std::is_same_v<T, bf16>) {
    T* y = panel + 2 * place;
    for (i64 i = 0; i + 2 <= h; i += 2) std::memcpy(y + kPageSlots * i, x + i, 4);
    if (h % 2 != 0) {
      y[kPageSlots * (h - 1)] = x[h - 1];
      y[kPageSlots * (h - 1) + 1] = T();
    }
  } else {
    for (i64 i = 0; i < h; i++) panel[kPageSlots * i + place] = x[i];
  }
}

template <class T>
RowWork writer(const Args& a) {
  const View &x = a.in[1], &slot = a.in[2], &cache = a.out[0];
  Range tokens = a.range(a.in_terms[1][0]), heads = a.range(a.out_terms[0][1]);
  i64 h = cache.size(2), held = cache.size(1), panel = page_panel_elements(cache.dtype, h);
  i64 skip = (heads.begin - x.box[1].begin) * h, first = heads.begin - cache.box[1].begin, n = heads.size();
  bool pages = cache.layout == Layout::pages;
  auto rows = [=, xs = RowsOf(x), ss = RowsOf(slot), data = cache.as<T>(), slots = cache.box[0]](Range r) {
    for (i64 t = tokens.begin + r.begin; t < tokens.begin + r.end; t++) {
      i64 s = *ss.template at<const std::int32_t>(t);
      if (s < 0) continue;
      PLAIT_CHECK(s >= slots.begin && s < slots.end, "kv_write: slot {} of a cache {}", s, to_string(slots));
      s -= slots.begin;
      const T* from = xs.template at<const T>(t) + skip;
      if (!pages) {
        std::memcpy(data + (s * held + first) * h, from, static_cast<size_t>(n * h) * sizeof(T));
        continue;
      }
      T* to = data + (s / kPageSlots * held + first) * panel;
      for (i64 k = 0; k < n; k++) spread(from + k * h, to + k * panel, s % kPageSlots, h);
    }
  };
  return RowWork{tokens.size(), n * h, std::move(rows)};
}

}  // namespace

Result<RowWork> rows_of_kv_write(const Args& a) {
  PLAIT_CHECK(a.in.size() == 3 && a.out.size() == 1, "kv_write: {} operands", a.in.size());
  const View &x = a.in[1], &slot = a.in[2], &cache = a.out[0];
  PLAIT_CHECK(a.in[0].data == cache.data, "kv_write: the cache is not written in place");
  if (slot.dtype != DType::i32 || !is_real(x.dtype) || x.dtype != cache.dtype || cache.layout == Layout::panels)
    return Result<RowWork>::no(fmt::format("rows of {} into a cache of {}, slots of {}", name_of(x.dtype),
                                           name_of(cache.dtype), name_of(slot.dtype)));
  Range tokens = a.range(a.in_terms[1][0]), heads = a.range(a.out_terms[0][1]);
  PLAIT_CHECK(x.box[0].contains(tokens) && slot.box[0].contains(tokens) && x.box[1].contains(heads) &&
                  cache.box[1].contains(heads) && x.box[2] == cache.box[2],
              "kv_write: rows {} of tokens {} and heads {} into {}", to_string(x.box), to_string(tokens),
              to_string(heads), to_string(cache.box));
  PLAIT_CHECK(cache.layout == Layout::rows || (cache.box[0].begin % kPageSlots == 0 && cache.size(0) % kPageSlots == 0),
              "kv_write: a cache {} in pages of {}", to_string(cache.box), kPageSlots);
  return cache.dtype == DType::bf16 ? writer<bf16>(a) : writer<float>(a);
}

Result<Run> prepare_kv_write(const Args& a, Isa) {
  auto w = rows_of_kv_write(a);
  return w ? Result<Run>(run_of(std::move(*w))) : Result<Run>::no(w.why());
}

}  // namespace plait::kernels
