// Gemma 3 270M as a package carries it: against transformers on the same dequantized weights, ids against llama.cpp,
// and layouts against one rank, bit by bit. Its file mixes block types; the vocabulary of 262,144 words is half of its
// work.
#include "plait/serve/test_models.h"
#include "plait/serve/verify.h"
#include "plait/text/from_gguf.h"
#include "plait/text/tokenizer.h"

namespace plait::serve {
namespace {

#define NEED_GEMMA3(name)                                           \
  const std::string name = model_named("gemma-3-270m-q4_k_m.gguf"); \
  if (!fs::exists(name)) GTEST_SKIP() << name << " is not there: scripts/fetch_model.sh gemma3-270m fetches it"

ServingOptions options(const std::string& plan, const std::string& dtype) {
  ServingOptions o;
  o.plan = plan_named(plan);
  o.dtype = dtype;
  o.context = 768;
  return o;
}

std::vector<i64> tokens_of(const json& j) { return j.get<std::vector<i64>>(); }

/// max |a - b| over the entries of a reference row, by the row's largest.
double apart(const Values& logits, const json& row) {
  const auto at = row.at("ids").get<std::vector<size_t>>();
  const auto numbers = row.at("logits").get<Values>();
  double worst = 0;
  for (size_t i = 0; i < at.size(); i++)
    worst = std::max(worst, std::fabs(static_cast<double>(logits.at(at[i])) - static_cast<double>(numbers[i])));
  EXPECT_EQ(std::max_element(logits.begin(), logits.end()) - logits.begin(), row.at("ids")[0].get<i64>());
  return worst / row.at("max_abs").get<double>();
}

TEST(Gemma3, IdsOfLlamaCpp) {
  NEED_GEMMA3(path);
  const json r = reference("gemma3_270m.json");
  io::ModelFiles files(path);
  auto t = text::Tokenizer::from(text::vocabulary_from_gguf(*files.gguf()));
  EXPECT_EQ(t.encode(r.at("text").get<std::string>(), {.add_special = true}), tokens_of(r.at("tokens")));
  for (auto& c : r.at("encoded")) {
    const auto text = c.at("text").get<std::string>();
    const auto plain = t.encode(text, {.add_special = true, .parse_special = false});
    EXPECT_EQ(plain, tokens_of(c.at("ids"))) << c.at("text");
    EXPECT_EQ(t.encode(text, {.add_special = true, .parse_special = true}), tokens_of(c.at("with_special")))
        << c.at("text");
    if (text.find("\u2581") == std::string::npos) { EXPECT_EQ(t.decode(plain), text); }
  }
  EXPECT_TRUE(t.is_end_of_generation(1));
  EXPECT_TRUE(t.is_end_of_generation(*t.id_of("<end_of_turn>")));
  EXPECT_FALSE(t.is_end_of_generation(2));
}

TEST(Gemma3, LogitsAndTextOfTransformers) {
  NEED_GEMMA3(path);
  const json r = reference("gemma3_270m.json");
  io::ModelFiles files(path);
  const auto prompt = tokens_of(r.at("tokens")), want = tokens_of(r.at("greedy"));
  const Outcome out = run(files, options("2", "f32"), {.prompt = prompt, .greedy = static_cast<i64>(want.size())});
  for (auto& row : r.at("rows")) EXPECT_LE(apart(out.logits.at(row.at("row").get<size_t>()), row), 1e-4);
  EXPECT_EQ(out.greedy, want);
  auto tokenizer = text::Tokenizer::from(text::vocabulary_from_gguf(*files.gguf()));
  EXPECT_EQ(tokenizer.decode(out.greedy), r.at("greedy_text").get<std::string>());
  // Longer than the window of its local layers.
  std::vector<i64> longer = prompt;
  for (i64 i = 1; i < r.at("repeats").get<i64>(); i++) longer.insert(longer.end(), prompt.begin() + 1, prompt.end());
  const Outcome far = run(files, options("1", "f32"), {.prompt = longer, .all_rows = false}, {.threads = 2});
  EXPECT_LE(apart(far.logits.at(0), r.at("long_rows")[0]), 1e-4);
}

TEST(Gemma3, LayoutsHaveTheSameBits) {
  NEED_GEMMA3(path);
  io::ModelFiles files(path);
  const RunRequest q{.prompt = tokens_of(reference("gemma3_270m.json").at("tokens")), .greedy = 4, .all_rows = false};
  for (auto& [dtype, plans] :
       {std::pair<std::string, std::vector<std::string>>{"auto", {"2", "3", "4"}}, {"bf16", {"4"}}}) {
    const Outcome one = run(files, options("1", dtype), q, {.threads = 2});
    for (auto& plan : plans) {
      const Outcome out = run(files, options(plan, dtype), q);
      EXPECT_EQ(out.hash, one.hash) << dtype << " " << plan;
      EXPECT_EQ(out.cache, one.cache) << dtype << " " << plan;
      EXPECT_EQ(out.greedy, one.greedy) << dtype << " " << plan;
    }
  }
}

TEST(Gemma3, Verify) {
  NEED_GEMMA3(path);
  io::ModelFiles files(path);
  const VerifyResult r =
      verify(files, options("3", "auto"), {.threads = 1}, {tokens_of(reference("gemma3_270m.json").at("tokens")), 2});
  EXPECT_TRUE(r.same) << (r.first ? r.first->label + " " + r.first->where : "");
  EXPECT_EQ(r.weights_different, 0);
}

// Half of a decode step is the vocabulary: cut over the ranks, joined once.
TEST(Gemma3, Collectives) {
  NEED_GEMMA3(path);
  io::ModelFiles files(path);
  const ServingPlan p = make_serving_plan(files, options("4", "f32"));
  std::map<std::string, i64> count;
  for (auto& row : collectives(p, 1)) count[row.op + " " + row.cause] += row.count;
  EXPECT_EQ(
      count,
      (std::map<std::string, i64>{
          {"all_reduce embedding", 1}, {"all_reduce wo", 18}, {"all_reduce down", 18}, {"all_gather output", 1}}));
}

}  // namespace
}  // namespace plait::serve
