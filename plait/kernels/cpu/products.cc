// Products of one operand in one meeting of the team, and what follows them. The panels of all weights are numbered
// through and split over the team together, so that narrow weights (KV heads) do not leave threads idle.
#include "plait/kernels/cpu/functions.h"
#include "plait/kernels/cpu/fused.h"
#include "plait/kernels/cpu/matmul_product.h"
#include "plait/kernels/panels.h"

namespace plait::kernels {

namespace {

constexpr size_t kMostProducts = 8;
constexpr i64 kStripPanels = 12;  // whole tiles of any instruction set
constexpr i64 kMostStrips = 32;
constexpr i64 kFewRows = 8;  // their results stay in the first-level cache: no strips

struct Products {
  std::vector<std::shared_ptr<const Product>> products;
  i64 rows = 0, panels = 0;

  const MatmulJob& job(size_t i) const { return products[i]->job; }
  /// Some rows of parts; those of one type of weight together.
  void run(const MatmulPart* parts, size_t count, Range r) const {
    for (size_t i = 0; i < count;) {
      size_t end = i + 1;
      while (end < count && parts[end].job->w_type == parts[i].job->w_type) end++;
      products[0]->run(parts + i, static_cast<i64>(end - i), r.begin, r.end);
      i = end;
    }
  }
  /// Some rows of the panels of that number.
  void run(Range numbers, Range r) const {
    MatmulPart parts[kMostProducts];
    size_t count = 0;
    i64 first = 0;
    for (auto& p : products) {
      const i64 n = panels_of(p->job.n);
      const Range part = Range{first, first + n} & numbers;
      if (!part.empty()) parts[count++] = {&p->job, part.begin - first, part.end - first};
      first += n;
    }
    run(parts, count, r);
  }
};

Result<Products> products_of(std::span<const Args> members, Isa isa) {
  using R = Result<Products>;
  Products all;
  for (const Args& a : members) {
    if (a.op != "matmul") continue;
    auto p = describe_product(a, isa);
    if (!p) return R::no(p.why());
    const MatmulJob& job = (*p)->job;
    if (job.out_type == MatmulJob::kI64) return R::no("an exact sum");
    if ((*p)->rows == 0 || job.n == 0 || job.k == 0) return R::no("nothing to compute");
    all.products.push_back(*p);
    const MatmulJob& first = all.job(0);
    if (job.x != first.x || job.x_stride != first.x_stride || job.x_type != first.x_type || job.x_k != first.x_k ||
        (*p)->rows != all.products[0]->rows)
      return R::no("products of several operands");
    all.panels += panels_of(job.n);
  }
  if (all.products.empty() || all.products.size() > kMostProducts) return R::no("no products, or too many");
  all.rows = all.products[0]->rows;
  return all;
}

bool rows_are_split(const Context& c, i64 rows) { return c.team.size() > 1 && rows >= kRowsOfThread * c.team.size(); }

/// "t n h, n h -> t n h", all heads that are held.
Result<RowWork> rows_of_bias(const Args& a, Isa isa) {
  using R = Result<RowWork>;
  const View &x = a.in[0], &bias = a.in[1], &out = a.out[0];
  if (x.dtype != DType::f32 || bias.dtype != DType::f32 || !is_real(out.dtype)) return R::no("a bias of other types");
  if (!(x.box == out.box) || bias.box.size() + 1 != x.box.size() || a.out_terms[0][0] != a.in_terms[0][0] ||
      !(a.range(a.out_terms[0][0]) == x.box[0]))
    return R::no("a bias of other boxes");
  for (size_t d = 1; d < x.box.size(); d++)
    if (a.in_terms[1][d - 1] != a.out_terms[0][d] || !(bias.box[d - 1] == x.box[d]) ||
        !(a.range(a.out_terms[0][d]) == x.box[d]))
      return R::no("a bias of other boxes");
  const MapFn add = functions(isa).map[static_cast<size_t>(Map::add)][type_index(out.dtype)];
  return RowWork{x.size(0), x.stride(0), [=, xs = RowsOf(x), ys = RowsOf(out), n = x.stride(0)](Range r) {
                   for (i64 t = xs.begin + r.begin; t < xs.begin + r.end; t++)
                     add(xs.at<const float>(t), bias.data, ys.at<void>(t), n, 1);
                 }};
}

/// What becomes of a strip of columns of one product (with its bias), or of two.
struct Activation {
  MapFn f, add;
  const MatmulJob* other = nullptr;
  const float* bias = nullptr;
  std::byte* out = nullptr;
  i64 out_stride = 0, out_bytes = 0;

