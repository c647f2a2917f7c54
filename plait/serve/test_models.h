// Shared by the tests of this room: small random models as files of both formats, and a run of a layout with everything
// that must not depend on it.
//
// The files are written as their own programs write them (transformers; llama.cpp's converter), with names, fusions and
// orders stated here once more, so that models/weights.h is tested and not used.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>

#include "plait/io/test_support.h"
#include "plait/serve/engine.h"

namespace plait::serve {

using io::shared;
using nlohmann::json;
namespace fs = io::fs;
using Values = std::vector<float>;

/// PLAIT_LONG=1: every degree and every token, instead of those that fit a minute.
bool long_run();

json reference(const std::string& name);

/// A file of the folder of fetched models, which need not be there.
std::string model_named(const std::string& name);

/// The model that CI fetches; the test skips when it is not there.
std::string smollm2();
#define NEED_SMOLLM2(name)            \
  const std::string name = smollm2(); \
  if (!fs::exists(name)) GTEST_SKIP() << name << " is not there: scripts/fetch_model.sh fetches it"

/// A random model of a config of tests/data: row-major weights by our names of states.
struct RandomModel {
  json config;
  bool gpt2 = false, gemma = false;
  i64 D, N, K, H, F, V, W, layers;
  bool biases, tied;
  /// What a test does to a weight before it is written.
  std::function<void(const std::string& state, Values&)> change = {};

  explicit RandomModel(json c);
  /// Of a Gemma: its first layer that attends to all positions, from 1.
  i64 gemma_pattern() const;
  Values weight(const std::string& state, i64 count) const;
};

struct HfStyle {
  i64 max_shard_bytes = i64{1} << 40;  // less: shards with an index
  bool without_prefix = false;         // as files of a model that was saved without its head: "h.0.attn..."
  bool masks = false;                  // the causal masks that old GPT-2 files carry
};

void write_hf(const RandomModel& m, const std::string& folder, const HfStyle& style = {});

/// Rows of f32 as GGUF's blocks: scales from the largest value of 32, as ggml's simplest quantizers take them.
std::string quantized(DType to, const Values& x);

/// The type of a state's tensor in a GGUF file; vectors are f32 whatever it says.
using TypeOf = std::function<DType(const std::string& state)>;

void write_gguf(const RandomModel& m, const std::string& path, const TypeOf& type_of = {});

/// What a run leaves behind and no layout may change.
struct Outcome {
  std::vector<Values> logits;  // of each token of the prompt, or of its last alone
  std::vector<i64> greedy;     // tokens after the prompt
  u64 hash = 0;                // of all logits, those of greedy steps too
  u64 cache = 0;               // of the used part of all KV caches, put together from the ranks
  std::vector<RankReport> reports;
};

struct RunRequest {
  std::vector<i64> prompt;
  i64 greedy = 0;           // tokens to write after it
  std::vector<i64> chunks;  // sizes in which the prompt is fed, the last repeated; empty: as the plan says
  bool all_rows = true;     // logits of every token of the prompt (chunks must then be empty)
};

Outcome run(const io::ModelFiles& files, const ServingOptions& options, const RunRequest& q,
            const EngineOptions& engine_options = {.threads = 1});

/// max |a - b| / max |b|
double relative(const Values& a, const Values& b);

double relative(const std::vector<Values>& a, const std::vector<Values>& b);

/// Layouts by a short name: "3" is tp 3, "3,1" unequal ranks, "2s" sequence parallel, "2x2" nested axes.
Plan plan_named(const std::string& name);

/// Any ids below V.
inline std::vector<i64> some_tokens(i64 count, i64 V) {
  std::vector<i64> t;
  for (i64 i = 0; i < count; i++) t.push_back((i * 7919 + 13) % V);
  return t;
}

/// f() ends with an error of this code; its text.
template <class F>
std::string text_of_error(Code code, F f) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_EQ(static_cast<int>(e.code()), static_cast<int>(code)) << e.what();
    return e.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

}  // namespace plait::serve
