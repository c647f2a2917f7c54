// 2,000 random strings through five tokenizers, against Hugging Face's `tokenizers`
// (scripts/oracles/text_random.py wrote testdata/random_expected.txt and has the same generator).
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "plait/text/from_gguf.h"
#include "plait/text/random_strings.h"
#include "plait/text/stream_decoder.h"
#include "plait/text/test_files.h"
#include "plait/text/tokenizer.h"
#include "plait/text/tokenizer_json.h"

namespace plait::text {
namespace {

std::uint32_t hash_of(const std::vector<i64>& special, const std::vector<i64>& plain, const std::string& decoded) {
  std::string data;
  auto put = [&](const std::vector<i64>& ids) {
    for (i64 id : ids)
      for (int k = 0; k < 4; k++) data += static_cast<char>(id >> (8 * k));
    data += '|';
  };
  put(special);
  put(plain);
  const u64 h = stream_of(data + decoded);
  return static_cast<std::uint32_t>(h ^ (h >> 32));
}

// A tokenizer.json made of Qwen2's vocab.json and merges.txt, with merges as pairs.
std::string qwen2_json() {
  using nlohmann::json;
  json vocab = json::parse(read_text(shared_file("tokenizers/qwen2/vocab.json")));
  json merges = json::array();
  std::istringstream lines(read_text(shared_file("tokenizers/qwen2/merges.txt")));
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line.starts_with("#version")) continue;
    const size_t space = line.find(' ');
    merges.push_back({line.substr(0, space), line.substr(space + 1)});
  }
  json added = json::array();
  i64 id = static_cast<i64>(vocab.size());
  for (const char* s : {"<|endoftext|>", "<|im_start|>", "<|im_end|>"})
    added.push_back({{"id", id++}, {"content", s}, {"special", true}, {"normalized", false}});
  const char* pattern =
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  json split = {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}};
  json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  json root = {{"added_tokens", added},
               {"normalizer", {{"type", "NFC"}}},
               {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", {split, bytes}}}},
               {"post_processor", bytes},
               {"decoder", {{"type", "ByteLevel"}}},
               {"model", {{"type", "BPE"}, {"vocab", std::move(vocab)}, {"merges", std::move(merges)}}}};
  return root.dump();
}

class RandomStrings : public testing::TestWithParam<const char*> {};

TEST_P(RandomStrings, AgreeWithHuggingFace) {
  const std::string name = GetParam();
  const std::string path = name == "smollm2" ? model_file()
                           : name == "qwen2" ? shared_file("tokenizers/qwen2/vocab.json")
                                             : shared_file("tokenizers/" + name + "/tokenizer.json");
  PLAIT_NEED_FILE(path);
  const Vocabulary v = name == "smollm2" ? vocabulary_from_gguf(io::GgufFile(path))
                       : name == "qwen2" ? vocabulary_from_tokenizer_json(qwen2_json(), "")
                                         : vocabulary_from_tokenizer_json(read_text(path), "", path);
  const Tokenizer t = Tokenizer::from(v);

  std::ifstream expected("plait/text/testdata/random_expected.txt");
  std::string word;
  i64 count = 0;
  while (expected >> word && word != name) {}
  ASSERT_TRUE(expected >> count) << "no hashes for " << name;
  ASSERT_EQ(count, 2000);
  i64 wrong = 0;
  for (i64 n = 0; n < count && wrong < 5; n++) {
    const std::string text = random_string(n);
    const auto special = t.encode(text, {.parse_special = true});
    const auto plain = t.encode(text);
    const std::string decoded = t.decode(special, false);
    expected >> word;
    const auto got = hash_of(special, plain, valid_utf8(decoded));
    EXPECT_EQ(fmt::format("{:08x}", got), word) << "string " << n << ": " << text;
    wrong += fmt::format("{:08x}", got) != word;

    StreamDecoder stream(t, {.skip_special = false});
    std::string streamed;
    for (i64 id : special) {
      const std::string piece = stream.push(id);
      ASSERT_TRUE(is_utf8(piece));
      streamed += piece;
    }
    EXPECT_EQ(streamed + stream.finish(), valid_utf8(decoded)) << "string " << n;
    const bool has_meta = text.find("▁") != std::string::npos;  // the model writes a space like that
    if (name == "gpt2" || (name == "llama2" && !has_meta)) { ASSERT_EQ(t.decode(plain), text) << "string " << n; }
  }
}
INSTANTIATE_TEST_SUITE_P(Models, RandomStrings, testing::Values("smollm2", "gpt2", "llama2", "gpt-neox", "qwen2"),
                         [](const auto& p) {
                           std::string s = p.param;
                           std::erase(s, '-');
                           return s;
                         });

}  // namespace
}  // namespace plait::text
