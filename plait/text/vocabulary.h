// What a tokenizer is made of, whatever file it came from: tokens, their types, the order of merges, and the steps
// before and after. `tokenizer.json` (tokenizer_json.h) and GGUF metadata (from_gguf.h) both fill it.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plait/base/base.h"
#include "plait/text/split.h"
#include "plait/text/utf8.h"

namespace plait::text {

/// The numbers are those of GGUF's `tokenizer.ggml.token_type`.
enum class TokenType : std::uint8_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };

/// A token that is found in the text before it is cut into words.
struct AddedToken {
  i64 id = 0;
  bool normalized = false;   // looked for after the normalizer, else before
  bool single_word = false;  // only where no word character adjoins
  bool strip_left = false;   // takes the white space before it
  bool strip_right = false;
};

/// A change of the text before it is cut into words.
struct NormalStep {
  enum class Kind { prepend, replace, form };
  Kind kind = Kind::prepend;
  std::string from, to;  // replace: every `from` by `to`; prepend: `to`
  Form form = Form::nfc;
};

/// Two token ids that are joined into the token whose text is theirs.
struct Merge {
  std::uint32_t left, right;
};

struct Vocabulary {
  std::string source;  // the file, for messages

  std::vector<std::string> tokens;  // by id; an id that no token has is empty and `unused`
  std::vector<TokenType> types;     // as many as tokens
  std::vector<AddedToken> added;

  /// bytes: tokens are written in GPT-2's alphabet of 256 characters; code_points: in UTF-8 (SentencePiece).
  enum class Alphabet { bytes, code_points } alphabet = Alphabet::bytes;
  /// merges: the earlier in the list first; scores: any two neighbours that make a token, the highest score first.
  enum class Order { merges, scores } order = Order::merges;
  std::vector<Merge> merges;
  std::vector<float> scores;

  std::vector<NormalStep> normalizer;
  std::vector<SplitStep> splits;
  bool ignore_merges = false;      // a word that is a token is taken whole
  bool byte_fallback = false;      // a character that is no token becomes the tokens <0xNN> of its bytes
  bool fuse_unknown = false;       // unknown neighbours become one unknown token
  std::optional<i64> unknown;      // absent: what no token covers is left out
  bool meta_is_space = false;      // decoding writes U+2581 as a space
  bool strip_first_space = false;  // decoding drops one leading space

  std::vector<i64> prefix, suffix;  // ids put around a text by add_special
  std::optional<i64> bos, eos;
  std::vector<i64> ends;      // further ids that end a generation
  std::string chat_template;  // empty: the file has none
};

constexpr i64 kMaxTokens = i64{1} << 19, kMaxMerges = i64{1} << 20;

/// Text -> id over a list of texts, whose elements must stay where they are. Of equal texts the last counts; empty
/// texts are not entered.
class TextIndex {
 public:
  TextIndex() = default;
  explicit TextIndex(const std::vector<std::string>& texts);
  std::optional<std::uint32_t> find(std::string_view text) const;

 private:
  const std::string* texts_ = nullptr;
  std::vector<std::uint32_t> slots_ = {0};  // id + 1, 0 = free
  u64 mask_ = 0;
};

/// Resolves merges written as "left right".
///   errors  bad_file: not two parts, or a part or their join is no token; names the merge
std::vector<Merge> resolve_merges(const std::vector<std::string_view>& merges, const TextIndex& index,
                                  std::string_view source);
Merge resolve_merge(std::string_view left, std::string_view right, i64 number, const TextIndex& index,
                    std::string_view source);

/// GPT-2's alphabet: the character that stands for a byte, and back (-1: stands for none).
std::int32_t character_of_byte(unsigned char byte);
int byte_of_character(std::int32_t character);

/// "<0x0A>" -> 10; -1 for any other text.
int byte_of_byte_token(std::string_view text);

}  // namespace plait::text