  static void apply(const void* self, const MatmulPart& part, std::int64_t row_begin, std::int64_t row_end) {
    const auto& a = *static_cast<const Activation*>(self);
    const MatmulJob& job = *part.job;
    const i64 column = part.panel_begin * kPanel, n = std::min(part.panel_end * kPanel, job.n) - column;
    for (i64 r = row_begin; r < row_end; r++) {
      auto* x = reinterpret_cast<float*>(job.out + r * job.out_stride) + column;
      const float* y = nullptr;
      if (a.other != nullptr) y = reinterpret_cast<const float*>(a.other->out + r * a.other->out_stride) + column;
      if (a.bias != nullptr) a.add(x, a.bias + column, x, n, 1);
      a.f(a.other != nullptr ? y : x, x, a.out + r * a.out_stride + column * a.out_bytes, n, 1);
    }
  }
};

/// Does `v` hold, and `a` name, exactly the dims of `like`?
bool lies_like(const Args& a, const Term& term, const View& v, const View& like) {
  if (!(v.box == like.box) || v.layout != Layout::rows) return false;
  for (size_t d = 0; d < term.size(); d++)
    if (!(a.range(term[d]) == v.box[d])) return false;
  return true;
}

}  // namespace

Result<Run> prepare_products(std::span<const Args> members, Isa isa) {
  auto products = products_of(members, isa);
  if (!products) return Result<Run>::no(products.why());
  std::vector<RowWork> rest;
  i64 width = 0;
  for (const Args& a : members) {
    if (a.op == "matmul") continue;
    auto w = a.op == "rope"            ? rows_of_rope(a, isa)
             : a.op == "bias"          ? rows_of_bias(a, isa)
             : a.op == "head_rms_norm" ? rows_of_head_norm(a, isa)
             : a.op == "kv_write"      ? rows_of_kv_write(a)
                                       : Result<RowWork>::no(a.op + " beside products");
    if (!w) return Result<Run>::no(w.why());
    if (!rest.empty() && rest[0].rows != w->rows) return Result<Run>::no("other rows");
    width += w->width;
    rest.push_back(std::move(*w));
  }
  auto p = std::make_shared<const Products>(std::move(*products));
  return Run([p, rest = std::move(rest), width](Context& c) {
    if (rows_are_split(c, p->rows))
      c.team.split(p->rows, 6, [&](Range r) { p->run({0, p->panels}, r); });
    else
      c.team.split(p->panels, panel_grain(p->panels, c.team.size()), [&](Range n) { p->run(n, {0, p->rows}); });
    if (rest.empty()) return;
    split_rows(c, rest[0].rows, width, [&](Range r) {
      for (auto& w : rest) w.run(r);
    });
  });
}

Result<Run> prepare_activation(std::span<const Args> members, Isa isa) {
  using R = Result<Run>;
  auto products = products_of(members, isa);
  if (!products) return R::no(products.why());
  auto p = std::make_shared<const Products>(std::move(*products));
  const Args& last = members.back();
  const View &out = last.out[0], &made = members[0].out[0];
  const bool gated = last.op == "silu_mul" || last.op == "gelu_mul";
  if (members.size() != 3 || p->products.size() != (gated ? 2 : 1) || (!gated && last.op != "gelu"))
    return R::no("not an activation of products");
  if (!is_real(out.dtype) || !lies_like(last, last.out_terms[0], out, made) || made.box.size() != 2)
    return R::no("an activation that lies otherwise than its operand");
  for (size_t i = 0; i < p->products.size(); i++)
    if (p->job(i).out_type != MatmulJob::kF32 || p->job(i).w_type != p->job(0).w_type ||
        !(members[i].out[0].box == made.box))
      return R::no("products that do not lie alike");
  const Functions& f = functions(isa);
  Activation a{};
  a.f = f.map[static_cast<size_t>(last.op == "silu_mul" ? Map::silu_mul
                                  : gated               ? Map::gelu_mul
                                                        : Map::gelu)][type_index(out.dtype)];
  a.add = f.map[static_cast<size_t>(Map::add)][0];
  if (gated) {
    if (last.in[0].data != made.data || last.in[1].data != members[1].out[0].data) return R::no("another order");
    a.other = &p->job(0);
  } else {
    const Args& bias = members[1];
    if (bias.op != "bias" || bias.in[1].dtype != DType::f32 || bias.out[0].dtype != DType::f32 ||
        !(bias.in[1].box[0] == made.box[1]) || !lies_like(bias, bias.out_terms[0], bias.out[0], made))
      return R::no("a bias of other types or boxes");
    a.bias = bias.in[1].as<const float>();
  }
  a.out = out.as<std::byte>();
  a.out_bytes = size_of(out.dtype);
  a.out_stride = out.stride(0) * a.out_bytes;

  return Run([p, a](Context& c) {
    // Columns of every product, strip by strip; the last part of a strip makes the activation.
    auto strips = [&](Range panels, Range r) {
      MatmulPart parts[2 * kMostStrips];
      size_t count = 0;
      const i64 step = r.size() <= kFewRows
                           ? panels.size()
                           : std::max(kStripPanels, round_up(ceil_div(panels.size(), kMostStrips), kStripPanels));
      for (i64 at = panels.begin; at < panels.end; at += step) {
        const i64 end = std::min(at + step, panels.end);
        for (auto& product : p->products) parts[count++] = {&product->job, at, end};
        parts[count - 1].after = Activation::apply;
        parts[count - 1].context = &a;
      }
      p->run(parts, count, r);
    };
    const i64 panels = panels_of(p->job(0).n);
    if (rows_are_split(c, p->rows))
      c.team.split(p->rows, 6, [&](Range r) { strips({0, panels}, r); });
    else
      c.team.split(panels, panel_grain(panels, c.team.size()), [&](Range n) { strips(n, {0, p->rows}); });
  });
}

}  // namespace plait::kernels
