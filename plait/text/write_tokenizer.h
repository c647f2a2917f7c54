// A vocabulary as files carry it: the metadata of a GGUF file (from_gguf.h reads it), or tokenizer.json with
// tokenizer_config.json (tokenizer_json.h).
//
// Byte-level vocabularies keep their tokens and merges; the pre-tokenizer goes by its name in GGUF. SentencePiece ones
// have merges in tokenizer.json and scores in GGUF: a token's score is less the later its first merge stands, and the
// merges are all pairs of tokens that make a token, those of the highest score first.
#pragma once
#include <string>

#include "plait/io/gguf_writer.h"
#include "plait/text/vocabulary.h"

namespace plait::text {

/// num_tokens: rows of the embedding; ids beyond the vocabulary become unused tokens.
///   errors  usage: a pre-tokenizer or normalizer that the format has no name for
void write_tokenizer(const Vocabulary& v, i64 num_tokens, io::GgufWriter& w);

struct TokenizerFiles {
  std::string tokenizer, config;  // tokenizer.json, tokenizer_config.json
};
/// max_length: positions of the model
TokenizerFiles tokenizer_files(const Vocabulary& v, i64 max_length);

}  // namespace plait::text
