// Small random models as files of both formats, against transformers (tests/data) and against one rank.
#include "plait/serve/test_models.h"

namespace plait::serve {
namespace {

// Of logits whose largest is about 4, in files of six decimals: what f32 sums in another order may differ by.
constexpr double kF32 = 1e-5;
constexpr double kBf16 = 3e-2;

std::vector<i64> ids(const json& j) { return j.get<std::vector<i64>>(); }

/// Every sequence of a reference file: logits of all tokens within the tolerance, and the greedy tokens after them.
/// Returns the outcomes, for comparisons by bits.
std::vector<Outcome> expect_reference(const io::ModelFiles& files, const json& r, ServingOptions o, double tolerance) {
  std::vector<Outcome> out;
  double worst = 0;
  for (auto& s : r.at("sequences")) {
    const bool f32 = o.dtype == "f32";
    Outcome run_of =
        run(files, o, {.prompt = ids(s.at("tokens")), .greedy = f32 ? static_cast<i64>(s.at("greedy").size()) : 0});
    worst = std::max(worst, relative(run_of.logits, s.at("logits").get<std::vector<Values>>()));
    if (f32) { EXPECT_EQ(run_of.greedy, ids(s.at("greedy"))) << o.plan.text(); }
    out.push_back(std::move(run_of));
  }
  EXPECT_LE(worst, tolerance) << files.path() << "\n" << o.plan.text();
  testing::Test::RecordProperty("worst_" + o.dtype, fmt::format("{:.2e}", worst));
  return out;
}

void expect_same(const std::vector<Outcome>& a, const std::vector<Outcome>& b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); i++) {
    EXPECT_EQ(a[i].hash, b[i].hash) << what << ": logits of sequence " << i;
    EXPECT_EQ(a[i].cache, b[i].cache) << what << ": KV cache of sequence " << i;
    EXPECT_EQ(a[i].greedy, b[i].greedy) << what;
  }
}

ServingOptions options(const std::string& plan, const std::string& dtype = "f32") {
  ServingOptions o;
  o.plan = plan_named(plan);
  o.dtype = dtype;
  return o;
}

const std::vector<std::string> kPlans{"2", "3", "4", "5", "7", "9", "3,1", "1,0,5", "2x2", "3x2", "2s", "5s"};

/// One rank against the reference, every plan against one rank, in f32 and bf16; the other files the same bits.
void check_model(const std::string& name, const json& r, const std::string& model,
                 const std::vector<std::string>& same_models) {
  io::ModelFiles files(model);
  auto one = expect_reference(files, r, options("1"), kF32);
  for (auto& plan : kPlans) expect_same(expect_reference(files, r, options(plan), kF32), one, name + " f32 " + plan);
  auto bf16 = expect_reference(files, r, options("1", "bf16"), kBf16);
  EXPECT_NE(bf16[0].hash, one[0].hash);
  for (auto& plan : kPlans)
    expect_same(expect_reference(files, r, options(plan, "bf16"), kBf16), bf16, name + " bf16 " + plan);
  for (auto& other : same_models) {
    io::ModelFiles same(other);
    expect_same(expect_reference(same, r, options("1"), kF32), one, other);
    expect_same(expect_reference(same, r, options("4"), kF32), one, other);
    expect_same(expect_reference(same, r, options("2", "bf16"), kBf16), bf16, other);
  }
}

