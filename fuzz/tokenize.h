// A tokenizer at work, for the fuzzers that make one.
#pragma once
#include "plait/text/tokenizer.h"

namespace plait {

inline void tokenize(text::Vocabulary vocabulary) {
  const auto t = text::Tokenizer::from(std::move(vocabulary));
  for (std::string_view s : {"Hello  world\n it's 12345", "<s>\xE2\x96\x81 caf\xC3\xA9\xff\xed\xa0\x80 e\xCC\x81 </s>"})
    t.decode(t.encode(s, {.add_special = true, .parse_special = true}), false);
}

}  // namespace plait
