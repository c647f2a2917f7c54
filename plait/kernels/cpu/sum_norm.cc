// What stands between a row-split product and the next column-split ones: finish, bias or norm, residual, norm.
#include <bit>

#include "plait/kernels/cpu/functions.h"
#include "plait/kernels/cpu/fused.h"

namespace plait::kernels {

namespace {

/// Operands [T D] of one call: whole rows of the same tokens.
bool whole_rows(const Args& a, Range tokens, Range d) {
  if (!(a.range(a.out_terms[0][0]) == tokens) || !(a.range(a.out_terms[0][1]) == d)) return false;
  auto fits = [&](const View& v) {
    if (v.layout != Layout::rows) return false;
    return v.box.size() == 1 ? v.box[0] == d : v.box.size() == 2 && v.box[0].contains(tokens) && v.box[1] == d;
  };
  bool all = fits(a.out[0]);
  for (const View& v : a.in) all &= fits(v);
  return all;
}

}  // namespace

Result<Run> prepare_sum_norm(std::span<const Args> members, Isa isa) {
  using R = Result<Run>;
  const Args *finish = nullptr, *bias = nullptr, *inner = nullptr, *add = nullptr, *norm = nullptr;
  for (const Args& a : members) {
    if (a.out_terms[0].size() != 2) return R::no("not rows");
    (a.op == "finish" ? finish : a.op == "bias" ? bias : a.op == "add" ? add : add == nullptr ? inner : norm) = &a;
  }
  if (add == nullptr || (norm != nullptr && norm->op != "rms_norm" && norm->op != "layer_norm"))
    return R::no("not a residual with its norm");
  if (inner != nullptr &&
      (inner->op != "rms_norm" || finish == nullptr || bias != nullptr || (norm != nullptr && norm->op != "rms_norm")))
    return R::no("another norm of the sum");
  const Range tokens = add->range(add->out_terms[0][0]), d = add->range(add->out_terms[0][1]);
  const View& sum = finish != nullptr ? finish->in[0] : bias != nullptr ? bias->in[0] : add->in[1];
  for (const Args& a : members) {
    if (!whole_rows(a, tokens, d)) return R::no("rows that lie otherwise");
    for (const View& v : a.in)
      if (v.dtype != DType::f32 && &v != &sum) return R::no(fmt::format("an operand of {}", name_of(v.dtype)));
    if (&a != norm && a.out[0].dtype != DType::f32) return R::no("a sum of another type");
  }
  const bool exact = sum.dtype == DType::i64;
  if ((!exact && sum.dtype != DType::f32) || (exact && finish == nullptr)) return R::no("a sum of another type");
  if (norm != nullptr && !is_real(norm->out[0].dtype)) return R::no("a norm of another type");

  SumNorm s{};
  s.exact = exact;
  s.by = 1;
  if (exact) {
    PLAIT_CHECK(finish->exponent > -100 && finish->exponent < 120, "finish: exponent {}", finish->exponent);
    s.by = std::bit_cast<float>(static_cast<std::uint32_t>(127 - finish->exponent) << 23);
  }
  if (bias != nullptr) s.bias = bias->in[1].as<const float>();
  s.d = d.size();
  SumNormFn f = functions(isa).sum_rms_norm[0];
  if (norm != nullptr) {
    const Functions& all = functions(isa);
    const bool layer = norm->op == "layer_norm";
    f = (layer ? all.sum_layer_norm : all.sum_rms_norm)[type_index(norm->out[0].dtype)];
    s.gain = norm->in[1].as<const float>();
    if (layer) s.norm_bias = norm->in[2].as<const float>();
    s.eps = static_cast<float>(norm->attr("eps"));
  }
  if (inner != nullptr) {
    f = functions(isa).normed_sum_rms_norm[norm != nullptr ? type_index(norm->out[0].dtype) : 0];
    s.inner_gain = inner->in[1].as<const float>();
    s.inner_eps = static_cast<float>(inner->attr("eps"));
  }
  const RowsOf sums(sum), residual(add->in[0]), x(add->out[0]), out(norm != nullptr ? norm->out[0] : add->out[0]);
  return run_of({tokens.size(), d.size(), [=, normed = norm != nullptr](Range r) {
                   SumNorm row = s;
                   for (i64 t = tokens.begin + r.begin; t < tokens.begin + r.end; t++) {
                     row.sum = sums.at<const void>(t);
                     row.residual = residual.at<const float>(t);
                     row.x = x.at<float>(t);
                     row.out = normed ? out.at<void>(t) : nullptr;
                     f(row);
                   }
                 }});
}

}  // namespace plait::kernels
