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

double total_of(const std::vector<float>& p, const Ids& ids) {
  double s = 0;
  for (auto i : ids) s += p[static_cast<size_t>(i)];
  return s;
}

/// ids (in any order) -> the fewest of the largest whose sum reaches `share` of the total. They are sorted piece by
/// piece, as few as it takes.
void keep_share(const std::vector<float>& p, float share, Ids& ids) {
  std::sort(ids.begin(), ids.end());
  double enough = total_of(p, ids) * static_cast<double>(share), sum = 0;
  for (size_t sorted = 0, piece = 64; sorted < ids.size(); piece *= 4) {
    auto from = ids.begin() + static_cast<i64>(sorted);
    auto to = ids.end() - from > static_cast<i64>(piece) ? from + static_cast<i64>(piece) : ids.end();
    std::partial_sort(from, to, ids.end(), Before{p.data()});
    for (; from != to; ++from) {
      sum += p[static_cast<size_t>(*from)];
      if (sum < enough) continue;
      ids.erase(from + 1, ids.end());
      return;
    }
    sorted = static_cast<size_t>(to - ids.begin());
  }
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

  std::vector<float>& p = scratch.p;
  Ids& ids = scratch.ids;
  p.resize(logits.size());
  constexpr float kLeast = std::numeric_limits<float>::min(), kMost = std::numeric_limits<float>::max();
  functions(isa()).exp_from(logits.data(), top, std::min(1 / o.temperature, kMost), p.data(),
                            static_cast<i64>(p.size()));
  bool filtered = o.top_k > 0 || o.top_p < 1;  // then min_p comes last: shares are of all ids
  float least = filtered ? kLeast : std::max(kLeast, o.min_p);
  ids.clear();
  for (size_t i = 0; i < p.size(); i++)
    if (p[i] >= least) ids.push_back(static_cast<std::int32_t>(i));
  if (o.top_k > 0 && o.top_k < static_cast<i64>(ids.size())) {
    std::nth_element(ids.begin(), ids.begin() + o.top_k, ids.end(), Before{p.data()});
    ids.resize(static_cast<size_t>(o.top_k));
  }
  if (o.top_p < 1) keep_share(p, o.top_p, ids);
  if (filtered) {
    std::erase_if(ids, [&](std::int32_t i) { return p[static_cast<size_t>(i)] < o.min_p; });
    std::sort(ids.begin(), ids.end());
  }

  double at = uniform(o.seed ^ stream_of("sample"), position) * total_of(p, ids), sum = 0;
  for (auto i : ids) {
    sum += p[static_cast<size_t>(i)];
    if (at < sum) return i;
  }
  return ids.back();
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
