// Block types mixed in one file: the same bits on any number of ranks, and products that are those of the blocks.
#include <cmath>
#include <set>

#include "plait/serve/test_models.h"

namespace plait::serve {
namespace {

using testing::HasSubstr;

ServingOptions options(const std::string& plan, const std::string& dtype = "auto") {
  ServingOptions o;
  o.plan = plan_named(plan);
  o.dtype = dtype;
  return o;
}

json llama_config(i64 N, i64 K, i64 H, i64 D, i64 F) {
  json c = reference("llama_small.json").at("config");
  c["num_attention_heads"] = N;
  c["num_key_value_heads"] = K;
  c["head_dim"] = H;
  c["hidden_size"] = D;
  c["intermediate_size"] = F;
  return c;
}

DType mixed_type(const std::string& state) {
  const std::map<std::string, DType> types{
      {"embedding", DType::q8_0},     {"layers.0.wq", DType::q8_0},   {"layers.0.wk", DType::q4_0},
      {"layers.0.wv", DType::q4_1},   {"layers.0.wo", DType::q4_0},   {"layers.0.gate", DType::f16},
      {"layers.0.up", DType::bf16},   {"layers.0.down", DType::q8_0}, {"layers.1.wq", DType::bf16},
      {"layers.1.wk", DType::f32},    {"layers.1.wv", DType::q8_0},   {"layers.1.wo", DType::q4_1},
      {"layers.1.gate", DType::q4_0}, {"layers.1.up", DType::q4_1},   {"layers.1.down", DType::q4_0},
      {"layers.2.wq", DType::q4_1},   {"layers.2.wk", DType::q8_0},   {"layers.2.wv", DType::f16},
      {"layers.2.wo", DType::f16},    {"layers.2.gate", DType::q8_0}, {"layers.2.up", DType::q4_0},
      {"layers.2.down", DType::q4_1}};
  return types.at(state);
}

DType k_type(const std::string& state) {
  const std::map<std::string, DType> types{
      {"embedding", DType::q6_k},     {"layers.0.wq", DType::q4_k},   {"layers.0.wk", DType::q5_k},
      {"layers.0.wv", DType::q6_k},   {"layers.0.wo", DType::q4_k},   {"layers.0.gate", DType::q5_0},
      {"layers.0.up", DType::q5_1},   {"layers.0.down", DType::q6_k}, {"layers.1.wq", DType::q2_k},
      {"layers.1.wk", DType::q3_k},   {"layers.1.wv", DType::q4_k},   {"layers.1.wo", DType::q2_k},
      {"layers.1.gate", DType::q5_k}, {"layers.1.up", DType::q6_k},   {"layers.1.down", DType::q3_k},
      {"layers.2.wq", DType::q5_1},   {"layers.2.wk", DType::q4_k},   {"layers.2.wv", DType::q5_0},
      {"layers.2.wo", DType::q5_k},   {"layers.2.gate", DType::q3_k}, {"layers.2.up", DType::q4_k},
      {"layers.2.down", DType::q4_k}};
  return types.at(state);
}

// Each of the types that GGUF files mix, in places where plans cut outputs and where they cut sums.
TEST(MixedTypes, same_bits_on_any_number_of_ranks) {
  io::TempFolder t;
  struct Case {
    json config;
    std::vector<std::string> plans;
    DType (*type)(const std::string&) = mixed_type;
  };
  const std::vector<Case> cases{{llama_config(6, 2, 32, 96, 160), {"2", "3", "4", "5", "6", "3,1", "2s", "2x2", "1x2"}},
                                {llama_config(12, 4, 8, 96, 224), {"2", "3", "1,2"}},  // 4 heads of 8 to a block
                                {llama_config(6, 2, 128, 256, 768), {"2", "3", "1,2", "3s"}, k_type}};  // 2 of 128
  for (auto& c : cases) {
    RandomModel m(c.config);
    const std::string path = t / fmt::format("{}-{}.gguf", m.N, m.H);
    write_gguf(m, path, c.type);
    io::ModelFiles files(path);
    const RunRequest q{.prompt = some_tokens(21, m.V), .greedy = 6};
    const Outcome one = run(files, options("1"), q);
    for (auto& plan : c.plans) {
      const Outcome out = run(files, options(plan), q);
      EXPECT_EQ(out.hash, one.hash) << m.N << " heads, " << plan;
      EXPECT_EQ(out.cache, one.cache) << m.N << " heads, " << plan;
      EXPECT_EQ(out.greedy, one.greedy);
    }
    EXPECT_NE(one.hash, run(files, options("1", "f32"), q).hash);  // blocks as they are, not dequantized
  }
}

/// A weight as the run has it: as written, and then in bf16 unless it is in blocks.
Values resident(const RandomModel& m, const std::string& state, i64 count, DType type) {
  Values w(static_cast<size_t>(count));
  to_f32(type, quantized(type, m.weight(state, count)).data(), w.data(), count);
  for (float& x : w) x = is_quantized(type) ? x : static_cast<float>(bf16(x));
  return w;
}

/// Blocks of 32 to int8 and back, in f32 as docs/numerics.md has it.
void quantize_activations(Values& x) {
  for (size_t b = 0; b < x.size(); b += 32) {
    float amax = 0;
    for (size_t i = b; i < b + 32; i++) amax = std::max(amax, std::fabs(x[i]));
    for (size_t i = b; i < b + 32 && amax > 0; i++) x[i] = std::nearbyint(x[i] * (127 / amax)) * (amax / 127);
  }
}

/// Out of a run: what a product read and made, in f32; sums as numbers.
Values numbers(const View& v) {
  Values x(static_cast<size_t>(v.elements()));
  if (v.dtype != DType::i64) {
    to_f32(v.dtype, v.data, x.data(), v.elements());
    return x;
  }
  for (size_t i = 0; i < x.size(); i++) x[i] = static_cast<float>(std::ldexp(static_cast<double>(v.as<i64>()[i]), -40));
  return x;
}

// Every product of a run against f64, from the operand that the run itself made, quantized in the same way. What rounds
// is then a chain of f32 (at most k terms, each within 2^-24 of the largest partial sum) and a bf16 result; the int8
// activations themselves would be off by 1e-3 of sum |x| max |w|, a hundred times as much. Logits are compared with
// no dequantized run: int8 is off by amax / 440 a number in the mean (half a percent of a normal block's), and three
// random layers make ten times as much of it.
void expect_products_of_blocks(const RandomModel& m, DType (*type)(const std::string&)) {
  io::TempFolder t;
  write_gguf(m, t / "m.gguf", type);
  io::ModelFiles files(t / "m.gguf");
  Engine engine(files, make_serving_plan(files, options("1")), {.threads = 1});
  engine.run([&](Session& s) {
    const Program& program = s.executor().program();
    std::map<ValueId, std::pair<Values, i64>> seen;  // values with their rows
    std::set<std::string> products;
    s.executor().watch([&](const Call& c, ValueId v, const View& view) {
      if (view.layout != Layout::rows) return;
      const Values got = numbers(view);
      seen[v] = {got, view.size(0)};
      if (program.node(c).op->name != "matmul") return;
      std::string state;
      for (auto& [name, id] : program.sharded->graph.named)
        if (id == program.step(c).in[1]) state = name;
      auto [x, rows] = seen.at(program.step(c).in[0]);
      const size_t k = x.size() / static_cast<size_t>(rows), n = got.size() / static_cast<size_t>(rows);
      const Values w = resident(m, state, static_cast<i64>(n * k), type(state));
      if (is_quantized(type(state))) quantize_activations(x);
      const float most = std::fabs(
          *std::max_element(w.begin(), w.end(), [](float a, float b) { return std::fabs(a) < std::fabs(b); }));
      double worst = 0;  // of the bound
      for (size_t i = 0; i < got.size(); i++) {
        double want = 0, size = 0;
        for (size_t j = 0; j < k; j++) {
          const double xj = x[i / n * k + j];
          want += xj * w[i % n * k + j];
          size += std::fabs(xj) * most;
        }
        const double bound =
            static_cast<double>(k) * 0x1p-24 * size + (view.dtype == DType::bf16 ? 0x1p-8 : 0) * std::fabs(want);
        worst = std::max(worst, std::fabs(got[i] - want) / bound);
      }
      EXPECT_LE(worst, 1) << state << " of " << name_of(type(state)) << ", " << rows << " rows";
      products.insert(state);
    });
    s.forward(some_tokens(21, m.V));
    s.forward(some_tokens(1, m.V));
    EXPECT_EQ(products.size(), static_cast<size_t>(7 * m.layers + 1));
  });
}

TEST(MixedTypes, products_are_those_of_the_blocks) {
  expect_products_of_blocks(RandomModel(llama_config(6, 2, 32, 96, 160)), mixed_type);
  expect_products_of_blocks(RandomModel(llama_config(4, 2, 64, 256, 256)), k_type);
}

TEST(MixedTypes, what_blocks_do_not_allow) {
  io::TempFolder t;
  RandomModel m(llama_config(12, 4, 8, 96, 224));
  write_gguf(m, t / "m.gguf", mixed_type);
  const std::string text =
      text_of_error(Code::usage, [&] { make_serving_plan(io::ModelFiles(t / "m.gguf"), options("4")); });
  EXPECT_THAT(text, HasSubstr("groups of 4"));
  EXPECT_THAT(text, HasSubstr("the largest useful degree is 3"));
  ServingOptions slow = options("1");
  slow.reference = true;
  EXPECT_THAT(text_of_error(Code::usage, [&] { make_serving_plan(io::ModelFiles(t / "m.gguf"), slow); }),
              HasSubstr("want --dtype f32 or bf16"));
}

}  // namespace
}  // namespace plait::serve
