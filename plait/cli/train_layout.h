// Options of the commands that lay training steps.
#pragma once
#include "plait/cli/common.h"
#include "plait/models/training.h"

namespace plait::cli {

struct TrainLayout {
  bool train = false;
  i64 dp = 1, cp = 1;
  std::string optimizer = "adamw";
};
void add_train_options(OptionList& options, TrainLayout& o);

/// dp and cp around the tensor axes.
Plan training_plan(const TrainLayout& o, const Plan& tensor);
OptimizerSpec optimizer_of(const TrainLayout& o);
/// f32, f64, or bf16 with weights and all that is no operand of a product in f32.
BuildOptions training_types(const std::string& dtype);

}  // namespace plait::cli
