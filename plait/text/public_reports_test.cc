// Faults that users of other engines reported (docs/testing.md lists them by case), tried on tokenizers.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "plait/text/chat_template.h"
#include "plait/text/test_files.h"
#include "plait/text/tokenizer_json.h"

namespace plait::text {
namespace {

using nlohmann::json;
using Ids = std::vector<i64>;

/// Every byte of ASCII is its own id where GPT-2's alphabet has it as it is; a space is "Ġ".
json byte_level(bool use_regex) {
  json j = json::parse(R"({
    "added_tokens": [{"id": 300, "content": "<s>", "special": true}, {"id": 301, "content": "</s>", "special": true}],
    "normalizer": null, "post_processor": null, "decoder": {"type": "ByteLevel"},
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
    "model": {"type": "BPE", "vocab": {}, "merges": ["a Ġ", "Ġ b"]}})");
  j["pre_tokenizer"]["use_regex"] = use_regex;
  json& vocab = j["model"]["vocab"];
  for (int c = '!'; c <= '~'; c++) vocab[std::string(1, static_cast<char>(c))] = c;
  vocab["Ġ"] = 32, vocab["aĠ"] = 200, vocab["Ġb"] = 201;
  return j;
}

Tokenizer make(const json& j, const json& config = json::object()) {
  return Tokenizer::from(vocabulary_from_tokenizer_json(j.dump(), config.dump()));
}

TEST(PublicReports, S49_ByteLevelWithoutItsPatternCutsNoWords) {
  EXPECT_EQ(make(byte_level(true)).encode("a b"), (Ids{'a', 201}));
  EXPECT_EQ(make(byte_level(false)).encode("a b"), (Ids{200, 'b'}));  // the first join wins, over the space
  EXPECT_EQ(make(byte_level(false)).encode("a  b"), (Ids{200, 201}));
  EXPECT_EQ(make(byte_level(true)).encode("a  b"), (Ids{'a', 32, 201}));
}

// The template writes BOS, or the tokenizer does, or both, or none of them.
TEST(PublicReports, S51_AConversationBeginsWithOneBos) {
  const json around = json::parse(R"({"type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
    "special_tokens": {"<s>": {"id": "<s>", "ids": [300], "tokens": ["<s>"]}}})");
  for (bool by_template : {false, true})
    for (bool by_tokenizer : {false, true}) {
      json j = byte_level(true);
      if (by_tokenizer) j["post_processor"] = around;
      const Tokenizer t = make(j, {{"bos_token", "<s>"},
                                   {"eos_token", "</s>"},
                                   {"chat_template", std::string(by_template ? "{{ bos_token }}" : "") +
                                                         "{% for m in messages %}{{ m.content }}{% endfor %}"}});
      EXPECT_EQ(encode_chat(t, {{"user", "hi"}}), by_template || by_tokenizer ? (Ids{300, 'h', 'i'}) : (Ids{'h', 'i'}));
      EXPECT_EQ(t.encode("hi", {.add_special = true}), by_tokenizer ? (Ids{300, 'h', 'i'}) : (Ids{'h', 'i'}));
    }
}

TEST(PublicReports, S52_EndsOfAllFilesCount) {
  const auto dir = std::filesystem::temp_directory_path() / ("plait-ends-" + std::to_string(::getpid()));
  std::filesystem::create_directories(dir);
  auto write = [&](const char* name, const json& j) { std::ofstream(dir / name) << j.dump(); };
  write("tokenizer.json", byte_level(true));
  write("tokenizer_config.json", {{"eos_token", "</s>"}});
  write("config.json", {{"eos_token_id", {33, 106}}});
  write("generation_config.json", {{"eos_token_id", 107}});
  const Tokenizer t = Tokenizer::from(vocabulary_from_folder(dir.string()));
  for (i64 id : {33, 106, 107, 301}) EXPECT_TRUE(t.is_end_of_generation(id)) << id;
  for (i64 id : {34, 105, 300}) EXPECT_FALSE(t.is_end_of_generation(id)) << id;
  for (const json& none : {json(nullptr), json(-1), json(4294967295)}) {
    write("config.json", {{"eos_token_id", none}});
    EXPECT_NO_THROW(Tokenizer::from(vocabulary_from_folder(dir.string()))) << none;
  }
  std::filesystem::remove_all(dir);
}

}  // namespace
}  // namespace plait::text
