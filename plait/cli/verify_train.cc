// plait verify --train: training steps under a plan against one rank: every number that a rank makes forward and
// backward, loss, gradients, weights, moments, copies.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "plait/cli/verify.h"
#include "plait/io/load_state.h"
#include "plait/models/random_weights.h"
#include "plait/train/record.h"
#include "plait/train/values.h"

namespace plait::cli {

namespace {

struct Outcome {
  std::vector<train::Comparison> rows;
  train::Recorded got;
  i64 numbers = 0;
  std::optional<train::ValueDifference> first_number;
  std::vector<double> oracle_losses;
  bool same = true;
};

Outcome run(const io::ModelFiles& files, const Plan& plan, const ModelOptions& model, const TrainVerifyOptions& o) {
  if (o.steps < 1 || o.steps > 1000) fail(Code::usage, "--steps {}: want 1 to 1000", o.steps);
  if (o.micro_batches < 1 || o.micro_batches > 6)
    fail(Code::usage, "--micro-batches {}: want 1 to 6, a step has 6 documents", o.micro_batches);
  const ModelConfig config = parse_config(files.config(), files.path());
  const BuildOptions build = training_types(model.serving.dtype);
  const OptimizerSpec spec = optimizer_of(o);
  const serve::EngineOptions how = engine_options(model);
  auto one = [&](const train::TrainingPlan& p, i64 micro_batches, train::Values& values, bool oracle) {
    train::Run r;
    r.deadline_s = how.deadline_s;
    r.stuck = how.stuck;
    if (!oracle) r.processes = how.processes, r.fault = how.fault;
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
    r.started = [&](train::RankTrainer& t) { values.watch(t); };
    r.result = [&](train::RankTrainer& t) { return r.processes && t.rank() > 0 ? values.told() : std::string(); };
    train::Recorded recorded = train::record(p, r);
    for (auto& told : recorded.results)
      if (!told.empty()) values.hear(told);
    return recorded;
  };
  Outcome out;
  const train::TrainingPlan alone = train::make_training_plan(config, build, spec, tensor_parallel(1)),
                            many = train::make_training_plan(config, build, spec, plan);
  train::Values of_one(alone), of_many(many, &of_one);
  const train::Recorded oracle = one(alone, 1, of_one, true);
  out.got = one(many, o.micro_batches, of_many, false);
  out.numbers = of_many.compared();
  out.first_number = of_many.first();
  out.oracle_losses = oracle.losses;
  out.rows = train::compare(out.got, oracle);
  for (auto& c : out.rows) out.same &= c.different == 0;
  out.same &= out.got.bad_copy.empty() && !out.first_number;
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
  j["numbers"] = {{"compared", r.numbers}, {"first_different", r.first_number ? r.first_number->text() : ""}};
  j["copies"] = {{"compared", r.got.copies}, {"first_different", r.got.bad_copy}};
  return j;
}

}  // namespace

int verify_train(const io::ModelFiles& files, const ModelOptions& model, const TrainVerifyOptions& o, bool json) {
  const Plan plan = training_plan(o, plan_of(model));
  const Outcome r = run(files, plan, model, o);
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
  fmt::print("numbers that ranks make forward and backward: {} parts compared{}\n", r.numbers,
             r.first_number ? "; first difference: " + r.first_number->text() : ", all equal");
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
