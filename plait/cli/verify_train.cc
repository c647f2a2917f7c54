// plait verify --train: training steps under a plan against one rank: loss, gradients, weights, moments, copies.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "plait/cli/verify.h"
#include "plait/io/load_state.h"
#include "plait/models/random_weights.h"
#include "plait/train/record.h"

namespace plait::cli {

namespace {

struct Outcome {
  std::vector<train::Comparison> rows;
  train::Recorded got;
  std::vector<double> oracle_losses;
  bool same = true;
};

Outcome run(const io::ModelFiles& files, const Plan& plan, const std::string& dtype, const TrainVerifyOptions& o) {
  if (o.steps < 1 || o.steps > 1000) fail(Code::usage, "--steps {}: want 1 to 1000", o.steps);
  if (o.micro_batches < 1 || o.micro_batches > 6)
    fail(Code::usage, "--micro-batches {}: want 1 to 6, a step has 6 documents", o.micro_batches);
  const ModelConfig config = parse_config(files.config(), files.path());
  const BuildOptions build = training_types(dtype);
  const OptimizerSpec spec = optimizer_of(o);
  auto one = [&](const Plan& under, i64 micro_batches) {
    train::TrainingPlan p = train::make_training_plan(config, build, spec, under);
    train::Run r;
    r.steps = o.steps;
    r.batches = [&](i64 step) { return train::random_batches(config.V, step, 6, micro_batches); };
    r.rate = [](i64) { return 1e-3; };
    r.initial = [&](const std::string& name, const View& part) {
      if (files.has_weights()) {
        kernels::Team team(1);
        io::load_state(files, config, name, part, 0, 0, team);
      } else {
        fill_random(name, p.sizes_of(name), part);
      }
    };
    return train::record(p, r);
  };
  Outcome out;
  const train::Recorded oracle = one(tensor_parallel(1), 1);
  out.got = one(plan, o.micro_batches);
  out.oracle_losses = oracle.losses;
  out.rows = train::compare(out.got, oracle);
  for (auto& c : out.rows) out.same &= c.different == 0;
  out.same &= out.got.bad_copy.empty();
  return out;
}

nlohmann::ordered_json to_json(const Outcome& r) {
  nlohmann::ordered_json j;
  j["schema_version"] = 1;
  j["same"] = r.same;
  j["losses"] = r.got.losses;
  j["oracle_losses"] = r.oracle_losses;
  for (auto& c : r.rows)
    j["values"].push_back({{"kind", c.kind},
                           {"name", c.name},
                           {"step", c.step},
                           {"elements", c.elements},
                           {"different", c.different},
                           {"max_abs", c.max_abs}});
  j["copies"] = {{"compared", r.got.copies}, {"first_different", r.got.bad_copy}};
  return j;
}

}  // namespace

int verify_train(const io::ModelFiles& files, const Plan& tensor, const std::string& dtype, const TrainVerifyOptions& o,
                 bool json) {
  const Plan plan = training_plan(o, tensor);
  const Outcome r = run(files, plan, dtype, o);
  if (json) {
    fmt::print("{}\n", to_json(r).dump(2));
    return r.same ? 0 : 1;
  }
  fmt::print("{:<9} {:<36} {:>5} {:>12} {:>10} {:>12}\n", "what", "of", "step", "elements", "different", "max|a-b|");
  for (auto& c : r.rows)
    fmt::print("{:<9} {:<36} {:>5} {:>12} {:>10} {:>12.3g}\n", c.kind, c.name, c.step, c.elements, c.different,
               c.max_abs);
  fmt::print("\n{} steps on {} ranks against one; loss {:.9g}, oracle {:.9g}\n", o.steps, plan.world(),
             r.got.losses.back(), r.oracle_losses.back());
  fmt::print("values that several ranks hold: {} parts compared{}\n", r.got.copies,
             r.got.bad_copy.empty() ? ", all equal" : "; first difference: " + r.got.bad_copy);
  for (auto& c : r.rows)
    if (c.different > 0) {
      fmt::print("first difference: {} of {} at step {}, {}: got {:.9g}, want {:.9g}\n", c.kind, c.name, c.step,
                 c.where, c.got, c.want);
      break;
    }
  fmt::print("{}\n", r.same ? "the same bits" : "DIFFERENT");
  return r.same ? 0 : 1;
}

}  // namespace plait::cli
