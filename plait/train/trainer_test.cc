// Training steps of the small Llama and GPT-2 under many plans against one rank: the same bits of loss, accumulated
// gradients, moments and weights after several steps.
#include "plait/train/trainer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>

#include "plait/base/random.h"
#include "plait/models/random_weights.h"

namespace plait::train {
namespace {

ModelConfig small_llama() {
  ModelConfig c;
  c.family = "llama";
  c.D = 72, c.N = 9, c.K = 3, c.H = 8, c.F = 208, c.V = 257, c.layers = 2, c.max_positions = 64;
  c.tied = true;
  return c;
}

ModelConfig small_gpt2() {
  ModelConfig c;
  c.family = "gpt2";
  c.D = 40, c.N = 5, c.K = 5, c.H = 8, c.F = 160, c.V = 97, c.layers = 2, c.max_positions = 64;
  c.tied = c.attention_bias = true;
  return c;
}

struct Experiment {
  ModelConfig config;
  BuildOptions build;
  OptimizerSpec spec;
  i64 micros = 1;
};

Experiment experiment(const ModelConfig& config, DType real, DType compute, OptimizerSpec::Kind kind) {
  Experiment s;
  s.config = config;
  s.build.real = real;
  s.build.compute = compute;
  s.build.sum = real == DType::f64 ? DType::i128 : DType::i64;
  s.build.weight_dtype = [real](const std::string&) { return real; };
  s.build.leaves = {{'F', 16}, {'V', 32}, {'T', 8}};
  s.spec.kind = kind;
  s.spec.weight_decay = 0.1;
  return s;
}

/// Six documents a step, dealt to micro-batches in order; a function of the step alone.
std::vector<Batch> batches(const ModelConfig& c, i64 step, i64 micros) {
  std::vector<Batch> out(static_cast<size_t>(micros));
  for (i64 d = 0; d < 6; d++) {
    const u64 stream = stream_of("data") + static_cast<u64>(step * 100 + d);
    const i64 n = 3 + static_cast<i64>(random_bits(stream, 1000) % 18);
    std::vector<std::int32_t> ids, targets;
    for (i64 i = 0; i <= n; i++)
      ids.push_back(static_cast<std::int32_t>(random_bits(stream, static_cast<u64>(i)) % static_cast<u64>(c.V)));
    for (i64 i = 0; i < n; i++) targets.push_back(i % 7 == 3 ? -1 : ids[static_cast<size_t>(i) + 1]);
    ids.pop_back();
    out[static_cast<size_t>(d * micros / 6)].add_document(ids, targets);
  }
  return out;
}

/// Whole tensors by name: accumulators before each update, weights and moments after the last, the losses.
using Result = std::map<std::string, Tensor>;

Result run(const Experiment& s, const Plan& plan, i64 steps) {
  TrainingPlan p = make_training_plan(s.config, s.build, s.spec, plan);
  train::Run r;
  r.steps = steps;
  r.batches = [&](i64 step) { return batches(s.config, step, s.micros); };
  r.rate = [](i64 step) { return 1e-2 / static_cast<double>(step); };
  r.initial = [&](const std::string& name, const View& part) {
    std::vector<i64> sizes;
    Sizes fixed = static_sizes(p.micro->graph);
    for (char d : p.micro->graph.at(p.micro->graph.named.at(name)).dims) sizes.push_back(fixed.size(d));
    fill_random(name, sizes, part);
  };
  Result result;
  std::mutex lock;
  std::map<std::string, std::map<i64, Tensor>> parts;
  auto keep = [&](RankTrainer& t, const std::string& state, const std::string& as) {
    const View& v = t.state(state);
    Tensor copy(v.dtype, v.box);
    std::memcpy(copy.data, v.data, static_cast<size_t>(bytes_of(v.dtype, v.elements())));
    std::lock_guard guard(lock);
    parts[as].insert_or_assign(t.rank(), std::move(copy));
  };
  r.before_update = [&](RankTrainer& t, i64 step) {
    for (auto& w : p.weights) keep(t, "acc." + w, fmt::format("acc.{}@{}", w, step));
  };
  r.after_update = [&](RankTrainer& t, i64 step) {
    std::lock_guard guard(lock);
    const View loss = t.update_executor().output("loss");
    Tensor copy(loss.dtype, {});
    std::memcpy(copy.data, loss.data, static_cast<size_t>(bytes_of(loss.dtype, 1)));
    if (t.rank() == 0) result.emplace(fmt::format("loss@{}", step), std::move(copy));
  };
  auto after = r.after_update;
  r.after_update = [&](RankTrainer& t, i64 step) {
    after(t, step);
    if (step < steps) return;
    for (auto& w : p.weights) {
      keep(t, w, w);
      if (s.spec.kind == OptimizerSpec::Kind::adamw) keep(t, "v." + w, "v." + w);
    }
  };
  train(p, r);
  Symbols symbols;
  symbols.size['T'] = 0;
  for (auto& [as, by_rank] : parts) {
    const std::string name = as.substr(0, as.find('@'));
    const ShardedGraph& g = *p.update;
    // Copies of one element are equal on all who hold it.
    const ValueId v = g.graph.named.at(name);
    bool complete = true;
    for (auto& a : g.of(v)) complete &= a.join == Joined::copy;
    Tensor whole = join_parts(g, v, symbols, [&](i64 rank) -> const View* { return &by_rank.at(rank); });
    for (auto& [rank, part] : by_rank)
      for_each(complete ? part.box : Box{{0, 0}}, [&](const std::vector<i64>& x) {
        const i64 w = bytes_of(part.dtype, 1);
        if (std::memcmp(part.as<std::byte>() + part.at(x) * w, whole.as<std::byte>() + whole.at(x) * w,
                        static_cast<size_t>(w)) != 0)
          fail(Code::differs, "rank {} holds another copy of {}", rank, as);
      });
    result.emplace(as, std::move(whole));
  }
  return result;
}

std::string difference(const Result& a, const Result& b) {
  for (auto& [name, x] : a) {
    auto it = b.find(name);
    if (it == b.end()) return name + " is missing";
    if (std::memcmp(x.data, it->second.data, static_cast<size_t>(bytes_of(x.dtype, x.elements()))) != 0) return name;
  }
  return a.size() == b.size() ? "" : "another number of values";
}

PlanAxis axis(const std::string& name, i64 size, const std::string& dims, bool data = false,
              std::vector<i64> weights = {}) {
  return {name, size, dims, data, std::move(weights)};
}

std::vector<Plan> plans(i64 heads) {
  std::vector<Plan> all = {Plan{{axis("tp", 2, "NKFV")}},
                           Plan{{axis("tp", 4, "NKFVT")}},
                           Plan{{axis("tp", 3, "KNFV")}},
                           Plan{{axis("tp", 2, "NKFV", false, {3, 1})}},
                           Plan{{axis("dp", 2, "T", true)}},
                           Plan{{axis("dp", 3, "T", true), axis("tp", 2, "NKFV")}},
                           Plan{{axis("dp", 2, "T", true), axis("cp", 2, "T"), axis("tp", 2, "NKFV")}},
                           Plan{{axis("cp", 3, "T")}}};
  if (heads >= 9) all.push_back(Plan{{axis("tp", 9, "NKFV")}});
  return all;
}

void sweep(Experiment s, i64 steps) {
  const Result oracle = run(s, tensor_parallel(1), steps);
  for (i64 micros : {2, 3}) {
    s.micros = micros;
    EXPECT_EQ(difference(oracle, run(s, tensor_parallel(1), steps)), "") << micros << " micro-batches";
  }
  for (auto& plan : plans(s.config.N)) {
    s.micros = 1 + static_cast<i64>(plan.axes.size() % 2);
    EXPECT_EQ(difference(oracle, run(s, plan, steps)), "") << plan.text();
  }
}

TEST(TrainingStep, LlamaAdamwF32) {
  sweep(experiment(small_llama(), DType::f32, DType::f32, OptimizerSpec::Kind::adamw), 2);
}
TEST(TrainingStep, LlamaSgdF64) {
  sweep(experiment(small_llama(), DType::f64, DType::f64, OptimizerSpec::Kind::sgd), 2);
}
TEST(TrainingStep, Gpt2AdamwF32) {
  sweep(experiment(small_gpt2(), DType::f32, DType::f32, OptimizerSpec::Kind::adamw), 2);
}

/// Ten steps against PyTorch's autograd and optimizers in f64 (scripts/oracles/training.py).
TEST(TrainingStep, EqualsPyTorch) {
  std::ifstream in("tests/data/training.json");
  ASSERT_TRUE(in) << "run from the repository's root";
  const auto want = nlohmann::json::parse(in);
  for (const std::string family : {"llama", "gpt2"})
    for (const std::string optimizer : {"sgd", "adamw"}) {
      const auto kind = optimizer == "sgd" ? OptimizerSpec::Kind::sgd : OptimizerSpec::Kind::adamw;
      Experiment e = experiment(family == "llama" ? small_llama() : small_gpt2(), DType::f64, DType::f64, kind);
      const Result got = run(e, Plan{{axis("dp", 2, "T", true), axis("tp", 2, "NKFV")}}, 10);
      const auto& w = want.at(family + "_" + optimizer);
      for (i64 step = 1; step <= 10; step++) {
        const double loss = *got.at(fmt::format("loss@{}", step)).as<double>(),
                     expected = w.at("losses").at(static_cast<size_t>(step) - 1);
        EXPECT_NEAR(loss, expected, 1e-9 * std::fabs(expected)) << family << " " << optimizer << " step " << step;
      }
      for (auto& [name, x] : w.at("weights").items()) {
        const Tensor& t = got.at(name);
        double sum = 0, squares = 0;
        for (i64 i = 0; i < t.elements(); i++) {
          sum += t.as<double>()[i];
          squares += t.as<double>()[i] * t.as<double>()[i];
        }
        EXPECT_NEAR(squares, x.at("squares").get<double>(), 1e-9 * squares)
            << family << " " << optimizer << " " << name;
        EXPECT_NEAR(sum, x.at("sum").get<double>(), 1e-9 * std::sqrt(squares * static_cast<double>(t.elements())))
            << name;
        for (size_t i = 0; i < x.at("first").size(); i++)
          EXPECT_NEAR(t.as<double>()[i], x.at("first").at(i).get<double>(), 1e-9) << name;
      }
    }
}

TEST(TrainingStep, LossFalls) {
  Experiment s = experiment(small_llama(), DType::f32, DType::f32, OptimizerSpec::Kind::adamw);
  TrainingPlan p =
      make_training_plan(s.config, s.build, s.spec, Plan{{axis("dp", 2, "T", true), axis("tp", 2, "NKFV")}});
  std::vector<double> losses;
  train::Run r;
  r.steps = 12;
  r.batches = [&](i64) { return batches(s.config, 1, 1); };
  r.rate = [](i64) { return 1e-2; };
  r.initial = [&](const std::string& name, const View& part) {
    std::vector<i64> sizes;
    Sizes fixed = static_sizes(p.micro->graph);
    for (char d : p.micro->graph.at(p.micro->graph.named.at(name)).dims) sizes.push_back(fixed.size(d));
    fill_random(name, sizes, part);
  };
  r.after_update = [&](RankTrainer& t, i64) {
    if (t.rank() == 0) losses.push_back(t.loss());
  };
  train(p, r);
  EXPECT_LT(losses.back(), 0.5 * losses.front());
}

}  // namespace
}  // namespace plait::train
