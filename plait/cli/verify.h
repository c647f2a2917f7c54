// The part of `plait verify` that compares training steps.
#pragma once
#include "plait/cli/train_layout.h"

namespace plait::cli {

struct TrainVerifyOptions : TrainLayout {
  i64 steps = 1, micro_batches = 1;
};

/// Prints the comparison; 0 when all bits are the same, else 1.
int verify_train(const io::ModelFiles& files, const ModelOptions& model, const TrainVerifyOptions& o, bool json);

}  // namespace plait::cli
