#include "fuzz/fuzz.h"
#include "plait/io/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, size_t size) {
  using namespace plait;
  return survives([&] { io::shards_of_index(text_of(data, size), "model.safetensors.index.json"); });
}
