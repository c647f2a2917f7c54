// A plan against the one-rank oracle on the same input: every value that a node makes, in prefill and decode, the KV
// cache, the logits, the greedy tokens, and the hashes of weights that several ranks hold.
#pragma once
#include "plait/serve/engine.h"

namespace plait::serve {

struct Difference {
  std::string label, op, phase;  // phase: "prefill", "decode 3", "weights", "cache"
  i64 layer = -1, rank = 0;
  std::string where;  // global index of the first differing element
  double got = 0, want = 0;
};

/// What was compared under one label, all ranks and runs together.
struct VerifyRow {
  std::string label, op;
  i64 layer = -1;
  i64 values = 0, elements = 0, different = 0;
  double max_abs = 0;   // largest |got - want|
  double max_want = 0;  // largest |want|
  double relative() const { return max_want > 0 ? max_abs / max_want : max_abs; }
};

struct VerifyResult {
  std::vector<VerifyRow> rows;  // in the order of the graph
  std::optional<Difference> first;
  std::vector<i64> oracle_tokens, tokens;
  std::optional<i64> first_token_apart;
  float margin = 0;  // of the top two logits of the oracle there
  i64 weights_compared = 0, weights_different = 0;
  i64 cache_different = 0, cache_compared = 0;  // elements
  u64 logits_hash = 0, oracle_logits_hash = 0;
  double tolerance = 0;  // 0: bits
  bool same = false;
};

struct VerifyRequest {
  std::vector<i64> prompt;
  i64 max_tokens = 16;
};
VerifyResult verify(const io::ModelFiles& files, const ServingOptions& options, const EngineOptions& engine,
                    const VerifyRequest& request);

}  // namespace plait::serve
