// plait explain --train: bytes of every rank by kind, and every collective of the two graphs of a step.
#include "plait/cli/explain_train.h"

#include <nlohmann/json.hpp>

#include "plait/cli/table.h"
#include "plait/train/explain.h"

namespace plait::cli {

namespace {

nlohmann::ordered_json to_json(const train::TrainExplanation& e, const Plan& plan) {
  nlohmann::ordered_json j;
  j["schema_version"] = 1;
  j["plan"] = plan.text();
  for (size_t r = 0; r < e.memory.size(); r++) {
    auto& m = e.memory[r];
    j["ranks"].push_back({{"coords", plan.mesh().describe(static_cast<i64>(r))},
                          {"weights_bytes", m.weights},
                          {"gradients_bytes", m.gradients},
                          {"moments_bytes", m.moments},
                          {"activations_bytes", m.activations},
                          {"update_bytes", m.update},
                          {"total_bytes", m.total()}});
  }
  for (auto& c : e.collectives) {
    nlohmann::ordered_json row = {{"op", c.op},       {"axis", c.axis},     {"cause", c.cause}, {"layers", c.layers},
                                  {"count", c.count}, {"values", c.values}, {"bytes", c.bytes}};
    if (c.layers > 0) row["per_layer"] = static_cast<double>(c.count) / static_cast<double>(c.layers);
    j["collectives"][c.phase].push_back(row);
  }
  return j;
}

}  // namespace

int explain_train(const io::ModelFiles& files, const Plan& tensor, const std::string& dtype,
                  const TrainExplainOptions& o, i64 tokens, bool json) {
  const Plan plan = training_plan(o, tensor);
  const ModelConfig config = parse_config(files.config(), files.path());
  const i64 document = std::min({o.document, tokens, config.max_positions});
  const train::TrainExplanation e =
      train::explain(train::make_training_plan(config, training_types(dtype), optimizer_of(o), plan), tokens, document);
  if (json) {
    fmt::print("{}\n", to_json(e, plan).dump(2));
    return 0;
  }
  fmt::print("Memory of {} ranks, micro-batch of {} tokens in documents of {}\n", plan.world(), tokens, document);
  Table memory("lrrrrrr", {"rank", "weights", "gradients", "moments", "activations", "update", "total"});
  for (size_t r = 0; r < e.memory.size(); r++) {
    auto& m = e.memory[r];
    memory.row({plan.mesh().describe(static_cast<i64>(r)), human_bytes(m.weights), human_bytes(m.gradients),
                human_bytes(m.moments), human_bytes(m.activations), human_bytes(m.update), human_bytes(m.total())});
  }
  fmt::print("{}", memory.text(2));
  for (const char* phase : {"forward", "backward", "update"}) {
    Table t("lllrrr", {"collective", "axis", "of", "layers", "count", "bytes a rank"});
    for (auto& c : e.collectives)
      if (c.phase == phase)
        t.row({c.op, c.axis, c.values > c.count ? fmt::format("{} ({} sums)", c.cause, c.values) : c.cause,
               c.layers > 0 ? std::to_string(c.layers) : "", std::to_string(c.count), human_bytes(c.bytes)});
    fmt::print("\nCollectives of {}\n{}", phase, t.empty() ? "  none\n" : t.text(2));
  }
  return 0;
}

}  // namespace plait::cli
