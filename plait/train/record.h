// What training steps made, gathered: loss and gradient norm of each step, the summed gradients before the last update,
// weights and moments after it. Two plans are compared by it.
#pragma once
#include "plait/train/trainer.h"

namespace plait::train {

struct Recorded {
  struct Entry {
    std::string kind;  // loss, gradient_norm, gradient, weight, moment
    std::string name;
    i64 step = 0;
    Tensor whole;  // each element as its owner has it; sums joined over the ranks that share them
  };
  std::vector<Entry> entries;
  i64 copies = 0;                     // parts that several ranks hold, compared bit for bit
  std::string bad_copy;               // the first that is not equal on all of them: what, and which rank
  std::vector<double> losses, norms;  // of each step
  std::vector<std::string> results;   // what Run::result returned, by rank
};

/// Runs and gathers. gradients_of_all_steps: not of the last alone.
Recorded record(const TrainingPlan& plan, Run run, bool gradients_of_all_steps = false);

/// One quantity of two recordings.
struct Comparison {
  std::string kind, name;
  i64 step = 0, elements = 0, different = 0;
  double max_abs = 0, max_want = 0;
  std::string where;  // global index of the first difference
  double got = 0, want = 0;
};
std::vector<Comparison> compare(const Recorded& got, const Recorded& oracle);

/// Documents of random tokens, a function of (vocabulary, step): `documents` of 3 to 20 tokens, every seventh target
/// not counted, dealt to micro-batches in order.
std::vector<Batch> random_batches(i64 vocabulary, i64 step, i64 documents, i64 micro_batches);

}  // namespace plait::train
