#include "plait/io/safetensors.h"

#include "fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, size_t size) {
  using namespace plait;
  return survives([&] {
    io::Safetensors s(io::MappedFile::of_bytes("x.safetensors", text_of(data, size)));
    volatile int sum = 0;
    for (auto& t : s.tensors())
      for (i64 i = 0; i < t.bytes; i++) sum = sum + static_cast<int>(t.data[i]);
  });
}
