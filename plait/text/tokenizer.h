// Text to token ids and back: byte-level BPE (GPT-2, SmolLM2, Llama 3, Qwen) and SentencePiece BPE (Llama 2, Mistral).
//
// Method: added tokens are cut out, the rest is normalised and cut into words (split.h), each word is joined by BPE
// (bpe.h). Decoding writes the bytes of each token. A Tokenizer does not change once made; threads may share it.
// Limits: texts up to 1 GiB. Unigram and WordPiece models are refused when a file is read.
#pragma once
#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "plait/text/added_tokens.h"
#include "plait/text/bpe.h"
#include "plait/text/vocabulary.h"

namespace plait::text {

struct EncodeOptions {
  bool add_special = false;    // put the model's prefix and suffix (such as BOS) around
  bool parse_special = false;  // recognise special tokens that stand in the text
};

class Tokenizer {
 public:
  /// errors  bad_file: ids out of range, lists of unequal length, scores that are not numbers, patterns that do not
  ///         compile
  static Tokenizer from(Vocabulary vocabulary);
  Tokenizer(Tokenizer&&) = default;
  Tokenizer& operator=(Tokenizer&&) = default;

  /// Any bytes are taken. Where the model has neither a token nor a fallback for a byte, its unknown token stands, or,
  /// if it has none, the byte is left out (as in the tokenizers this one must agree with).
  ///   errors  usage: more than 1 GiB
  std::vector<i64> encode(std::string_view text, EncodeOptions options = {}) const;

  /// The bytes of the tokens, one after the other: what was encoded, but not always valid UTF-8 (see StreamDecoder).
  ///   errors  usage: an id outside [0, vocab_size)
  std::string decode(std::span<const i64> ids, bool skip_special = true) const;

  /// The bytes that one token stands for, a leading space included.
  std::string_view bytes_of(i64 id) const;
  /// The token as the file writes it.
  const std::string& text_of(i64 id) const;
  std::optional<i64> id_of(std::string_view token) const;

  i64 vocab_size() const { return static_cast<i64>(v_.tokens.size()); }
  std::optional<i64> bos() const { return v_.bos; }
  std::optional<i64> eos() const { return v_.eos; }
  bool is_special(i64 id) const;
  bool is_end_of_generation(i64 id) const;
  /// Decoding a text drops one leading space (SentencePiece).
  bool strips_first_space() const { return v_.strip_first_space; }
  /// The chat template of the file; empty if it has none.
  const std::string& chat_template() const { return v_.chat_template; }

 private:
  explicit Tokenizer(Vocabulary vocabulary);
  void check() const;
  void check_id(i64 id) const;
  void make_pieces();
  void make_symbols();
  void make_joins();
  void make_added();
  void find_boundaries();
  void find_ends();

  std::string normalized(std::string_view text) const;
  void encode_segment(std::string_view text, bool at_start, bool parse_special, struct EncodeState& state) const;
  void encode_piece(std::string_view text, i64 begin, i64 end, struct EncodeState& state) const;
  std::optional<i64> whole_word(std::string_view word) const;
  void encode_word(std::string_view text, i64 begin, i64 end, struct EncodeState& state) const;
  void add_uncovered(std::string_view bytes, struct EncodeState& state) const;

  Vocabulary v_;
  TextIndex index_;
  std::optional<Splitter> splitter_;
  std::string pieces_;                          // bytes of all tokens
  std::vector<std::uint32_t> piece_begin_;      // vocab_size + 1
  std::array<std::uint32_t, 256> byte_symbol_;  // bytes: the token of a byte; code_points: of an ASCII character
  std::unordered_map<std::int32_t, std::uint32_t> character_symbol_;
  std::array<std::uint32_t, 256> byte_token_;  // <0xNN>
  JoinTable joins_;
  bool meta_begins_word_ = false;    // no token has U+2581 after another character: words can be cut there
  AddedTokenFinder before_, after_;  // the normalizer
  std::vector<i64> ends_;            // sorted
};

}  // namespace plait::text
