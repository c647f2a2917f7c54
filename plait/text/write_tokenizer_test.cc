// Vocabularies written in the other format cut texts into the same ids.
#include "plait/text/write_tokenizer.h"

#include <gtest/gtest.h>

#include <sstream>

#include "plait/io/test_support.h"
#include "plait/text/from_gguf.h"
#include "plait/text/small_tokenizers.h"
#include "plait/text/test_files.h"
#include "plait/text/tokenizer.h"
#include "plait/text/tokenizer_json.h"

namespace plait::text {
namespace {

Vocabulary through_gguf(const Vocabulary& v, i64 num_tokens) {
  io::GgufWriter w;
  write_tokenizer(v, num_tokens, w);
  const io::TempFolder folder;
  const std::string path = folder / "v.gguf";
  w.write(path);
  return vocabulary_from_gguf(io::GgufFile(path));
}

Vocabulary through_json(const Vocabulary& v) {
  const TokenizerFiles files = tokenizer_files(v, 512);
  return vocabulary_from_tokenizer_json(files.tokenizer, files.config);
}

const char* const kTexts[] = {"",
                              "a",
                              "abc ab a",
                              " a  b\n",
                              "caf\xC3\xA9 abab",
                              "ab<end>ab",
                              "<s>a</s>",
                              "ab<tool>c",
                              "aaa bab",
                              "\xE2\x96\x81"
                              "ab"};

void expect_same(const Vocabulary& a, const Vocabulary& b) {
  EXPECT_EQ(a.bos, b.bos);
  EXPECT_EQ(a.eos, b.eos);
  EXPECT_EQ(a.chat_template, b.chat_template);
  const Tokenizer x = Tokenizer::from(a), y = Tokenizer::from(b);
  for (const char* text : kTexts)
    for (bool special : {false, true}) {
      const auto ids = x.encode(text, {.add_special = special, .parse_special = special});
      EXPECT_EQ(y.encode(text, {.add_special = special, .parse_special = special}), ids) << text;
      EXPECT_EQ(y.decode(ids), x.decode(ids)) << text;
    }
}

TEST(WriteTokenizer, ByteLevelBothWays) {
  Vocabulary v = vocabulary_from_tokenizer_json(
      byte_level_json().dump(), R"({"bos_token": "<end>", "eos_token": "<end>", "chat_template": "{{ bos_token }}x"})");
  expect_same(v, through_json(v));
  const Vocabulary gguf = through_gguf(v, 14);
  expect_same(v, gguf);
  ASSERT_EQ(gguf.tokens.size(), 14u);  // as many as the embedding has rows
  EXPECT_EQ(gguf.tokens[13], "[PAD13]");
  EXPECT_EQ(gguf.types[13], TokenType::unused);
  expect_same(v, through_json(gguf));
  EXPECT_THROW(through_gguf(v, 10), Error);
}

TEST(WriteTokenizer, SentencePieceBothWays) {
  const Vocabulary v =
      vocabulary_from_tokenizer_json(llama_json().dump(), R"({"bos_token": "<s>", "eos_token": "</s>"})");
  expect_same(v, through_json(v));
  const Vocabulary gguf = through_gguf(v, static_cast<i64>(v.tokens.size()));
  EXPECT_EQ(gguf.order, Vocabulary::Order::scores);
  expect_same(v, gguf);
  expect_same(v, through_json(gguf));
}

TEST(WriteTokenizer, PreTokenizersByName) {
  for (const char* name : {"gpt-2", "smollm", "llama-bpe", "qwen2", "deepseek-coder", "default"})
    EXPECT_EQ(name_of_splits(*splits_of_name(name)), name);
  Vocabulary v = vocabulary_from_tokenizer_json(byte_level_json().dump(), "");
  v.splits = {{.kind = SplitStep::Kind::pattern, .text = "x+"}};
  try {
    through_gguf(v, 20);
    ADD_FAILURE() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::usage);
    EXPECT_NE(std::string(e.what()).find("no name for"), std::string::npos) << e.what();
  }
  // The same list in the words of tokenizer.json: every number by itself, then GPT-2's pattern.
  v.splits = {{.kind = SplitStep::Kind::pattern, .text = R"(\p{N})"},
              {.kind = SplitStep::Kind::pattern, .text = kGpt2Pattern}};
  EXPECT_EQ(name_of_splits(v.splits), "smollm");
}

// Published vocabularies, with the ids that llama.cpp gives.
class Published : public testing::TestWithParam<const char*> {};

TEST_P(Published, CasesOfLlamaCppThroughTokenizerJson) {
  const std::string path = shared_file("tokenizers/llama.cpp-vocab/ggml-vocab-") + GetParam() + ".gguf";
  PLAIT_NEED_FILE(path);
  const Vocabulary v = vocabulary_from_gguf(io::GgufFile(path));
  const Tokenizer there = Tokenizer::from(through_json(v)),
                  back = Tokenizer::from(through_gguf(through_json(v), static_cast<i64>(v.tokens.size())));
  std::string input = read_text(shared_file("tokenizers/llama.cpp-vocab/ALL.gguf.inp"));
  std::istringstream expected(read_text(path + ".out"));
  const std::string mark = "\n__ggml_vocab_test__\n";
  i64 cases = 0;
  for (std::string line; std::getline(expected, line); cases++) {
    const size_t end = input.find(mark);
    ASSERT_TRUE(end != std::string::npos) << "case " << cases;
    const std::string text = input.substr(0, end);
    input.erase(0, end + mark.size());
    std::vector<i64> want;
    std::istringstream ids(line);
    for (i64 id; ids >> id;) want.push_back(id);
    EXPECT_EQ(there.encode(text), want) << "case " << cases << ": " << text;
    EXPECT_EQ(back.encode(text), want) << "case " << cases << ": " << text;
    EXPECT_EQ(there.decode(want), text);
  }
  EXPECT_GE(cases, 40);
}
INSTANTIATE_TEST_SUITE_P(Files, Published, testing::Values("gpt-2", "llama-spm", "deepseek-coder"));

}  // namespace
}  // namespace plait::text
