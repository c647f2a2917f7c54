// embedding "t, v d -> t d" (ids i32; a table in rows or panels, f32, bf16 or blocks; result f32) and
// take_rows "t d, r -> r d" (x, row numbers i32; result of x's type). Both follow the rule *one*: an index outside this
// rank's range gives a row of zero bytes, and reads nothing.
#include "plait/kernels/cpu/ops.h"
#include "plait/kernels/cpu/rows.h"
#include "plait/kernels/panels.h"

namespace plait::kernels {

Result<Run> prepare_embedding(const Args& a, Isa) {
  PLAIT_CHECK(a.in.size() == 2 && a.out.size() == 1, "embedding: {} operands", a.in.size());
  const View &ids = a.in[0], &table = a.in[1], &out = a.out[0];
  if (ids.dtype != DType::i32 || out.dtype != DType::f32 || table.layout == Layout::pages)
    return Result<Run>::no(fmt::format("ids of {}, a result of {}", name_of(ids.dtype), name_of(out.dtype)));
  Range tokens = a.range(a.out_terms[0][0]), words = a.range(a.in_terms[1][0]), d = a.range(a.out_terms[0][1]);
  PLAIT_CHECK(ids.box[0].contains(tokens) && out.box[0].contains(tokens) && table.box[0].contains(words),
              "embedding: ids {}, table {}, result {}", to_string(ids.box), to_string(table.box), to_string(out.box));
  if (table.box[1] != d || out.box[1] != d) return Result<Run>::no("a part of a row");
  bool panels = table.layout == Layout::panels;
  if (panels && !has_panels(table.dtype)) return Result<Run>::no(fmt::format("panels of {}", name_of(table.dtype)));
  i64 n = d.size();
  return Run([=, ys = RowsOf(out), is = RowsOf(ids), type = table.dtype, data = table.as<const std::byte>(),
              held = table.box[0]](Context& c) {
    split_rows(c, tokens.size(), n, [&](Range r) {
      for (i64 t = tokens.begin + r.begin; t < tokens.begin + r.end; t++) {
        i64 id = *is.at<const std::int32_t>(t);
        auto* y = ys.at<float>(t);
        if (id < words.begin || id >= words.end)
          std::memset(y, 0, static_cast<size_t>(n) * 4);
        else if (panels)
          panel_row(type, data, held.size(), n, id - held.begin, y);
        else
          to_f32(type, data + (id - held.begin) * bytes_of(type, n), y, n);
      }
    });
  });
}

Result<Run> prepare_take_rows(const Args& a, Isa) {
  PLAIT_CHECK(a.in.size() == 2 && a.out.size() == 1, "take_rows: {} operands", a.in.size());
  const View &x = a.in[0], &which = a.in[1], &out = a.out[0];
  if (which.dtype != DType::i32 || x.dtype != out.dtype || x.layout != Layout::rows || is_quantized(x.dtype))
    return Result<Run>::no(fmt::format("rows of {} chosen by {}", name_of(x.dtype), name_of(which.dtype)));
  Range rows = a.range(a.out_terms[0][0]), tokens = a.range(a.in_terms[0][0]);
  PLAIT_CHECK(which.box[0].contains(rows) && out.box[0].contains(rows) && x.box[0].contains(tokens),
              "take_rows: x {}, rows {}, result {}", to_string(x.box), to_string(which.box), to_string(out.box));
  for (size_t d = 1; d < x.box.size(); d++)
    if (x.box[d] != out.box[d] || a.range(a.out_terms[0][d]) != x.box[d]) return Result<Run>::no("a part of a row");
  return Run([=, xs = RowsOf(x), ys = RowsOf(out), ws = RowsOf(which)](Context&) {
    for (i64 r = rows.begin; r < rows.end; r++) {
      i64 t = *ws.at<const std::int32_t>(r);
      auto bytes = static_cast<size_t>(ys.stride);
      if (t < tokens.begin || t >= tokens.end)
        std::memset(ys.at<void>(r), 0, bytes);
      else
        std::memcpy(ys.at<void>(r), xs.at<void>(t), bytes);
    }
  });
}

}  // namespace plait::kernels
