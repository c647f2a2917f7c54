// tokenizer.json, and behind a NUL, if there is one, tokenizer_config.json.
#include "fuzz/fuzz.h"
#include "fuzz/tokenize.h"
#include "plait/text/tokenizer_json.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, size_t size) {
  using namespace plait;
  const auto text = text_of(data, size);
  const size_t nul = std::min(text.find('\0'), size);
  return survives([&] {
    tokenize(text::vocabulary_from_tokenizer_json(text.substr(0, nul), text.substr(std::min(nul + 1, size))));
  });
}
