// A chat template, parsed and rendered. Limits are small so that a template is stopped within the fuzzer's second.
#include <nlohmann/json.hpp>

#include "fuzz/fuzz.h"
#include "plait/text/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, size_t size) {
  using namespace plait;
  const auto source = text_of(data, size);
  text::ChatOptions options{.bos_token = "<s>", .eos_token = "</s>"};
  options.limits = {.steps = 20'000, .memory_bytes = i64{8} << 20, .output_bytes = i64{1} << 20};
  return survives(
      [&] {
        text::render_chat(source, {{"system", "Be brief."}, {"user", "Why?\n"}, {"assistant", " Because. "}}, options);
      },
      Code::usage);
}
