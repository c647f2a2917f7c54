// The part of `plait explain` that is about training steps.
#pragma once
#include "plait/cli/train_layout.h"

namespace plait::cli {

struct TrainExplainOptions : TrainLayout {
  i64 document = 512;
};
int explain_train(const io::ModelFiles& files, const Plan& tensor, const std::string& dtype,
                  const TrainExplainOptions& o, i64 tokens, bool json);

}  // namespace plait::cli
