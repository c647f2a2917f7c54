// A GGUF file to its last byte, its config, and its tokenizer (byte-level BPE or SentencePiece).
#include <nlohmann/json.hpp>

#include "plait/io/gguf.h"

#include "fuzz/fuzz.h"
#include "fuzz/tokenize.h"
#include "plait/io/gguf_config.h"
#include "plait/models/config.h"
#include "plait/text/from_gguf.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, size_t size) {
  using namespace plait;
  return survives([&] {
    io::GgufFile f(io::MappedFile::of_bytes("x.gguf", text_of(data, size)));
    volatile int sum = 0;
    for (auto key : f.keys()) {
      const auto& v = *f.find(key);
      for (i64 i = 0; i < v.bytes; i++) sum = sum + static_cast<int>(v.data[i]);
      survives([&] { f.texts(key); });
      survives([&] { f.integers(key); });
      survives([&] { f.numbers(key); });
      survives([&] { f.flags(key); });
      survives([&] { f.text(key); });
      survives([&] { f.integer(key); });
      survives([&] { f.number(key); });
    }
    for (auto& t : f.tensors())
      for (i64 i = 0; i < t.bytes; i++) sum = sum + static_cast<int>(t.data[i]);
    survives([&] { parse_config(io::config_of(f), f.path()); });
    tokenize(text::vocabulary_from_gguf(f));
  });
}
