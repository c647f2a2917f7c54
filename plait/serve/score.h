// Perplexity of a text by a sliding window, as the documents of transformers describe it for models of fixed length.
//
// A window holds the last `window` tokens; the next begins `stride` tokens later, and of its tokens only those are
// counted that no window before has counted. So every token is counted once, after at least window - stride others
// (but for the first window). Where the model puts a BOS before a text, every window begins with one, which takes a
// place of the window; without, the text's first token has nothing before it and is not counted.
#pragma once
#include "plait/serve/engine.h"

namespace plait::serve {

struct ScoreRequest {
  std::vector<i64> tokens;  // of the text, without BOS
  std::optional<i64> bos;   // that each window begins with
  i64 window = 2048, stride = 1024;
};

struct Scored {
  i64 tokens = 0;   // counted
  double nats = 0;  // the sum of their negative log-likelihoods
  i64 fed = 0;      // tokens that were computed, those of overlaps again
  i64 windows = 0;
};

/// What rank 0 returns is the score; other ranks return nothing of use. Sums are f64, in order of the tokens: the same
/// bits under every layout.
///   progress  called on rank 0 after each window
///   errors    usage: fewer tokens than can be counted, stride over window, a window beyond the context
Scored score(Session& s, const ScoreRequest& q, const std::function<void(const Scored&)>& progress = {});

}  // namespace plait::serve
