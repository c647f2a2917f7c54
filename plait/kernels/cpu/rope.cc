// rope "t n h, t -> t n h": pairs (i, i + dims/2) of the first `dims` elements of each head turned by the angle
// position * frequency[i] (the half-split form of Hugging Face files).
//   x f32, position i32, result f32 or bf16
//   attributes  base; dims (default: the head); inverse 1 turns back (for gradients);
//               factor, low, high, original: Llama 3's scaling of the frequencies, as in Hugging Face's "llama3" rope;
//               factor alone divides them all ("linear")
// Frequencies and angles are f64, sine and cosine are made in f64 and rounded once; out = u c - v s, v c + u s with
// every operation rounded.
#include <numbers>

#include "plait/kernels/cpu/functions.h"
#include "plait/kernels/cpu/fused.h"
#include "plait/kernels/cpu/math.h"
#include "plait/kernels/cpu/ops.h"

namespace plait::kernels {

namespace {

/// Long waves turn `factor` times slower, short ones as before, with a linear passage between.
double scaled(const Args& a, double frequency) {
  double factor = a.attr("factor"), low = a.attr("low", 0), high = a.attr("high", 0);
  if (!(high > low)) return frequency / factor;
  double original = a.attr("original");
  double wave = 2 * std::numbers::pi / frequency;
  if (wave < original / high) return frequency;
  if (wave > original / low) return frequency / factor;
  double smooth = (original / wave - low) / (high - low);
  return (1 - smooth) * frequency / factor + smooth * frequency;
}

std::vector<double> frequencies(const Args& a, i64 dims) {
  std::vector<double> f;
  bool scale = a.attr("factor", 0) != 0;
  for (i64 i = 0; i < dims / 2; i++) {
    double x = power(a.attr("base"), -2.0 * static_cast<double>(i) / static_cast<double>(dims));
    f.push_back(scale ? scaled(a, x) : x);
  }
  return f;
}

}  // namespace

Result<RowWork> rows_of_rope(const Args& a, Isa isa) {
  PLAIT_CHECK(a.in.size() == 2 && a.out.size() == 1, "rope: {} operands", a.in.size());
  const View &x = a.in[0], &position = a.in[1], &out = a.out[0];
  if (x.dtype != DType::f32 || position.dtype != DType::i32 || !is_real(out.dtype))
    return Result<RowWork>::no(fmt::format("operands of {} and {}, a result of {}", name_of(x.dtype),
                                           name_of(position.dtype), name_of(out.dtype)));
  Range tokens = a.range(a.out_terms[0][0]), heads = a.range(a.out_terms[0][1]);
  i64 h = out.size(2), dims = static_cast<i64>(a.attr("dims", static_cast<double>(h)));
  PLAIT_CHECK(dims % 2 == 0 && dims <= h && dims >= 0, "rope: {} dims of a head of {}", dims, h);
  PLAIT_CHECK(x.box[2] == out.box[2] && x.box[0].contains(tokens) && out.box[0].contains(tokens) &&
                  position.box[0].contains(tokens) && x.box[1].contains(heads) && out.box[1].contains(heads),
              "rope: boxes {} and {}", to_string(x.box), to_string(out.box));
  RopeFn turn = functions(isa).rope[type_index(out.dtype)];
  double sign = a.attr("inverse", 0) != 0 ? -1 : 1;
  i64 from = (heads.begin - x.box[1].begin) * h, to = (heads.begin - out.box[1].begin) * h * size_of(out.dtype);
  auto rows = [=, xs = RowsOf(x), ys = RowsOf(out), ps = RowsOf(position), n = heads.size(),
               f = frequencies(a, dims)](Range r) {
    for (i64 t = tokens.begin + r.begin; t < tokens.begin + r.end; t++)
      turn(xs.at<const float>(t) + from, h, ys.at<std::byte>(t) + to, h, n, h, dims / 2, f.data(),
           sign * *ps.at<const std::int32_t>(t));
  };
  return RowWork{tokens.size(), heads.size() * h, std::move(rows)};
}

Result<Run> prepare_rope(const Args& a, Isa isa) {
  auto w = rows_of_rope(a, isa);
  return w ? Result<Run>(run_of(std::move(*w))) : Result<Run>::no(w.why());
}

}  // namespace plait::kernels
