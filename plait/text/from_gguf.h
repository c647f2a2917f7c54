// The vocabulary that a GGUF file carries in its metadata (`tokenizer.ggml.*`, `tokenizer.chat_template`).
//
// Read: models `gpt2` (byte-level BPE with merges; the pre-tokenizer by its name, see split.h) and `llama`
// (SentencePiece BPE by scores). Others (bert, t5, rwkv) and unknown pre-tokenizers are errors that name them.
#pragma once
#include "plait/io/gguf.h"
#include "plait/text/vocabulary.h"

namespace plait::text {

///   errors  bad_file: see above; a key that is missing or of another type; lists of unequal length; ids out of range.
///           A special id of 2^32 - 1 means none.
Vocabulary vocabulary_from_gguf(const io::GgufFile& file);

}  // namespace plait::text
