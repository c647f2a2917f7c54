#include "plait/kernels/sample.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "plait/base/random.h"
#include "plait/kernels/cpu/functions.h"

namespace plait::kernels {

namespace {

using Ids = std::vector<std::int32_t>;

float largest(std::span<const float> logits) {
  PLAIT_CHECK(!logits.empty(), "no logits");
  float top = functions(isa()).largest(logits.data(), static_cast<i64>(logits.size()));
  if (!std::isfinite(top)) fail(Code::not_finite, "[sample] the largest of {} logits is {}", logits.size(), top);
  return top;
}

/// Larger first, then the lower id.
struct Before {
  const float* p;
  bool operator()(std::int32_t a, std::int32_t b) const { return p[a] != p[b] ? p[a] > p[b] : a < b; }
};

/// Probabilities are counted in units of 2^-40, so that their sums are exact in any order.
i64 total_of(const std::vector<i64>& count, std::span<const std::int32_t> ids) {
  i64 s = 0;
  for (auto i : ids) s += count[static_cast<size_t>(i)];
  return s;
}

/// ids -> the fewest of the largest whose sum reaches `share` of the total: a search by halves, each half split off in
/// linear time.
void keep_share(const SampleScratch& x, float share, Ids& ids) {
  auto enough = static_cast<i64>(static_cast<double>(total_of(x.count, ids)) * static_cast<double>(share));
  i64 kept = 0, end = static_cast<i64>(ids.size()), sum = 0;  // the first `kept` belong to it, of sum `sum`
  while (end - kept > 1) {
    i64 half = kept + (end - kept) / 2;
    std::nth_element(ids.begin() + kept, ids.begin() + half, ids.begin() + end, Before{x.p.data()});
    i64 more = total_of(x.count, {ids.begin() + kept, ids.begin() + half});
    if (sum + more >= enough) {
      end = half;
    } else {
      sum += more;
      kept = half;
    }
  }
  ids.resize(static_cast<size_t>(end));
}

}  // namespace

void check_sampling(const SamplingOptions& o) {
  if (!(o.temperature >= 0) || std::isinf(o.temperature))
    fail(Code::usage, "[temperature] got {}, want at least 0", o.temperature);
  if (o.top_k < 0) fail(Code::usage, "[top_k] got {}, want at least 0", o.top_k);
  if (!(o.top_p > 0 && o.top_p <= 1)) fail(Code::usage, "[top_p] got {}, want more than 0 and at most 1", o.top_p);
  if (!(o.min_p >= 0 && o.min_p <= 1)) fail(Code::usage, "[min_p] got {}, want 0 to 1", o.min_p);
}

i64 sample(std::span<const float> logits, const SamplingOptions& o, u64 position, SampleScratch& scratch) {
  check_sampling(o);
  float top = largest(logits);
  auto best = std::find(logits.begin(), logits.end(), top) - logits.begin();
  if (o.temperature == 0 || o.top_k == 1) return best;

  auto& [p, count, ids] = scratch;
  p.resize(logits.size());
  count.resize(logits.size());
  constexpr float kMost = std::numeric_limits<float>::max();
  functions(isa()).exp_from(logits.data(), top, std::min(1 / o.temperature, kMost), p.data(),
                            static_cast<i64>(p.size()));
  bool filtered = o.top_k > 0 || o.top_p < 1;  // then min_p comes last: shares are of all ids
  float least = filtered ? 0 : o.min_p;
  ids.clear();
  for (size_t i = 0; i < p.size(); i++) {
    count[i] = static_cast<i64>(p[i] * 0x1p40f);
    if (count[i] > 0 && p[i] >= least) ids.push_back(static_cast<std::int32_t>(i));
  }
  if (o.top_k > 0 && o.top_k < static_cast<i64>(ids.size())) {
    std::nth_element(ids.begin(), ids.begin() + o.top_k, ids.end(), Before{p.data()});
    ids.resize(static_cast<size_t>(o.top_k));
  }
  if (o.top_p < 1) keep_share(scratch, o.top_p, ids);
  if (filtered) {
    std::erase_if(ids, [&](std::int32_t i) { return p[static_cast<size_t>(i)] < o.min_p; });
    std::sort(ids.begin(), ids.end());
  }

  auto at =
      static_cast<i64>(uniform(o.seed ^ stream_of("sample"), position) * static_cast<double>(total_of(count, ids)));
  for (auto i : ids) {
    at -= count[static_cast<size_t>(i)];
    if (at < 0) return i;
  }
  return ids.back();
}

double negative_log_likelihood(std::span<const float> logits, i64 id, std::vector<float>& scratch) {
  PLAIT_CHECK(id >= 0 && id < static_cast<i64>(logits.size()), "id {} of {}", id, logits.size());
  const float top = largest(logits);
  scratch.resize(logits.size());
  functions(isa()).exp_from(logits.data(), top, 1, scratch.data(), static_cast<i64>(scratch.size()));
  double lane[16] = {};
  for (size_t i = 0; i < scratch.size(); i++) lane[i & 15] += static_cast<double>(scratch[i]);
  for (size_t w = 8; w > 0; w /= 2)
    for (size_t i = 0; i < w; i++) lane[i] += lane[i + w];
  return std::log(lane[0]) + (static_cast<double>(top) - static_cast<double>(logits[static_cast<size_t>(id)]));
}

Margin top_margin(std::span<const float> logits) {
  float top = largest(logits);
  Margin m{.id = std::find(logits.begin(), logits.end(), top) - logits.begin()};
  float next = -std::numeric_limits<float>::infinity();
  for (i64 i = 0; i < static_cast<i64>(logits.size()); i++) {
    float x = logits[static_cast<size_t>(i)];
    if (i == m.id || (m.second >= 0 && x <= next)) continue;
    next = x;
    m.second = i;
  }
  m.gap = top - next;
  return m;
}

}  // namespace plait::kernels
