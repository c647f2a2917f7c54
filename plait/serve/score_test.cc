// Perplexities against transformers, and the same bits under every layout.
#include "plait/serve/score.h"

#include "plait/serve/test_models.h"
#include "plait/text/from_gguf.h"
#include "plait/text/tokenizer.h"

namespace plait::serve {
namespace {

Scored scored(const io::ModelFiles& files, ServingOptions o, const ScoreRequest& q, i64 threads = 1) {
  o.context = q.window;
  Engine engine(files, make_serving_plan(files, o), {.threads = threads});
  Scored out;
  i64 windows = 0;
  engine.run([&](Session& s) {
    const Scored x = score(s, q, [&](const Scored&) { windows++; });
    if (s.rank() == 0) out = x;
  });
  EXPECT_EQ(windows, out.windows);
  return out;
}

ServingOptions options(const std::string& plan, const std::string& dtype, i64 chunk, i64 rows) {
  ServingOptions o;
  o.plan = plan_named(plan);
  o.dtype = dtype;
  o.prefill_chunk = chunk;
  o.logit_rows = rows;
  return o;
}

ScoreRequest request_of(const json& r, std::vector<i64> tokens) {
  ScoreRequest q{std::move(tokens), {}, r.at("window"), r.at("stride")};
  if (!r.at("bos").is_null()) q.bos = r.at("bos").get<i64>();
  return q;
}

TEST(Score, OfTransformers) {
  io::TempFolder t;
  const json all = reference("score.json");
  for (std::string name : {"llama_small", "gemma3_small"}) {
    write_hf(RandomModel(reference(name + ".json").at("config")), t / name);
    io::ModelFiles files(t / name);
    for (auto& r : all.at(name).at("scores")) {
      const ScoreRequest q = request_of(r, all.at(name).at("ids").get<std::vector<i64>>());
      const Scored one = scored(files, options("1", "f32", 512, 512), q);
      const double want = r.at("nats");
      EXPECT_EQ(one.tokens, r.at("tokens").get<i64>());
      EXPECT_NEAR(one.nats, want, 1e-5 * want) << name << r.dump();
      for (auto& o : {options("3", "f32", 512, 512), options("1", "f32", 16, 5), options("2s", "f32", 7, 7)}) {
        const Scored x = scored(files, o, q, 2);
        EXPECT_EQ(x.nats, one.nats) << name << r.dump();
        EXPECT_EQ(x.tokens, one.tokens);
      }
      EXPECT_NEAR(scored(files, options("2", "bf16", 512, 64), q).nats, want, 5e-3 * want);
    }
  }
}

TEST(Score, SmolLM2OnWikitext) {
  NEED_SMOLLM2(path);
  NEED_SHARED(text, "text/wikitext-2.valid.txt");
  const json r = reference("score.json").at("smollm2");
  io::ModelFiles files(path);
  auto tokenizer = text::Tokenizer::from(text::vocabulary_from_gguf(*files.gguf()));
  const std::string start = io::read_file(text).substr(0, r.at("bytes").get<size_t>());
  const ScoreRequest q = request_of(r.at("scores")[0], tokenizer.encode(start));
  const double want = r.at("scores")[0].at("nats");
  const i64 tokens = r.at("scores")[0].at("tokens");
  // A perplexity is exp(nats / tokens): this share of it.
  auto expect_within = [&](const std::string& dtype, double share) {
    const Scored x = scored(files, options("2", dtype, 512, 256), q);
    EXPECT_EQ(x.tokens, tokens);
    EXPECT_NEAR(x.nats, want, share * static_cast<double>(tokens)) << dtype;
    RecordProperty(dtype, fmt::format("{:.3e}", (x.nats - want) / static_cast<double>(tokens)));
  };
  expect_within("f32", 1e-5);
  expect_within("bf16", 5e-3);
  expect_within("auto", 1e-2);
}

TEST(Score, SaysWhatIsWrong) {
  io::TempFolder t;
  write_hf(RandomModel(reference("llama_small.json").at("config")), t / "hf");
  io::ModelFiles files(t / "hf");
  auto why = [&](ScoreRequest q) {
    ServingOptions o = options("2", "f32", 512, 16);
    o.context = 64;
    Engine engine(files, make_serving_plan(files, o), {.threads = 1});
    return text_of_error(Code::usage, [&] { engine.run([&](Session& s) { score(s, q); }); });
  };
  const std::vector<i64> ids = some_tokens(100, 257);
  EXPECT_THAT(why({ids, {}, 65, 8}), testing::HasSubstr("window of 65 tokens: want 2 to the context of 64"));
  EXPECT_THAT(why({ids, {}, 1, 1}), testing::HasSubstr("window of 1"));
  EXPECT_THAT(why({ids, {}, 64, 65}), testing::HasSubstr("stride of 65 tokens: want 1 to 64"));
  EXPECT_THAT(why({ids, 2, 64, 64}), testing::HasSubstr("want 1 to 63"));
  EXPECT_THAT(why({ids, {}, 64, 0}), testing::HasSubstr("stride of 0"));
  EXPECT_THAT(why({{5}, {}, 64, 32}), testing::HasSubstr("text of 1 tokens: nothing to score"));
}

}  // namespace
}  // namespace plait::serve
