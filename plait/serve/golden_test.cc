// Golden hashes of whole generations, prefill and decode, with fused kernels: logits and KV caches have these bits on
// every machine. tests/isa_test.sh runs these tests under every instruction set that the processor has; there `verify`
// covers the kernels one by one, which a fused call must not change. A change here changes the numbers of every model:
// docs/numerics.md comes first.
#include "plait/kernels/kernel.h"
#include "plait/serve/test_models.h"

namespace plait::serve {
namespace {

struct Golden {
  std::string dtype;
  u64 logits, cache;
};

using Layouts = std::vector<std::pair<std::string, i64>>;  // plan, threads of a rank
const Layouts kAll{{"1", 1}, {"1", 2}, {"2", 1}, {"2", 2}};

/// The prompt in a run of many rows and in one of a single row, then greedy steps.
void expect_golden(const std::string& path, const Golden& want, i64 vocabulary, i64 prompt, i64 greedy,
                   const Layouts& layouts = kAll) {
  io::ModelFiles files(path);
  RunRequest q{.greedy = greedy, .chunks = {prompt - 1, 1}, .all_rows = false};
  for (i64 i = 0; i < prompt; i++) q.prompt.push_back((i * 31 + 7) % vocabulary);
  for (auto& [plan, threads] : layouts) {
    ServingOptions o;
    o.plan = plan_named(plan);
    o.dtype = want.dtype;
    const Outcome out = run(files, o, q, {.threads = threads});
    EXPECT_EQ(fmt::format("{:016x} {:016x}", out.hash, out.cache),
              fmt::format("{:016x} {:016x}", want.logits, want.cache))
        << path << " " << want.dtype << ", plan " << plan << ", " << threads << " threads";
  }
}

TEST(Golden, SmallModels) {
  io::TempFolder t;
  json config = reference("llama_small.json").at("config");
  write_hf(RandomModel(config), t / "llama");
  write_hf(RandomModel(reference("gpt2_small.json").at("config")), t / "gpt2");
  for (const Golden& g :
       {Golden{"f32", 0x71a3c273a9a1797c, 0x278cd0f0a47d74cf}, {"bf16", 0xfd516e5555019d0a, 0xd139ea6eec54253b}})
    expect_golden(t / "llama", g, 97, 22, 8);
  for (const Golden& g :
       {Golden{"f32", 0xe50e2533ee97f601, 0x70b3c893a12be250}, {"bf16", 0xd42937f33fce4acd, 0x953fc518006adccb}})
    expect_golden(t / "gpt2", g, 97, 22, 8);
  write_hf(RandomModel(reference("gemma3_small.json").at("config")), t / "gemma3");
  for (const Golden& g :
       {Golden{"f32", 0x3e088f869d71f7a7, 0xa191bdebef61014b}, {"bf16", 0x33bdd419f43c53bc, 0xc1b525aec57686fb}})
    expect_golden(t / "gemma3", g, 97, 22, 8);
  // Blocks of 32 ask for wider rows.
  config.update({{"hidden_size", 96}, {"num_attention_heads", 6}, {"num_key_value_heads", 3}, {"head_dim", 32}});
  config["intermediate_size"] = 160;
  write_gguf(RandomModel(config), t / "q4_1.gguf", [](const std::string&) { return DType::q4_1; });
  expect_golden(t / "q4_1.gguf", {"auto", 0x450bd15242cf3686, 0x33f08b3bae9d6db5}, 97, 22, 8);
  config.update({{"hidden_size", 256}, {"num_attention_heads", 6}, {"num_key_value_heads", 3}, {"head_dim", 128}});
  config["intermediate_size"] = 512;
  write_gguf(RandomModel(config), t / "k.gguf", [](const std::string& state) {
    const std::map<std::string, DType> types{{"wq", DType::q4_k},  {"wk", DType::q3_k},   {"wv", DType::q2_k},
                                             {"wo", DType::q5_k},  {"gate", DType::q5_0}, {"up", DType::q5_1},
                                             {"down", DType::q4_k}};
    const auto it = types.find(state.substr(state.rfind('.') + 1));
    return it != types.end() ? it->second : DType::q6_k;
  });
  expect_golden(t / "k.gguf", {"auto", 0x53747f5972958923, 0x22b61194b02081b4}, 97, 22, 8);
}

TEST(Golden, Stories260K) {
  NEED_SHARED(path, "models/stories260K/stories260K.gguf");
  for (const Golden& g :
       {Golden{"f32", 0x23bb5afacd382fb3, 0x08fac29f16ef71b1}, {"bf16", 0xd9c499129789c4fe, 0xfc29dea82080ea6e}})
    expect_golden(path, g, 512, 40, 60);
}

TEST(Golden, SmolLM2) {
  NEED_SMOLLM2(path);
  const bool slow = kernels::isa() == kernels::Isa::portable && !long_run();
  const Layouts layouts = long_run() ? kAll : slow ? Layouts{{"1", 2}} : Layouts{{"1", 2}, {"2", 1}};
  expect_golden(path, {"auto", 0x07b39526c05aa971, 0xf379425bfda97038}, 40000, 20, 4, layouts);
  if (slow) return;  // slower still in these types
  for (const Golden& g :
       {Golden{"f32", 0x2e87d5257febceb3, 0x1798b0bd3804365e}, {"bf16", 0x41d6748931f1f7a6, 0x4454a89ee1b99002}})
    expect_golden(path, g, 40000, 20, 4, layouts);
}

}  // namespace
}  // namespace plait::serve
