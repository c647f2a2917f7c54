#include "plait/models/random_weights.h"

#include "plait/base/random.h"

namespace plait {

namespace {

constexpr double kSpread = 0.15;

bool is_gain(std::string_view state) {
  constexpr std::string_view kEnd = "norm";
  return state.size() >= kEnd.size() && state.substr(state.size() - kEnd.size()) == kEnd;
}

float element(u64 stream, bool gain, i64 index) {
  const double w = kSpread * normal(stream, static_cast<u64>(index));
  return static_cast<float>(gain ? 1 + w : w);
}

}  // namespace

float random_weight(std::string_view state, i64 index) { return element(stream_of(state), is_gain(state), index); }

void fill_random(std::string_view state, const std::vector<i64>& sizes, const View& out) {
  PLAIT_CHECK(out.layout == Layout::rows && out.box.size() == sizes.size() && !is_quantized(out.dtype),
              "random weights of {} into a {} view of {} dims", state, name_of(out.dtype), out.box.size());
  for (size_t d = 0; d < sizes.size(); d++)
    PLAIT_CHECK(out.box[d].begin >= 0 && out.box[d].end <= sizes[d], "random weights of {}: box {}", state,
                to_string(out.box));
  const u64 stream = stream_of(state);
  const bool gain = is_gain(state);
  auto* p = static_cast<std::byte*>(out.data);
  for_each(out.box, [&](const std::vector<i64>& x) {
    i64 index = 0;
    for (size_t d = 0; d < sizes.size(); d++) index = index * sizes[d] + x[d];
    const float w = element(stream, gain, index);
    from_f32(out.dtype, &w, p, 1);
    p += bytes_of(out.dtype, 1);
  });
}

}  // namespace plait
