// Every fused kernel against its members one after the other, by bytes: on every instruction set, with odd sizes, some
// numbers of rows and threads.
#include "plait/kernels/cpu/fused.h"

#include "plait/kernels/cpu/matmul.h"
#include "plait/kernels/cpu/pages.h"
#include "plait/kernels/cpu/test_support.h"
#include "plait/kernels/panels.h"

namespace plait::kernels::test {
namespace {

using Fused = Result<Run> (*)(std::span<const Args>, Isa);

/// Members with their memory; what they write is compared.
struct Calls {
  std::vector<std::unique_ptr<Tensor>> tensors;
  std::vector<Args> members;
  std::vector<View> written;

  View keep(Tensor t) {
    tensors.push_back(std::make_unique<Tensor>(std::move(t)));
    return *tensors.back();
  }
  View made(DType t, Box box, bool compared = true) {
    View v = keep(Tensor(t, std::move(box)));
    if (compared) written.push_back(v);
    return v;
  }
  View random(DType t, Box box) { return keep(random_tensor(t, std::move(box), 1 + tensors.size())); }
  /// A weight in panels; its last dim is summed.
  View weight(DType t, Box box) {
    const i64 k = box.back().size(), n = volume(box) / k;
    std::vector<std::byte> rows(static_cast<size_t>(n * bytes_of(t, k)));
    std::vector<float> values(static_cast<size_t>(n * k));
    for (size_t i = 0; i < values.size(); i++) values[i] = static_cast<float>(normal(77 + tensors.size(), i) * 0.05);
    from_f32(t, values.data(), rows.data(), n * k);
    Tensor w(t, std::move(box), Layout::panels);
    w.buffer = Buffer(panel_bytes(t, n, k));
    w.data = w.buffer.data();
    pack_panels(t, rows.data(), bytes_of(t, k), n, k, {0, panels_of(n)}, w.buffer.data());
    return keep(std::move(w));
  }
  void call(std::string op, std::string_view rule, std::vector<View> in, View out) {
    members.push_back(args_of(std::move(op), rule, std::move(in), {out}));
  }

