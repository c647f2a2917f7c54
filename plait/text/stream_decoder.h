// Token ids to text, piece by piece, for output while a model generates.
//
// Every piece is valid UTF-8 and ends on a character: bytes of an unfinished character wait for the next token; bytes
// that cannot be part of one become U+FFFD. The pieces, joined, are valid_utf8(decode(all ids)).
#pragma once
#include <string>

#include "plait/text/tokenizer.h"

namespace plait::text {

class StreamDecoder {
 public:
  struct Options {
    bool skip_special = true;
    /// The ids begin a text, so that SentencePiece's first space is dropped; false where they go on after a prompt.
    bool begins_text = true;
  };

  /// The tokenizer must outlive the decoder.
  explicit StreamDecoder(const Tokenizer& tokenizer) : StreamDecoder(tokenizer, Options{}) {}
  StreamDecoder(const Tokenizer& tokenizer, Options options);

  /// The text that this token completes; may be empty.
  ///   errors  usage: an id outside the vocabulary
  std::string push(i64 id);
  /// The end: U+FFFD for a character that stayed unfinished, else nothing. The decoder can then start anew.
  std::string finish();

 private:
  const Tokenizer& tokenizer_;
  Options options_;
  bool strip_;           // a space that comes next is dropped
  std::string waiting_;  // bytes of an unfinished character
};

}  // namespace plait::text
