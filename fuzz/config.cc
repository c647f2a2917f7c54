#include "plait/models/config.h"

#include <nlohmann/json.hpp>

#include "fuzz/fuzz.h"
#include "plait/io/json_text.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, size_t size) {
  using namespace plait;
  return survives([&] { parse_config(io::parse_json(text_of(data, size), "config.json"), "config.json"); });
}
