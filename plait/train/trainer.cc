#include "plait/train/trainer.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <set>

#include "plait/comm/local/run_processes.h"

namespace plait::train {

i64 Batch::counted() const {
  return std::count_if(targets.begin(), targets.end(), [](std::int32_t t) { return t >= 0; });
}

void Batch::add_document(const std::vector<std::int32_t>& document_ids,
                         const std::vector<std::int32_t>& document_targets) {
  PLAIT_CHECK(document_ids.size() == document_targets.size() && !document_ids.empty(),
              "a document of {} tokens and {} targets", document_ids.size(), document_targets.size());
  const auto n = static_cast<std::int32_t>(sequence_edges.size()) - 1;
  for (size_t i = 0; i < document_ids.size(); i++) {
    ids.push_back(document_ids[i]);
    targets.push_back(document_targets[i]);
    position.push_back(static_cast<std::int32_t>(i));
    sequence.push_back(n);
  }
  sequence_edges.push_back(tokens());
}

std::vector<i64> TrainingPlan::sizes_of(const std::string& weight) const {
  const Graph& g = micro->graph;
  std::vector<i64> sizes;
  for (char d : g.at(g.named.at(weight)).dims) sizes.push_back(g.size(d));
  return sizes;
}

Symbols TrainingPlan::symbols(const Batch& b) const {
  Symbols s;
  s.size['T'] = b.tokens();
  s.sequence_edges = b.sequence_edges;
  s.token_edges = {0};
  for (size_t i = 0; i + 1 < b.sequence_edges.size(); i++) {
    for (i64 t = b.sequence_edges[i] + token_leaf; t < b.sequence_edges[i + 1]; t += token_leaf)
      s.token_edges.push_back(t);
    s.token_edges.push_back(b.sequence_edges[i + 1]);
  }
  return s;
}

TrainingPlan make_training_plan(const ModelConfig& config, const BuildOptions& build, const OptimizerSpec& spec,
                                const Plan& plan) {
  TrainingGraphs g = build_training_step(config, build, spec);
  TrainingPlan p;
  p.config = config;
  p.weights = g.weights;
  p.token_leaf = g.micro.dims.at('T').leaf;
  std::map<std::string, Placement> states;
  PropagateOptions how;
  how.states = &states;
  p.micro = std::make_shared<ShardedGraph>(propagate(std::move(g.micro), plan, how));
  p.update = std::make_shared<ShardedGraph>(propagate(std::move(g.update), plan, how));
  p.micro->verify();
  p.update->verify();
  return p;
}

RankTrainer::RankTrainer(const TrainingPlan& plan, i64 rank, const std::vector<Symbols>& bounds,
                         const FindCommunicator& find)
    : plan_(plan),
      team_(1),
      context_{team_},
      states_(std::make_shared<States>()),
      update_(partition(plan.update, rank), bounds, {.reference = true}, find, states_),
      micro_(partition(plan.micro, rank), bounds, {.reference = true}, find, states_) {
  kernels::flush_denormals();
}

void RankTrainer::micro(const Batch& batch, i64 step, i64 first) {
  step_ = step;
  first_ = first;
  const Symbols s = plan_.symbols(batch);
  micro_.bind(s);
  auto feed = [&](const char* name, const std::vector<std::int32_t>& whole) {
    const View& part = micro_.input_part(name);
    if (part.elements() == 0) return;
    std::memcpy(part.data, whole.data() + part.box[0].begin,
                static_cast<size_t>(part.elements()) * sizeof(std::int32_t));
  };
  feed("ids", batch.ids);
  feed("position", batch.position);
  feed("sequence", batch.sequence);
  feed("targets", batch.targets);
  if (plan_.micro->graph.named.count("number") > 0) {
    std::vector<std::int32_t> number(batch.ids.size());
    std::iota(number.begin(), number.end(), static_cast<std::int32_t>(first));
    feed("number", number);
    feed("step", {static_cast<std::int32_t>(step)});
  }
  micro_.run(context_);
}

void RankTrainer::update(i64 count, double rate, i64 step) {
  Symbols s;
  s.size['T'] = 0;
  update_.bind(s);
  auto feed = [&](const char* name, double v) {
    const View& part = update_.input_part(name);
    part.dtype == DType::f64 ? void(*part.as<double>() = v) : void(*part.as<float>() = static_cast<float>(v));
  };
  feed("count", static_cast<double>(count));
  feed("rate", rate);
  feed("step", static_cast<double>(step));
  update_.run(context_);
}

double RankTrainer::output(const char* label) const {
  const View& v = update_.output(label);
  return v.dtype == DType::f64 ? *v.as<double>() : *v.as<float>();
}

std::vector<std::string> train(const TrainingPlan& plan, const Run& run) {
  const Mesh mesh = plan.micro->plan.mesh();
  const i64 ranks = mesh.world();
  if (run.fault) run.fault->check(ranks, run.processes, {"load", "training"});
  comm::LocalOptions local{.deadline_s = run.deadline_s, .slot_bytes = i64{64} << 10, .mail_bytes = 4096};
  for (i64 r = 0; r < ranks; r++) local.names.push_back(mesh.describe(r));
  comm::LocalWorld world(ranks, local);
  std::vector<bool> all;  // not axes of one rank: equal groups are one, and a rank joins it once
  for (auto& a : mesh.axes()) all.push_back(a.size > 1);
  std::set<std::vector<bool>> axes{all};
  for (auto* graph : {plan.micro.get(), plan.update.get()})
    for (auto& along : communicating_axes(*graph)) axes.insert(along);
  std::vector<std::map<std::vector<bool>, i64>> groups(static_cast<size_t>(ranks));
  for (i64 r = 0; r < ranks; r++)
    for (auto& along : axes) groups[static_cast<size_t>(r)][along] = world.add_group(mesh.group(r, along));
  std::vector<Symbols> bounds;  // of all steps: the arena is planned once
  for (i64 step = 1; step <= run.steps; step++)
    for (auto& b : run.batches(step)) bounds.push_back(plan.symbols(b));

  auto rank_of = [&](i64 rank) {
    std::map<std::vector<bool>, std::unique_ptr<comm::Communicator>> comms;
    for (auto& [along, g] : groups[static_cast<size_t>(rank)]) comms.emplace(along, world.join(g, rank));
    RankTrainer t(plan, rank, bounds, [&](const std::vector<bool>& along) {
      auto it = comms.find(along);
      return it == comms.end() ? nullptr : it->second.get();
    });
    std::optional<FaultInjector> fault;
    if (run.fault && run.fault->rank == rank) {
      fault.emplace(*run.fault, std::initializer_list{&t.micro_executor().program(), &t.update_executor().program()});
      t.micro_executor().before_calls([&](size_t call) { fault->before_call(0, call); });
      t.update_executor().before_calls([&](size_t call) { fault->before_call(1, call); });
    }
    auto enter = [&](std::string_view phase, i64 step) {
      world.set_phase(rank, phase, step);
      if (fault) fault->enter(phase, step);
    };
    enter("load", 0);
    for (auto& name : plan.weights) run.initial(name, t.state(name));
    if (run.started) run.started(t);
    for (i64 step = 1; step <= run.steps; step++) {
      enter("training", step);
      i64 count = 0, tokens = 0;
      for (auto& b : run.batches(step)) {
        t.micro(b, step, tokens);
        count += b.counted();
        tokens += b.tokens();
      }
      if (run.before_update) run.before_update(t, step);
      t.update(count, run.rate(step), step);
      if (run.after_update) run.after_update(t, step);
    }
    comms.at(all)->barrier("end");  // who does not come to the end is missed within the deadline
    return run.result ? run.result(t) : std::string();
  };
  comm::RunOptions how;
  how.stuck = run.stuck;
  if (run.processes) return comm::run_processes(world, rank_of, how);
  std::vector<std::string> results(static_cast<size_t>(ranks));
  comm::run_ranks(
      world, [&](i64 rank) { results[static_cast<size_t>(rank)] = rank_of(rank); }, how);
  return results;
}

}  // namespace plait::train