  std::string bytes() const {
    std::string all;
    for (auto& v : written) all.append(v.as<char>(), static_cast<size_t>(bytes_of(v.dtype, v.elements())));
    return all;
  }
  void clear() const {
    for (auto& v : written) std::memset(v.data, 0x5a, static_cast<size_t>(bytes_of(v.dtype, v.elements())));
  }
};

Result<Run> alone(const Args& a, Isa isa) {
  if (a.op == "matmul") return prepare_matmul(a, isa);
  if (a.op == "rope") return prepare_rope(a, isa);
  if (a.op == "head_rms_norm") return prepare_head_norm(a, isa);
  if (a.op == "kv_write") return prepare_kv_write(a, isa);
  if (a.op == "rms_norm" || a.op == "layer_norm") return prepare_norm(a, isa);
  return prepare_elementwise(a, isa);
}

/// One by one in scalar code by one thread: the bytes that everything else must have.
void expect_same(Fused prepare, const Calls& calls, const std::string& what) {
  Team one(1);
  Context c{one};
  calls.clear();
  for (auto& a : calls.members) {
    auto run = alone(a, Isa::portable);
    ASSERT_TRUE(run) << what << " " << a.op << ": " << run.why();
    (*run)(c);
  }
  const std::string want = calls.bytes();
  for (Isa isa : all_isas())
    for (i64 threads : {1, 2, 3}) {
      auto run = prepare(calls.members, isa);
      ASSERT_TRUE(run) << what << ": " << run.why();
      Team team(threads);
      Context context{team};
      calls.clear();
      (*run)(context);
      EXPECT_TRUE(calls.bytes() == want) << what << ", " << name_of(isa) << ", threads " << threads;
      EXPECT_FALSE(context.overflow);
    }
}

class FusedKernels : public Kernels {};

const std::vector<DType> kWeightTypes{DType::f32,  DType::bf16, DType::q4_0, DType::q4_1,
                                      DType::q8_0, DType::q5_0, DType::q4_k, DType::q6_k};
i64 width(DType weights, i64 blocks, i64 plain) {
  return is_quantized(weights) ? round_up(32 * blocks, info(weights).block) : plain;
}

TEST_F(FusedKernels, ProductsOfAttention) {
  for (DType weights : kWeightTypes)
    for (i64 rows : {1, 5, 131})
      for (bool normed : {false, true})
        for (bool biased : {false, true}) {
          if (normed && biased) continue;
          const i64 d = width(weights, 3, 37), q = 5, kv = 3, h = 6, slots = 160;
          const DType compute = weights == DType::f32 ? DType::f32 : DType::bf16;
          Calls c;
          const Range t{2, 2 + rows}, heads{3, 3 + q}, kv_heads{1, 1 + kv}, wide{0, h}, in{0, d};
          View x = c.random(compute, {t, in});
          std::vector<i64> at, place;
          for (i64 i = 0; i < rows; i++) {
            at.push_back(i * 3);
            place.push_back(i % 7 == 3 ? -1 : slots - 1 - i);
          }
          View position = c.keep(indices(t, at)), slot = c.keep(indices(t, place));
          // The last weight may be of another type, as files mix them.
          const DType other = is_quantized(weights) ? DType::q8_0 : weights;
          std::vector<View> ready;
          for (auto [range, type] : {std::pair{heads, weights}, {kv_heads, weights}, {kv_heads, other}}) {
            const bool turned = ready.size() < 2;
            const bool direct = !biased && !turned;
            View y = c.made(direct ? compute : DType::f32, {t, range, wide});
            c.call("matmul", "t d, n h d -> t n h", {x, c.weight(type, {range, wide, in})}, y);
            if (biased) {
              View z = c.made(turned ? DType::f32 : compute, {t, range, wide});
              c.call("bias", "t n h, n h -> t n h", {y, c.random(DType::f32, {range, wide})}, z);
              y = z;
            }
            if (turned && normed) {
              View z = c.made(DType::f32, {t, range, wide});
              c.call("head_rms_norm", "t n h, h -> t n h", {y, c.random(DType::f32, {wide})}, z);
              c.members.back().attrs["eps"] = 1e-6;
              y = z;
            }
            if (turned) {
              View z = c.made(compute, {t, range, wide});
              c.call("rope", "t n h, t -> t n h", {y, position}, z);
              c.members.back().attrs["base"] = 10000;
              y = z;
            }
            ready.push_back(y);
          }
          for (size_t i : {1, 2}) {
            const Layout layout = i == 1 ? Layout::pages : Layout::rows;
            Tensor cache(compute, {{0, slots}, kv_heads, wide}, layout);
            cache.buffer = Buffer(pages_bytes(compute, slots, kv, h));
            cache.data = cache.buffer.data();
            View v = c.keep(std::move(cache));
            c.written.push_back(v);
            c.call("kv_write", "c k h, t k h, t -> c k h", {v, ready[i], slot}, v);
          }
          expect_same(prepare_products, c,
                      fmt::format("{} rows of {}{}{}", rows, name_of(weights), biased ? " with biases" : "",
                                  normed ? " normed" : ""));
        }
}

TEST_F(FusedKernels, Activations) {
  for (DType weights : kWeightTypes)
    for (i64 rows : {1, 3, 33, 200})
      for (std::string op : {"gelu", "silu_mul", "gelu_mul"}) {
        const bool gated = op != "gelu";
        const i64 d = width(weights, 2, 41), f = rows > 100 ? 331 : 777;
        const DType compute = weights == DType::f32 ? DType::f32 : DType::bf16;
        Calls c;
        const Range t{0, rows}, columns{32, 32 + f}, in{0, d};
        View x = c.random(compute, {t, in});
        View a = c.made(DType::f32, {t, columns}, false), b = c.made(DType::f32, {t, columns}, false);
        View out = c.made(compute, {t, columns});
        c.call("matmul", "t d, f d -> t f", {x, c.weight(weights, {columns, in})}, a);
        if (gated) {
          c.call("matmul", "t d, f d -> t f", {x, c.weight(weights, {columns, in})}, b);
          c.call(op, "t f, t f -> t f", {a, b}, out);
        } else {
          c.call("bias", "t f, f -> t f", {a, c.random(DType::f32, {columns})}, b);
          c.call("gelu", "t f -> t f", {b}, out);
        }
        expect_same(prepare_activation, c, fmt::format("{} rows of {} {}", rows, name_of(weights), op));
      }
}

TEST_F(FusedKernels, SumsWithNorms) {
  for (i64 d : {1, 16, 37, 576})
    for (i64 rows : {1, 4, 67})
      for (bool exact : {false, true})
        for (bool biased : {false, true})
          for (std::string norm : {"", "rms_norm", "layer_norm"})
            for (DType compute : {DType::f32, DType::bf16}) {
              if (norm.empty() && compute == DType::bf16) continue;
              Calls c;
              const Range t{5, 5 + rows}, whole{0, d};
              View sum = exact ? c.keep(Tensor(DType::i64, {t, whole})) : c.random(DType::f32, {t, whole});
              for (i64 i = 0; exact && i < sum.elements(); i++)
                sum.as<i64>()[i] = static_cast<i64>(random_bits(9, static_cast<u64>(i))) >> (i % 30 + 8);
              View y = c.made(DType::f32, {t, whole}, false), x = c.made(DType::f32, {t, whole});
              View residual = c.random(DType::f32, {t, whole});
              c.call("finish", "t d -> t d", {sum}, y);
              c.members.back().exponent = 40;
              if (biased) {
                View z = c.made(DType::f32, {t, whole}, false);
                c.call("bias", "t d, d -> t d", {y, c.random(DType::f32, {whole})}, z);
                y = z;
              }
              c.call("add", "t d, t d -> t d", {residual, y}, x);
              if (!norm.empty()) {
                std::vector<View> in{x, c.random(DType::f32, {whole})};
                if (norm == "layer_norm") in.push_back(c.random(DType::f32, {whole}));
                c.call(norm, norm == "layer_norm" ? "t d, d, d -> t d" : "t d, d -> t d", in,
                       c.made(compute, {t, whole}));
                c.members.back().attrs["eps"] = 1e-5;
              }
              expect_same(prepare_sum_norm, c,
                          fmt::format("{} x {} {} exact {} biased {}", rows, d, norm, exact, biased));
            }
}

TEST_F(FusedKernels, NormedSumsWithNorms) {
  for (i64 d : {1, 16, 37, 640})
    for (i64 rows : {1, 4, 67})
      for (bool exact : {false, true})
        for (std::string norm : {"", "f32", "bf16"}) {
          Calls c;
          const Range t{5, 5 + rows}, whole{0, d};
          View sum = exact ? c.keep(Tensor(DType::i64, {t, whole})) : c.random(DType::f32, {t, whole});
          for (i64 i = 0; exact && i < sum.elements(); i++)
            sum.as<i64>()[i] = static_cast<i64>(random_bits(9, static_cast<u64>(i))) >> (i % 30 + 8);
          View y = c.made(DType::f32, {t, whole}, false), z = c.made(DType::f32, {t, whole}, false);
          View x = c.made(DType::f32, {t, whole});
          c.call("finish", "t d -> t d", {sum}, y);
          c.members.back().exponent = 40;
          auto normed = [&](View from, View to, double eps) {
            c.call("rms_norm", "t d, d -> t d", {from, c.random(DType::f32, {whole})}, to);
            c.members.back().attrs["eps"] = eps;
          };
          normed(y, z, 1e-6);
          c.call("add", "t d, t d -> t d", {c.random(DType::f32, {t, whole}), z}, x);
          if (!norm.empty()) normed(x, c.made(norm == "f32" ? DType::f32 : DType::bf16, {t, whole}), 1e-5);
          expect_same(prepare_sum_norm, c, fmt::format("{} x {} norm {} exact {}", rows, d, norm, exact));
        }
}

TEST_F(FusedKernels, DeclineWhatTheyDoNotCompute) {
  Calls c;
  const Range t{0, 2}, n{0, 8}, k{0, 32};
  View x = c.random(DType::f32, {t, k}), other = c.random(DType::f32, {t, k});
  View a = c.made(DType::f32, {t, n}), b = c.made(DType::f32, {t, n}), out = c.made(DType::f32, {t, n});
  c.call("matmul", "t d, f d -> t f", {x, c.weight(DType::f32, {n, k})}, a);
  c.call("matmul", "t d, f d -> t f", {other, c.weight(DType::f32, {n, k})}, b);
  c.call("silu_mul", "t f, t f -> t f", {a, b}, out);
  auto no = prepare_activation(c.members, isa());
  ASSERT_FALSE(no);
  EXPECT_NE(no.why().find("several operands"), std::string::npos) << no.why();
  EXPECT_FALSE(prepare_sum_norm(c.members, isa()));
  EXPECT_FALSE(prepare_products(c.members, isa()));
}

}  // namespace
}  // namespace plait::kernels::test
