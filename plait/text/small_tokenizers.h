// Two tokenizer.json of a few tokens, for tests and fuzzers.
#pragma once
#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace plait::text {

/// A little tokenizer.json: bytes a, b, c, space and the two of "é" in GPT-2's alphabet.
inline nlohmann::json byte_level_json() {
  return nlohmann::json::parse(R"({
    "added_tokens": [{"id": 9, "content": "<end>", "special": true, "normalized": false},
                     {"id": 10, "content": "<tool>", "special": false, "normalized": false}],
    "normalizer": null,
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
    "post_processor": null,
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2, "Ġ": 3, "Ã": 4, "©": 5, "ab": 6, "abc": 7, "Ġa": 8},
              "merges": ["a b", "ab c", "Ġ a"]}})");
}

/// The same in the way of Llama 2.
inline nlohmann::json llama_json() {
  nlohmann::json j = nlohmann::json::parse(R"({
    "added_tokens": [{"id": 0, "content": "<unk>", "special": true}, {"id": 1, "content": "<s>", "special": true},
                     {"id": 2, "content": "</s>", "special": true}],
    "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"},
                   {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
    "pre_tokenizer": null,
    "post_processor": {"type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
      "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}},
    "decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
    "model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": true, "byte_fallback": true,
              "vocab": {"<unk>": 0, "<s>": 1, "</s>": 2}, "merges": [["▁", "a"], ["a", "b"], ["▁a", "b"]]}})");
  nlohmann::json& vocab = j["model"]["vocab"];
  for (int b = 0; b < 256; b++) vocab[fmt::format("<0x{:02X}>", b)] = 3 + b;
  for (const char* s : {"▁", "a", "b", "▁a", "ab", "▁ab"}) vocab[s] = vocab.size();
  return j;
}

}  // namespace plait::text
