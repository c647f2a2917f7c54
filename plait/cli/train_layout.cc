#include "plait/cli/train_layout.h"

namespace plait::cli {

void add_train_options(OptionList& options, TrainLayout& o) {
  options.group("Training");
  options.flag("--train", o.train, "Of a training step");
  options.add("--data-parallel-size,--dp", o.dp, "Ranks that share the documents (also -dp)");
  options.add("--context-parallel-size,--cp", o.cp, "Ranks that share the tokens of a document (also -cp)");
  options.add("--optimizer", o.optimizer, "adamw or sgd");
}

Plan training_plan(const TrainLayout& o, const Plan& tensor) {
  if (o.dp < 1 || o.cp < 1) fail(Code::usage, "-dp {} -cp {}: want 1 or more", o.dp, o.cp);
  Plan p;
  if (o.dp > 1) p.axes.push_back({"dp", o.dp, "T", true, {}});
  if (o.cp > 1) p.axes.push_back({"cp", o.cp, "T", false, {}});
  p.axes.insert(p.axes.end(), tensor.axes.begin(), tensor.axes.end());
  p.verify();
  return p;
}

OptimizerSpec optimizer_of(const TrainLayout& o) {
  OptimizerSpec spec;
  if (o.optimizer != "sgd" && o.optimizer != "adamw")
    fail(Code::usage, "--optimizer {}: want sgd or adamw", o.optimizer);
  spec.kind = o.optimizer == "sgd" ? OptimizerSpec::Kind::sgd : OptimizerSpec::Kind::adamw;
  return spec;
}

BuildOptions training_types(const std::string& dtype) {
  BuildOptions build;
  if (dtype == "f64") {
    build.real = build.compute = DType::f64;
    build.sum = DType::i128;
  } else if (dtype == "bf16") {
    build.compute = DType::bf16;
    build.weight_dtype = [](const std::string&) { return DType::f32; };
  } else if (dtype != "auto" && dtype != "f32") {
    fail(Code::usage, "--dtype {} with --train: want f32, bf16 or f64", dtype);
  }
  return build;
}

}  // namespace plait::cli
