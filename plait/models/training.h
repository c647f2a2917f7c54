// A training step as two graphs that share their states: `micro` (forward, backward, add token sums into accumulators;
// once a micro-batch) and `update` (divide by the global token count, norm, clip, optimizer, clear; once a step).
#pragma once
#include "plait/models/family.h"

namespace plait {

struct OptimizerSpec {
  enum class Kind : std::uint8_t { sgd, adamw };
  Kind kind = Kind::adamw;
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8;
  double weight_decay = 0;  // of matrices; norms and biases have none
  double clip_norm = 1;     // 0: no clipping
};

struct TrainingGraphs {
  Graph micro;   // inputs of build_training; states: weights, "acc." + weight, "acc.loss"
  Graph update;  // inputs count, rate, step (scalars); adamw has states "m." and "v." + weight
  std::vector<std::string> weights;
};

/// Labels of update: "loss" the mean, "gradient_norm" of the mean gradient, "clip" the factor for summed gradients.
TrainingGraphs build_training_step(const ModelConfig& c, const BuildOptions& o, const OptimizerSpec& spec);

}  // namespace plait
