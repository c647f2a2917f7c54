// What a training step needs under a plan, before a run: bytes of every rank by kind, and every collective of the two
// graphs by phase.
#pragma once
#include "plait/train/trainer.h"

namespace plait::train {

struct TrainMemory {
  i64 weights = 0, gradients = 0, moments = 0, inputs = 0;
  i64 activations = 0, update = 0;  // the arenas of the two graphs
  i64 total() const { return weights + gradients + moments + inputs + activations + update; }
};

struct TrainCollective {
  std::string phase;  // forward, backward, update
  std::string op, axis, cause;
  i64 layers = 0, count = 0;  // layers: how many have one (0: of no layer)
  i64 values = 0;             // that go in these collectives, more than `count` where they share buckets
  i64 bytes = 0;              // payload of a rank, the largest
};

struct TrainExplanation {
  std::vector<TrainMemory> memory;  // by rank
  std::vector<TrainCollective> collectives;
};

/// tokens: of a micro-batch, in documents of `document` tokens.
TrainExplanation explain(const TrainingPlan& plan, i64 tokens, i64 document);

}  // namespace plait::train
