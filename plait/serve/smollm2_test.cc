// SmolLM2-135M-Instruct as it is published: against transformers on the same dequantized weights, and every layout
// against one rank, bit by bit. With PLAIT_LONG=1 every degree in every type writes its tokens one by one.
#include "plait/serve/test_models.h"
#include "plait/serve/verify.h"
#include "plait/text/from_gguf.h"
#include "plait/text/tokenizer.h"

namespace plait::serve {
namespace {

const std::vector<std::string> kEveryPlan{"2", "3", "4", "5", "6", "7", "8", "9", "3,1"};

ServingOptions options(const std::string& plan, const std::string& dtype) {
  ServingOptions o;
  o.plan = plan_named(plan);
  o.dtype = dtype;
  o.context = 512;
  return o;
}

std::vector<i64> prompt() { return reference("smollm2.json").at("tokens").get<std::vector<i64>>(); }

void expect_same(const Outcome& a, const Outcome& b, const std::string& what) {
  EXPECT_EQ(a.hash, b.hash) << what << ": logits";
  EXPECT_EQ(a.cache, b.cache) << what << ": KV cache";
  EXPECT_EQ(a.greedy, b.greedy) << what;
}

TEST(SmolLM2, logits_and_text_of_transformers) {
  NEED_SMOLLM2(path);
  const json r = reference("smollm2.json");
  io::ModelFiles files(path);
  auto tokenizer = text::Tokenizer::from(text::vocabulary_from_gguf(*files.gguf()));
  EXPECT_EQ(tokenizer.encode(r.at("text").get<std::string>(), {.add_special = true, .parse_special = false}), prompt());
  const auto want = r.at("greedy").get<std::vector<i64>>();
  const Outcome out = run(files, options("1", "f32"), {.prompt = prompt(), .greedy = static_cast<i64>(want.size())});
  double worst = 0;
  for (auto& row : r.at("rows")) {
    const Values& logits = out.logits.at(row.at("row").get<size_t>());
    const auto at = row.at("ids").get<std::vector<size_t>>();
    const auto numbers = row.at("logits").get<Values>();
    const double most = row.at("max_abs");
    ASSERT_GE(at.size(), 500u);
    for (size_t i = 0; i < at.size(); i++)
      worst =
          std::max(worst, std::fabs(static_cast<double>(logits.at(at[i])) - static_cast<double>(numbers[i])) / most);
    EXPECT_EQ(std::max_element(logits.begin(), logits.end()) - logits.begin(), row.at("ids")[0].get<i64>());
  }
  RecordProperty("worst", fmt::format("{:.2e}", worst));
  EXPECT_LE(worst, 1e-5);
  EXPECT_EQ(out.greedy, want);
  EXPECT_EQ(tokenizer.decode(out.greedy), r.at("greedy_text").get<std::string>());
}

// One rank writes 128 tokens. Every layout is then given the prompt and these tokens at once: its logits, row by row,
// have the bits of those that one rank wrote from one token at a time, and so would write the same text.
void check_layouts(const std::string& dtype, const std::vector<std::string>& plans,
                   const std::vector<std::string>& writing) {
  NEED_SMOLLM2(path);
  io::ModelFiles files(path);
  constexpr i64 kTokens = 128;
  const Outcome one = run(files, options("1", dtype), {.prompt = prompt(), .greedy = kTokens});
  RunRequest all{.prompt = prompt()};
  all.prompt.insert(all.prompt.end(), one.greedy.begin(), one.greedy.end() - 1);
  for (auto& plan : plans) {
    const Outcome out = run(files, options(plan, dtype), all);
    EXPECT_EQ(out.hash, one.hash) << dtype << " " << plan << ": logits";
    EXPECT_EQ(out.cache, one.cache) << dtype << " " << plan << ": KV cache";
    ASSERT_EQ(out.logits.size(), all.prompt.size());
    for (i64 t = 0; t < kTokens; t++) {
      const Values& l = out.logits[prompt().size() - 1 + static_cast<size_t>(t)];
      ASSERT_EQ(std::max_element(l.begin(), l.end()) - l.begin(), one.greedy[static_cast<size_t>(t)])
          << dtype << " " << plan << " token " << t;
    }
  }
  for (auto& plan : writing)
    expect_same(run(files, options(plan, dtype), {.prompt = prompt(), .greedy = kTokens}), one, dtype + " " + plan);
}

std::vector<std::string> short_or_all(std::vector<std::string> few) { return long_run() ? kEveryPlan : few; }

TEST(SmolLM2, every_layout_f32) { check_layouts("f32", kEveryPlan, short_or_all({"2"})); }
TEST(SmolLM2, every_layout_bf16) { check_layouts("bf16", short_or_all({"2", "7", "9"}), short_or_all({"5"})); }
TEST(SmolLM2, every_layout_blocks) { check_layouts("auto", short_or_all({"3", "4", "8"}), short_or_all({"3,1"})); }
TEST(SmolLM2, nested_axes_and_sequence_parallel) {
  const std::vector<std::string> all{"2x2", "3x3", "2s", "3s", "5s"};
  for (auto& [dtype, few] : {std::pair{"auto", "2x2"}, {"bf16", "3s"}, {"f32", "2s"}})
    check_layouts(dtype, long_run() ? all : std::vector<std::string>{few}, {});
}

// What `plait verify` says: every value of every layer.
TEST(SmolLM2, verify) {
  NEED_SMOLLM2(path);
  io::ModelFiles files(path);
  VerifyRequest q{prompt(), long_run() ? 8 : 3};
  if (!long_run()) q.prompt.resize(12);
  using Case = std::pair<std::string, std::vector<std::string>>;
  for (auto& [dtype, few] : {Case{"f32", {"2"}}, Case{"bf16", {"7"}}, Case{"auto", {"4", "3,1"}}})
    for (auto& plan : short_or_all(few)) {
      const VerifyResult r = verify(files, options(plan, dtype), {.threads = 1}, q);
      EXPECT_TRUE(r.same) << dtype << " " << plan << ": " << (r.first ? r.first->label + " " + r.first->where : "");
      EXPECT_EQ(r.tokens, r.oracle_tokens);
      EXPECT_EQ(r.logits_hash, r.oracle_logits_hash);
      EXPECT_EQ(r.cache_different, 0);
      EXPECT_GT(r.cache_compared, 0);
      EXPECT_GE(r.rows.size(), 30u * 10);
      EXPECT_EQ(r.weights_different, 0);
      EXPECT_GT(r.weights_compared, 0);
    }
}

// How a prompt is fed, by how many threads, and how often, changes nothing.
TEST(SmolLM2, chunks_threads_and_reruns) {
  NEED_SMOLLM2(path);
  io::ModelFiles files(path);
  for (std::string dtype : {"auto", "bf16", "f32"}) {
    RunRequest q{.prompt = prompt(), .greedy = 2, .all_rows = false};
    const Outcome one = run(files, options("1", dtype), q);
    expect_same(run(files, options("1", dtype), q), one, dtype + " again");
    struct Case {
      const char* plan;
      std::vector<i64> chunks;
      i64 threads;
    };
    std::vector<Case> cases{{"1", {7}, 2}, {"2", {1}, 1}, {"3", {}, 2}};
    if (long_run()) cases.insert(cases.end(), {{"1", {1}, 1}, {"2", {7}, 2}, {"9", {1}, 1}, {"3,1", {7}, 1}});
    for (auto& c : cases) {
      q.chunks = c.chunks;
      expect_same(run(files, options(c.plan, dtype), q, {.threads = c.threads}), one,
                  fmt::format("{} plan {} chunks {} threads {}", dtype, c.plan, fmt::join(c.chunks, " "), c.threads));
    }
  }
}

}  // namespace
}  // namespace plait::serve
