#include "plait/kernels/cpu/matmul.h"

#include <atomic>
#include <bit>
#include <cmath>
#include <memory>
#include <optional>

#include "plait/kernels/cpu/matmul_product.h"
#include "plait/kernels/panels.h"

namespace plait::kernels {

namespace {

constexpr i64 kMostK = i64{1} << 17;  // a prepared row of x fits into the scratch of matmul_loops.h

std::optional<MatmulJob::Type> type_of(DType t) {
  switch (t) {
    case DType::f32:
      return MatmulJob::kF32;
    case DType::bf16:
      return MatmulJob::kBf16;
    case DType::i64:
      return MatmulJob::kI64;
    case DType::q4_0:
      return MatmulJob::kQ4_0;
    case DType::q4_1:
      return MatmulJob::kQ4_1;
    case DType::q5_0:
      return MatmulJob::kQ5_0;
    case DType::q5_1:
      return MatmulJob::kQ5_1;
    case DType::q8_0:
      return MatmulJob::kQ8_0;
    case DType::q2_k:
      return MatmulJob::kQ2_K;
    case DType::q3_k:
      return MatmulJob::kQ3_K;
    case DType::q4_k:
      return MatmulJob::kQ4_K;
    case DType::q5_k:
      return MatmulJob::kQ5_K;
    case DType::q6_k:
      return MatmulJob::kQ6_K;
    default:
      return std::nullopt;
  }
}

bool contains(const Term& groups, const std::string& g) {
  return std::find(groups.begin(), groups.end(), g) != groups.end();
}

/// The wanted part of consecutive dims of a view, as one strip of memory.
struct Strip {
  i64 size = 1;    // elements
  i64 offset = 0;  // of the first one, in elements
};

Result<Strip> strip(const Args& a, const View& v, const Term& term, size_t begin, size_t end) {
  Strip s;
  for (size_t i = begin; i < end; i++) {
    const Range want = a.range(term[i]), have = v.box[i];
    if (!have.contains(want)) return Result<Strip>::no(fmt::format("{} of {} is not held", to_string(want), term[i]));
    if (i > begin && want.size() != have.size())
      return Result<Strip>::no(
          fmt::format("{} of {} lies in {}: not in one piece", to_string(want), term[i], to_string(have)));
    s.size *= want.size();
    s.offset += want.empty() ? 0 : (want.begin - have.begin) * v.stride(i);
  }
  return s;
}

/// Leaf edges of the summed dims in k, or why this call has none.
Result<std::vector<i64>> leaf_edges(const Args& a, const Term& summed, i64 k) {
  using R = Result<std::vector<i64>>;
  for (size_t i = 0; i < summed.size(); i++)
    for (char f : summed[i]) {
      if (!a.leaves.contains(f)) continue;
      if (i > 0 || summed[i].size() > 1)
        return R::no(fmt::format("leaves of {} inside {}, not on the outermost summed dim", f, summed[i]));
      const Range range = a.range(summed[i]);
      std::vector<i64> edges{0};
      for (Range leaf : a.leaves_in(f, summed[i])) edges.push_back((leaf.end - range.begin) * (k / range.size()));
      if (edges.back() != k) return R::no(fmt::format("leaves cover {} of {}", edges.back(), k));
      return edges;
    }
  return R::no("an exact sum over dims without leaves");
}

/// One chain (no leaves) or the leaves of an exact sum.
std::string set_leaves(Product& p, const Args& a, const Term& summed, DType w_type) {
  const i64 k = p.job.x_k, unit = w_type == DType::bf16 ? 2 : info(w_type).block;
  p.edges = {0, p.job.k};
  if (p.job.out_type != MatmulJob::kI64) return "";
  auto edges = leaf_edges(a, summed, k);
  if (!edges) return edges.why();
  p.edges = *edges;
  p.edges.back() = p.job.k;
  p.job.leaves = static_cast<i64>(p.edges.size()) - 1;
  p.job.scale = std::ldexp(1.0f, a.exponent);
  p.overflow_limit = 0x1p62 / static_cast<double>(a.model_leaves);
  for (size_t i = 0; i + 1 < p.edges.size(); i++) {
    p.job.longest_leaf = std::max(p.job.longest_leaf, p.edges[i + 1] - p.edges[i]);
    if (p.edges[i] % unit != 0) return fmt::format("a leaf begins at {}, want a multiple of {}", p.edges[i], unit);
  }
  return "";
}

Result<Product> describe(const Args& a) {
  using R = Result<Product>;
  if (a.in.size() != 2 || a.out.size() != 1) return R::no("want x, w -> out");
  const View &x = a.in[0], &w = a.in[1], &out = a.out[0];
  const Term &xt = a.in_terms[0], &wt = a.in_terms[1], &ot = a.out_terms[0];
  Product p;
  auto x_type = type_of(x.dtype), w_type = type_of(w.dtype), out_type = type_of(out.dtype);
  if (x.dtype != DType::f32 && x.dtype != DType::bf16) return R::no(fmt::format("x of {}", name_of(x.dtype)));
  if (!w_type || !has_panels(w.dtype)) return R::no(fmt::format("w of {}", name_of(w.dtype)));
  if (out.dtype != DType::f32 && out.dtype != DType::bf16 && out.dtype != DType::i64)
    return R::no(fmt::format("a result of {}", name_of(out.dtype)));
  if (w.layout != Layout::panels || x.layout != Layout::rows || out.layout != Layout::rows)
    return R::no("want w in panels, x and out in rows");

  Term summed, made;  // dims of w: k and n
  p.job.n = p.job.k = 1;
  for (size_t i = 0; i < wt.size(); i++) {
    const Range r = a.range(wt[i]);
    if (!(r == w.box[i]))
      return R::no(fmt::format("w holds {} of {}, want {}", to_string(w.box[i]), wt[i], to_string(r)));
    (contains(ot, wt[i]) ? made : summed).push_back(wt[i]);
    (contains(ot, wt[i]) ? p.job.n : p.job.k) *= r.size();
  }
  if (xt.size() < summed.size() || !std::equal(summed.rbegin(), summed.rend(), xt.rbegin()))
    return R::no("the summed dims are not the last ones of x, in the order of w");
  if (ot.size() < made.size() || !std::equal(made.rbegin(), made.rend(), ot.rbegin()))
    return R::no("the dims of w are not the last ones of the result, in the order of w");
  const size_t rows_x = xt.size() - summed.size(), rows_out = ot.size() - made.size();
  if (!std::equal(xt.begin(), xt.begin() + static_cast<i64>(rows_x), ot.begin(),
                  ot.begin() + static_cast<i64>(rows_out)))
    return R::no("x and the result have other rows");
  if (p.job.k % info(w.dtype).block != 0)
    return R::no(
        fmt::format("k = {} is no multiple of {}, the block of {}", p.job.k, info(w.dtype).block, name_of(w.dtype)));

  auto x_rows = strip(a, x, xt, 0, rows_x), x_row = strip(a, x, xt, rows_x, xt.size());
  auto out_rows = strip(a, out, ot, 0, rows_out), out_row = strip(a, out, ot, rows_out, ot.size());
  for (auto* s : {&x_rows, &x_row, &out_rows, &out_row})
    if (!*s) return R::no(s->why());
  p.rows = x_rows->size;
  const i64 x_size = info(x.dtype).block_bytes, out_size = info(out.dtype).block_bytes;
  p.job.x_stride = (rows_x > 0 ? x.stride(rows_x - 1) : 0) * x_size;
  p.job.out_stride = (rows_out > 0 ? out.stride(rows_out - 1) : 0) * out_size;
  p.job.x = static_cast<const unsigned char*>(x.data) + (x_rows->offset + x_row->offset) * x_size;
  p.job.out = static_cast<unsigned char*>(out.data) + (out_rows->offset + out_row->offset) * out_size;
  p.job.w = static_cast<const unsigned char*>(w.data);
  p.job.x_type = *x_type;
  p.job.w_type = *w_type;
  p.job.out_type = *out_type;
  p.job.panel_bytes = bytes_of_panel(w.dtype, p.job.k);
  p.job.x_k = p.job.k;
  if (w.dtype == DType::bf16) p.job.k = round_up(p.job.k, 2);
  if (p.job.k > kMostK) return R::no(fmt::format("k = {}, want at most {}", p.job.k, kMostK));
  if (p.rows == 0 || p.job.n == 0 || p.job.k == 0) return p;
  if (std::string why = set_leaves(p, a, summed, w.dtype); !why.empty()) return R::no(why);
  return p;
}

void raise(std::atomic<std::uint32_t>& largest, std::uint32_t value) {
  std::uint32_t seen = largest.load(std::memory_order_relaxed);
  while (seen < value && !largest.compare_exchange_weak(seen, value, std::memory_order_relaxed)) {}
}

void run(const Product& p, Context& context) {
  const MatmulJob& job = p.job;
  std::atomic<std::uint32_t> largest{0};
  const i64 threads = context.team.size(), panels = panels_of(job.n);
  if (threads > 1 && p.rows >= kRowsOfThread * threads) {
    const MatmulPart all{&job, 0, panels};
    context.team.split(p.rows, 6, [&](Range r) { raise(largest, p.run(&all, 1, r.begin, r.end)); });
  } else {
    context.team.split(panels, panel_grain(panels, threads), [&](Range r) {
      const MatmulPart part{&job, r.begin, r.end};
      raise(largest, p.run(&part, 1, 0, p.rows));
    });
  }
  if (job.leaves > 0 && !(std::bit_cast<float>(largest.load()) < p.overflow_limit)) context.overflow = true;
}

/// A sum of nothing.
void clear(const Product& p) {
  const i64 size = p.job.out_type == MatmulJob::kI64 ? 8 : p.job.out_type == MatmulJob::kF32 ? 4 : 2;
  for (i64 t = 0; t < p.rows; t++)
    std::memset(p.job.out + t * p.job.out_stride, 0, static_cast<size_t>(p.job.n * size));
}

MatmulProduct product_of(Isa isa) {
  switch (isa) {
    case Isa::avx512_bf16:
      return matmul_avx512bf16;
    case Isa::avx512:
      return matmul_avx512;
    case Isa::avx2:
      return matmul_avx2;
    default:
      return matmul_reference;
  }
}

// Where the bf16 dot product is worth it. Its rate, in products a clock of 512 bits: Zen 5 2, as many as f32 FMA, of
// which it needs half as many; Sapphire Rapids 0.47, against 1.8 of FMA (measured).
bool native_bf16_is_fast() {
  __builtin_cpu_init();
  return __builtin_cpu_is("amd") != 0;
}

template <Isa kIsa>
Result<Run> prepare(const Args& a) {
  if (isa() < kIsa) return Result<Run>::no(fmt::format("needs {}, the choice is {}", name_of(kIsa), name_of(isa())));
  return prepare_matmul(a, kIsa);
}

constexpr Kernel kKernels[] = {{"matmul", "matmul_avx512bf16", prepare<Isa::avx512_bf16>},
                               {"matmul", "matmul_avx512", prepare<Isa::avx512>},
                               {"matmul", "matmul_avx2", prepare<Isa::avx2>},
                               {"matmul", "matmul_reference", prepare<Isa::portable>}};

}  // namespace

i64 panel_grain(i64 panels, i64 threads) { return panels >= 4 * threads ? 4 : 1; }

Result<std::shared_ptr<const Product>> describe_product(const Args& a, Isa isa, std::optional<bool> native_bf16) {
  using R = Result<std::shared_ptr<const Product>>;
  if (isa > detected_isa()) return R::no(fmt::format("this processor has no {}", name_of(isa)));
  auto described = describe(a);
  if (!described) return R::no(described.why());
  auto p = std::make_shared<Product>(std::move(*described));
  p->job.edges = p->edges.data();
  p->job.native_bf16 = native_bf16.value_or(native_bf16_is_fast());
  p->run = product_of(isa);
  return std::shared_ptr<const Product>(std::move(p));
}

Result<Run> prepare_matmul(const Args& a, Isa isa, std::optional<bool> native_bf16) {
  auto described = describe_product(a, isa, native_bf16);
  if (!described) return Result<Run>::no(described.why());
  std::shared_ptr<const Product> p = *described;
  if (p->rows == 0 || p->job.n == 0) return Run([](Context&) {});
  if (p->job.k == 0) return Run([p](Context&) { clear(*p); });
  return Run([p](Context& c) { run(*p, c); });
}

std::span<const Kernel> matmul_kernels() { return kKernels; }

}  // namespace plait::kernels
