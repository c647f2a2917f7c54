// Reads Hugging Face's tokenizer files: `tokenizer.json` and, beside it, `tokenizer_config.json`.
//
// Read: models of type BPE (byte-level, or of characters with byte fallback); normalizers Sequence, Prepend, Replace of
// a text, NFC, NFD, NFKC, NFKD; pre-tokenizers Sequence, ByteLevel, Digits, Split, Metaspace; post-processors Sequence,
// ByteLevel, TemplateProcessing; decoders Sequence, ByteLevel, ByteFallback, Fuse, Replace, Strip, Metaspace.
// Everything else is an error that names it: a tokenizer that is nearly right is worse than none.
#pragma once
#include <string>
#include <string_view>

#include "plait/text/vocabulary.h"

namespace plait::text {

/// From the texts of the files; `config` may be empty (then no bos, eos and chat template are known).
///   errors  bad_file: not JSON, a missing or wrong key, an unknown component, an id out of range, a merge of unknown
///           tokens; `source` names the file
Vocabulary vocabulary_from_tokenizer_json(std::string_view tokenizer, std::string_view config,
                                          const std::string& source = "tokenizer.json");

/// From a model folder: tokenizer.json, tokenizer_config.json, chat_template.jinja, and the ids that end a text from
/// generation_config.json. Only the first must be there.
Vocabulary vocabulary_from_folder(const std::string& folder);

}  // namespace plait::text
