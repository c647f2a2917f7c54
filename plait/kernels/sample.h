// Picks the next token from a row of logits: a function of (seed, position, logits) alone, never of the batch, the
// layout or earlier calls.
//
// temperature 0 is greedy: the lowest id among the largest logits. Else, in this order (that of llama.cpp's and vLLM's
// filters):
//   p = exp((logit - max) / temperature), in f32
//   top_k   the k largest p (0: all)
//   top_p   of these, from the largest down, the fewest whose sum reaches top_p of the total (1: all)
//   min_p   of these, those of at least min_p times the largest p (0: all)
// and one of the rest is drawn with a probability in proportion to p, over ascending ids. Equal p are ordered by id.
// Sums count p in units of 2^-40 (what is smaller counts as nothing), so they are exact.
#pragma once
#include <span>
#include <vector>

#include "plait/base/base.h"

namespace plait::kernels {

struct SamplingOptions {
  float temperature = 0;
  i64 top_k = 0;
  float top_p = 1, min_p = 0;
  u64 seed = 0;
};

/// Throws usage, naming the field: temperature and top_k at least 0, top_p in (0, 1], min_p in [0, 1].
void check_sampling(const SamplingOptions& o);

/// Memory of a sampler, kept between calls.
struct SampleScratch {
  std::vector<float> p;
  std::vector<i64> count;
  std::vector<std::int32_t> ids;
};

/// The id of the next token; `position` is that of the token to be drawn. logits [V], V >= 1; -infinity forbids an id.
///   errors  usage (check_sampling); not_finite: a NaN, +infinity, or nothing but -infinity
i64 sample(std::span<const float> logits, const SamplingOptions& o, u64 position, SampleScratch& scratch);

/// -log softmax(logits)[id]: exponentials in f32, their sum in f64 (16 lanes, then a tree) and its logarithm in f64.
/// scratch is memory that is kept between calls.
///   errors  not_finite: as of sample
double negative_log_likelihood(std::span<const float> logits, i64 id, std::vector<float>& scratch);

/// The greedy choice and how far the next best lies below it (infinity where V is 1): what a comparison with another
/// program may tolerate.
struct Margin {
  i64 id = 0, second = -1;
  float gap = 0;
};
Margin top_margin(std::span<const float> logits);

}  // namespace plait::kernels
