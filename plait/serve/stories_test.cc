// stories260K writes its published text, word for word, on any number of ranks.
#include <algorithm>

#include "plait/serve/test_models.h"
#include "plait/text/from_gguf.h"
#include "plait/text/stream_decoder.h"
#include "plait/text/tokenizer.h"

namespace plait::serve {
namespace {

/// The text that stories260K.md shows after its command with `-t 0.0`.
std::string published(const std::string& path) {
  const std::string page = io::read_file(path), mark = "-t 0.0\n";
  const auto begin = page.find(mark);
  if (begin == std::string::npos) return "";
  const auto at = begin + mark.size();
  return page.substr(at, page.find("\n```", at) - at);
}

TEST(Stories260K, published_text) {
  NEED_SHARED(path, "models/stories260K/stories260K.gguf");
  NEED_SHARED(page, "models/stories260K/stories260K.md");
  const std::string want = published(page);
  ASSERT_GT(want.size(), 500u);
  const json r = reference("stories260k.json");
  const auto tokens = r.at("tokens").get<std::vector<i64>>();
  io::ModelFiles files(path);
  auto tokenizer = text::Tokenizer::from(text::vocabulary_from_gguf(*files.gguf()));
  // An empty prompt is BOS alone.
  const auto prompt = tokenizer.encode("", {.add_special = true, .parse_special = false});
  EXPECT_EQ(prompt, r.at("prompt").get<std::vector<i64>>());

  Outcome one;
  for (std::string plan : {"1", "2", "3", "4", "5", "6", "7", "8", "3,1", "2x2", "4s"}) {
    ServingOptions o;
    o.plan = plan_named(plan);
    const Outcome out = run(files, o, {.prompt = prompt, .greedy = static_cast<i64>(tokens.size())});
    EXPECT_EQ(out.greedy, tokens) << plan;
    text::StreamDecoder decoder(tokenizer, {.skip_special = true, .begins_text = true});
    std::string text;
    for (i64 id : out.greedy) text += decoder.push(id);
    text += decoder.finish();
    EXPECT_EQ(text, want) << plan;
    if (plan == "1") one = out;
    EXPECT_EQ(out.hash, one.hash) << plan;
    EXPECT_EQ(out.cache, one.cache) << plan;
  }
}

TEST(Stories260K, reference_kernels_have_the_same_bits) {
  NEED_SHARED(path, "models/stories260K/stories260K.gguf");
  io::ModelFiles files(path);
  ServingOptions o;
  const RunRequest q{.prompt = {1}, .greedy = 140};
  const Outcome fast = run(files, o, q);
  o.reference = true;
  o.plan = plan_named("3");
  EXPECT_EQ(run(files, o, q).hash, fast.hash);
}

}  // namespace
}  // namespace plait::serve