TEST(SmallModels, llama) {
  io::TempFolder t;
  const json r = reference("llama_small.json");
  RandomModel m(r.at("config"));
  write_hf(m, t / "hf");
  write_hf(m, t / "shards", {.max_shard_bytes = 100'000});
  ASSERT_TRUE(fs::exists(t / "shards/model.safetensors.index.json"));
  write_hf(m, t / "bare", {.without_prefix = true});
  write_gguf(m, t / "model.gguf");
  check_model("llama", r, t / "hf", {t / "shards", t / "bare", t / "model.gguf"});
}

TEST(SmallModels, gpt2) {
  io::TempFolder t;
  const json r = reference("gpt2_small.json");
  RandomModel m(r.at("config"));
  write_hf(m, t / "hf");
  write_hf(m, t / "shards", {.max_shard_bytes = 60'000});
  ASSERT_TRUE(fs::exists(t / "shards/model.safetensors.index.json"));
  write_hf(m, t / "published", {.without_prefix = true, .masks = true});
  write_gguf(m, t / "model.gguf");
  check_model("gpt2", r, t / "hf", {t / "shards", t / "published", t / "model.gguf"});
}

TEST(SmallModels, gemma3) {
  io::TempFolder t;
  const json r = reference("gemma3_small.json");
  RandomModel m(r.at("config"));
  write_hf(m, t / "hf");
  write_hf(m, t / "bare", {.without_prefix = true});
  write_gguf(m, t / "model.gguf");
  check_model("gemma3", r, t / "hf", {t / "bare", t / "model.gguf"});
}

// One KV head for all ranks, as the smallest Gemma has it.
TEST(SmallModels, gemma3_with_one_kv_head) {
  io::TempFolder t;
  json config = reference("gemma3_small.json").at("config");
  config.update({{"num_attention_heads", 4}, {"num_key_value_heads", 1}, {"head_dim", 16}, {"hidden_size", 48}});
  write_hf(RandomModel(config), t / "hf");
  io::ModelFiles files(t / "hf");
  const RunRequest q{.prompt = some_tokens(30, 257), .greedy = 8};
  for (std::string dtype : {"f32", "bf16"}) {
    const Outcome one = run(files, options("1", dtype), q);
    for (std::string plan : {"2", "3", "4", "3,1", "2x2", "2s", "4s"})
      expect_same({run(files, options(plan, dtype), q)}, {one}, dtype + " " + plan);
  }
}

// Heads wider than D / N, biases, Llama 3's rope scaling, an output matrix of its own.
TEST(SmallModels, llama_options) {
  io::TempFolder t;
  const json r = reference("llama_options.json");
  write_hf(RandomModel(r.at("config")), t / "hf");
  check_model("options", r, t / "hf", {});
}

// A GGUF keeps the factors of rope scaling, not its settings; those of the published Llama 3 models are recognised.
TEST(SmallModels, llama_options_as_gguf) {
  io::TempFolder t;
  json config = reference("llama_options.json").at("config");
  write_gguf(RandomModel(config), t / "unpublished.gguf");
  io::expect_bad_file([&] { make_serving_plan(io::ModelFiles(t / "unpublished.gguf"), options("2")); },
                      "unpublished.gguf", "rope_scaling");
  config["rope_theta"] = 500000.0;
  config["rope_scaling"]["original_max_position_embeddings"] = 8192;
  RandomModel m(config);
  write_hf(m, t / "hf");
  write_gguf(m, t / "model.gguf");
  const RunRequest q{.prompt = ids(reference("llama_options.json")["sequences"][0]["tokens"]), .greedy = 8};
  for (std::string plan : {"1", "4", "3,1"}) {
    const Outcome hf = run(io::ModelFiles(t / "hf"), options(plan), q);
    expect_same({run(io::ModelFiles(t / "model.gguf"), options(plan), q)}, {hf}, "gguf " + plan);
  }
}

TEST(SmallModels, more_ranks_than_heads) {
  io::TempFolder t;
  write_hf(RandomModel(reference("llama_small.json").at("config")), t / "hf");
  io::ModelFiles files(t / "hf");
  try {
    make_serving_plan(files, options("10"));
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::usage);
    EXPECT_THAT(e.what(), testing::HasSubstr("the largest useful degree is 9"));
    EXPECT_THAT(e.what(), testing::HasSubstr("9 query heads"));
  }
}

// How a prompt is fed changes nothing: one by one, in sevens, at once; by one thread or two; again.
TEST(SmallModels, chunks_threads_and_reruns) {
  io::TempFolder t;
  const json r = reference("llama_small.json");
  write_hf(RandomModel(r.at("config")), t / "hf");
  io::ModelFiles files(t / "hf");
  for (std::string dtype : {"f32", "bf16"}) {
    RunRequest q{.prompt = ids(r["sequences"][0]["tokens"]), .greedy = 4, .all_rows = false};
    const Outcome at_once = run(files, options("1", dtype), q);
    for (std::string plan : {"1", "3", "2s"})
      for (auto& chunks : {std::vector<i64>{1}, {7}, {16, 1, 3}, {}})
        for (i64 threads : {1, 2}) {
          q.chunks = chunks;
          expect_same({run(files, options(plan, dtype), q, {.threads = threads})}, {at_once},
                      fmt::format("{} plan {} chunks {} threads {}", dtype, plan, fmt::join(chunks, " "), threads));
        }
  }
}

// Reference kernels in row-major memory are the same numbers.
TEST(SmallModels, reference_kernels) {
  io::TempFolder t;
  for (std::string name : {"llama_small.json", "gpt2_small.json", "gemma3_small.json"}) {
    const json r = reference(name);
    write_hf(RandomModel(r.at("config")), t / name);
    io::ModelFiles files(t / name);
    for (std::string dtype : {"f32", "bf16"}) {
      const RunRequest q{.prompt = ids(r["sequences"][1]["tokens"]), .greedy = 4};
      ServingOptions slow = options("2", dtype);
      slow.reference = true;
      const Outcome a = run(files, slow, q), b = run(files, options("1", dtype), q);
      EXPECT_EQ(a.hash, b.hash) << name << " " << dtype;
      EXPECT_EQ(a.greedy, b.greedy);
    }
  }
}

}  // namespace
}  // namespace plait::serve
