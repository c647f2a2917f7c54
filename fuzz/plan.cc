#include "plait/placement/plan.h"

#include "fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, size_t size) {
  using namespace plait;
  return survives([&] {
    const std::string text = Plan::parse(text_of(data, size), "plan.toml").text();
    PLAIT_CHECK(Plan::parse(text, "again").text() == text, "another plan when it is read back:\n{}", text);
  });
}
