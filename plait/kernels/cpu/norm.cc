// rms_norm "t d, d -> t d" (x, gain; attribute eps), layer_norm "t d, d, d -> t d" (x, gain, bias; eps) and
// head_rms_norm "t n h, h -> t n h" (x, gain; eps), each head a row of its own.
// f32 inside; the result is f32, or bf16 rounded once. Order of the sums: norm_rows.h. Rows are split over the team.
#include "plait/kernels/cpu/functions.h"
#include "plait/kernels/cpu/fused.h"
#include "plait/kernels/cpu/ops.h"
#include "plait/kernels/cpu/rows.h"

namespace plait::kernels {

Result<Run> prepare_norm(const Args& a, Isa isa) {
  bool layer = a.op == "layer_norm";
  if (!layer && a.op != "rms_norm") return Result<Run>::no("not a norm");
  PLAIT_CHECK(a.in.size() == (layer ? 3u : 2u) && a.out.size() == 1, "{}: {} operands", a.op, a.in.size());
  const View& out = a.out[0];
  for (const View& v : a.in)
    if (v.dtype != DType::f32) return Result<Run>::no(fmt::format("an operand of {}", name_of(v.dtype)));
  if (!is_real(out.dtype)) return Result<Run>::no(fmt::format("a result of {}", name_of(out.dtype)));
  Range tokens = a.range(a.out_terms[0][0]), whole = a.range(a.out_terms[0][1]);
  for (const View* v : {&a.in[0], &out})
    PLAIT_CHECK(v->box[0].contains(tokens) && v->box[1] == whole, "{}: box {}, wanted {} and {}", a.op,
                to_string(v->box), to_string(tokens), to_string(whole));
  for (size_t i = 1; i < a.in.size(); i++)
    PLAIT_CHECK(a.in[i].box[0] == whole, "{}: operand {} holds {}, wanted {}", a.op, i, to_string(a.in[i].box),
                to_string(whole));

  const Functions& f = functions(isa);
  NormFn row = (layer ? f.layer_norm : f.rms_norm)[type_index(out.dtype)];
  auto* gain = a.in[1].as<const float>();
  auto* bias = layer ? a.in[2].as<const float>() : nullptr;
  auto eps = static_cast<float>(a.attr("eps"));
  return Run([=, x = RowsOf(a.in[0]), y = RowsOf(out), d = whole.size()](Context& c) {
    split_rows(c, tokens.size(), d, [&](Range r) {
      for (i64 t = tokens.begin + r.begin; t < tokens.begin + r.end; t++)
        row(x.at<const float>(t), gain, bias, y.at<void>(t), d, eps);
    });
  });
}

Result<RowWork> rows_of_head_norm(const Args& a, Isa isa) {
  PLAIT_CHECK(a.in.size() == 2 && a.out.size() == 1, "{}: {} operands", a.op, a.in.size());
  const View &x = a.in[0], &gain = a.in[1], &out = a.out[0];
  if (x.dtype != DType::f32 || gain.dtype != DType::f32 || !is_real(out.dtype))
    return Result<RowWork>::no(fmt::format("operands of {} and {}, a result of {}", name_of(x.dtype),
                                           name_of(gain.dtype), name_of(out.dtype)));
  const Range tokens = a.range(a.out_terms[0][0]), heads = a.range(a.out_terms[0][1]);
  PLAIT_CHECK(x.box[2] == out.box[2] && gain.box[0] == x.box[2] && x.box[0].contains(tokens) &&
                  out.box[0].contains(tokens) && x.box[1].contains(heads) && out.box[1].contains(heads),
              "{}: boxes {} and {}", a.op, to_string(x.box), to_string(out.box));
  const i64 h = x.size(2), from = (heads.begin - x.box[1].begin) * h,
            to = (heads.begin - out.box[1].begin) * h * size_of(out.dtype);
  const auto eps = static_cast<float>(a.attr("eps"));
  auto rows = [=, row = functions(isa).rms_norm[type_index(out.dtype)], xs = RowsOf(x), ys = RowsOf(out),
               g = gain.as<const float>(), n = heads.size(), step = h * size_of(out.dtype)](Range r) {
    for (i64 t = tokens.begin + r.begin; t < tokens.begin + r.end; t++)
      for (i64 k = 0; k < n; k++)
        row(xs.at<const float>(t) + from + k * h, g, nullptr, ys.at<std::byte>(t) + to + k * step, h, eps);
  };
  return RowWork{tokens.size(), heads.size() * h, std::move(rows)};
}

Result<Run> prepare_head_norm(const Args& a, Isa isa) {
  auto w = rows_of_head_norm(a, isa);
  return w ? Result<Run>(run_of(std::move(*w))) : Result<Run>::no(w.why());
}

}  // namespace plait::kernels
