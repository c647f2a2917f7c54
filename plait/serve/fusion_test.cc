// Fused kernels against their unfused twins on small models: logits, tokens and caches have the same bits.
#include "plait/serve/test_models.h"

namespace plait::serve {
namespace {

struct Seen {
  Outcome outcome;
  i64 calls = 0;
  std::string kernels;
};

/// The prompt in runs of 5, 1 and 16 tokens, then some one by one.
Seen seen(const io::ModelFiles& files, const std::string& dtype, const std::string& plan, bool fuse, i64 threads,
          i64 tokens) {
  ServingOptions o;
  o.plan = plan_named(plan);
  o.dtype = dtype;
  o.fuse = fuse;
  RunRequest q{.greedy = 4, .chunks = {5, 1, 16}, .all_rows = false};
  for (i64 i = 0; i < tokens; i++) q.prompt.push_back((i * 31 + 7) % 97);
  Seen s;
  s.outcome = run(files, o, q, {.threads = threads});
  Engine engine(files, make_serving_plan(files, o), {.threads = threads});
  engine.run([&](Session& session) {
    session.forward(std::span<const i64>(q.prompt).first(1));
    if (session.rank() != 0) return;
    s.calls = session.executor().calls();
    s.kernels = session.executor().kernels_text();
  });
  return s;
}

TEST(FusedModels, HaveTheBitsOfUnfusedOnes) {
  io::TempFolder t;
  std::vector<std::pair<std::string, std::string>> models;  // path, dtype
  for (std::string name : {"llama_small", "llama_options", "gpt2_small", "gemma3_small"}) {
    RandomModel m(reference(name + ".json").at("config"));
    write_hf(m, t / name);
    for (std::string dtype : {"f32", "bf16"}) models.emplace_back(t / name, dtype);
  }
  RandomModel blocks(json{{"model_type", "llama"},
                          {"architectures", {"LlamaForCausalLM"}},
                          {"hidden_size", 96},
                          {"num_attention_heads", 6},
                          {"num_key_value_heads", 3},
                          {"head_dim", 32},
                          {"intermediate_size", 160},
                          {"vocab_size", 131},
                          {"max_position_embeddings", 64},
                          {"num_hidden_layers", 2},
                          {"rms_norm_eps", 1e-5},
                          {"rope_theta", 10000.0},
                          {"attention_bias", false},
                          {"tie_word_embeddings", true}});
  for (DType type : {DType::q4_0, DType::q4_1, DType::q8_0}) {
    const std::string path = t / fmt::format("{}.gguf", name_of(type));
    write_gguf(blocks, path, [&](const std::string&) { return type; });
    models.emplace_back(path, "auto");
  }
  write_gguf(blocks, t / "mixed.gguf", [&](const std::string& state) {
    return state.ends_with("wv") || state.ends_with("gate") ? DType::q8_0 : DType::q4_1;
  });
  models.emplace_back(t / "mixed.gguf", "auto");
  for (auto& [path, dtype] : models) {
    io::ModelFiles files(path);
    const Seen alone = seen(files, dtype, "1", false, 1, 22);
    EXPECT_EQ(alone.kernels.find("fused"), std::string::npos);
    for (std::string plan : {"1", "2", "3", "4", "2s"})
      for (i64 threads : {1, 2, 3}) {
        if (threads > 1 && plan != "1" && plan != "3") continue;
        const Seen fused = seen(files, dtype, plan, true, threads, 22);
        EXPECT_NE(fused.kernels.find("fused: "), std::string::npos);
        const std::string what = fmt::format("{} {} plan {} threads {}", path, dtype, plan, threads);
        EXPECT_EQ(fused.outcome.hash, alone.outcome.hash) << what;
        EXPECT_EQ(fused.outcome.cache, alone.outcome.cache) << what;
        EXPECT_EQ(fused.outcome.greedy, alone.outcome.greedy) << what;
        // A gate of another type than up has a kernel of its own.
        const bool mixed = path.ends_with("mixed.gguf");
        EXPECT_EQ(fused.kernels.find("fused: gate + up") == std::string::npos, mixed || path.find("gpt2") != path.npos);
        if (plan == "1" && !mixed) { EXPECT_LT(fused.calls * 2, alone.calls) << fused.kernels; }
      }
  }
}

// While every value is watched the calls run one by one.
TEST(FusedModels, WatchedValuesAreAllThere) {
  io::TempFolder t;
  write_hf(RandomModel(reference("llama_small.json").at("config")), t / "hf");
  io::ModelFiles files(t / "hf");
  Engine engine(files, make_serving_plan(files, {}), {.threads = 1});
  engine.run([&](Session& s) {
    const std::vector<i64> prompt{1, 2, 3};
    s.forward(prompt);
    const i64 fused = s.executor().calls();
    std::set<std::string> labels;
    s.executor().watch([&](const Call& c, ValueId, const View&) { labels.insert(s.executor().program().label(c)); });
    s.forward(prompt);
    EXPECT_GT(s.executor().calls(), 2 * fused);
    EXPECT_EQ(labels.count("layers.1.gate"), 1u);
    s.executor().watch(nullptr);
    s.forward(prompt);
    EXPECT_EQ(s.executor().calls(), fused);
  });
}

}  // namespace
}  // namespace plait::serve
