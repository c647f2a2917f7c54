#include "plait/models/training.h"

#include "plait/base/exact_squares.h"

namespace plait {

TrainingGraphs build_training_step(const ModelConfig& c, const BuildOptions& o, const OptimizerSpec& spec) {
  TrainingGraphs t;
  Graph& micro = t.micro = build_training(c, o);
  const ValueId loss = micro.nodes.back().out[0];
  auto gradients = grad(micro, loss);
  gradients["loss"] = loss;

  Graph& update = t.update;
  update.name = micro.name + " update";
  update.dims = micro.dims;
  update.real = micro.real, update.compute = micro.compute, update.sum = micro.sum;
  update.layers = micro.layers;
  update.dims['Q'] = {update.real == DType::f64 ? ExactSquares<double>::kLanes : ExactSquares<float>::kLanes, 0};
  const ValueId count = update.input("count", "", Type::num), rate = update.input("rate", "", Type::num),
                step = update.input("step", "", Type::num);

  std::map<std::string, ValueId> sums;
  std::vector<ValueId> squares;
  micro.layer = -1;
  for (auto& [name, gradient] : gradients) {
    const Value d = micro.at(gradient);
    PLAIT_CHECK(d.type == Type::sum, "the gradient of {} is no sum", name);
    const std::string acc = "acc." + name;
    micro.one("accumulate", {micro.state(acc, d.dims, d.type, d.cls), gradient}, {.alias = acc, .label = acc});
    sums[name] = update.state(acc, d.dims, d.type, d.cls);
    if (name == "loss") continue;
    std::string rule;
    for (size_t i = 0; i < d.dims.size(); i++) rule += std::string(1, static_cast<char>('a' + i)) + " ";
    squares.push_back(update.one("sum_squares", {sums[name]},
                                 {.rule = rule + "-> q", .dims = "Q", .cls = Class::norm, .label = "norm." + name}));
    t.weights.push_back(name);
  }
  auto shown = [&](const char* name, ValueId number) {
    update.one("read", {number}, {.label = name});
    return number;
  };
  const ValueId summed =
      update.one("gradient_norm", {update.add_all(squares)}, {.dims = "1", .label = "gradient_norm.summed"});
  const ValueId norm = shown("gradient_norm", update.one("mean", {summed, count}, {.label = "gradient_norm.mean"}));
  const ValueId scale = update.one("clip_scale", {norm, count}, {.x = {{"max_norm", spec.clip_norm}}, .label = "clip"});
  for (auto& [name, acc] : sums) {
    const ValueId g = update.num(acc);
    if (name == "loss") {
      shown("loss", update.one("mean", {g, count}, {.label = "loss.mean"}));
    } else {
      const std::string& dims = micro.at(micro.named.at(name)).dims;
      const ValueId w = update.state(name, dims);
      if (spec.kind == OptimizerSpec::Kind::sgd) {
        update.one("sgd", {w, g, scale, rate}, {.alias = name, .label = name});
      } else {
        auto moment = [&, name = name](const char* op, const std::string& m, const char* beta, double value) {
          return update.one(op, {update.state(m + name, dims), g, scale},
                            {.x = {{beta, value}}, .alias = m + name, .label = m + name});
        };
        const ValueId m = moment("adamw_m", "m.", "beta1", spec.beta1),
                      v = moment("adamw_v", "v.", "beta2", spec.beta2);
        const double decay =
            dims.size() > 1 && name.find("norm") == std::string::npos && name.find("bias") == std::string::npos
                ? spec.weight_decay
                : 0;
        update.one("adamw_w", {w, m, v, rate, step},
                   {.x = {{"beta1", spec.beta1}, {"beta2", spec.beta2}, {"eps", spec.eps}, {"decay", decay}},
                    .alias = name,
                    .label = name});
      }
    }
    update.one("zero", {acc}, {.alias = "acc." + name, .label = "acc." + name});
  }
  micro.verify();
  update.verify();
  return t;
}

}  // namespace plait
