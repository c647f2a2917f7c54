// The small Llama (9 query heads, 3 KV heads, tied embedding, vocabulary 257, FFN of an odd number of leaves), forward
// and backward, through propagate and partition under many plans: every value of every rank has the bits of one device,
// and the collectives are counted.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "plait/base/random.h"
#include "plait/exec/evaluate.h"
#include "plait/exec/run_sharded.h"
#include "plait/models/family.h"
#include "plait/models/random_weights.h"
#include "plait/models/test_configs.h"

namespace plait {
namespace {

/// Forward, backward, and the inputs of a few documents of uneven length.
struct Case {
  Graph graph;
  std::map<std::string, ValueId> grads;
  Symbols symbols;
  std::map<std::string, Tensor> tensors;
  std::map<std::string, View> named;
  Evaluation oracle;

  Case(const ModelConfig& config, DType real) : Case(config, real, real) {}
  Case(const ModelConfig& config, DType real, DType compute) {
    BuildOptions o;
    o.real = real;
    o.compute = compute;
    o.weight_dtype = [real](const std::string&) { return real; };
    o.sum = real == DType::f64 ? DType::i128 : DType::i64;
    o.leaves = {{'F', 16}, {'V', 32}, {'T', 8}};
    graph = build_training(config, o);
    grads = grad(graph, graph.nodes.back().out[0]);
    graph.verify();
    const std::vector<i64> lengths{7, 12, 3, 9};
    symbols.sequence_edges = symbols.token_edges = {0};
    for (i64 n : lengths) {
      const i64 begin = symbols.sequence_edges.back();
      for (i64 t = 8; t < n; t += 8) symbols.token_edges.push_back(begin + t);
      symbols.token_edges.push_back(begin + n);
      symbols.sequence_edges.push_back(begin + n);
    }
    const i64 T = symbols.sequence_edges.back();
    symbols.size['T'] = T;
    const Sizes sizes = bound_sizes(graph, symbols);
    for (auto& [name, v] : graph.named) {
      const Value& x = graph.at(v);
      Tensor t(x.dtype, whole_box(x.dims, sizes));
      if (x.kind == Kind::state) {
        std::vector<i64> shape;
        for (auto r : t.box) shape.push_back(r.size());
        fill_random(name, shape, t);
      } else {
        for (i64 i = 0; i < T; i++) {
          i64 s = 0;
          while (symbols.sequence_edges[static_cast<size_t>(s) + 1] <= i) s++;
          i64 value = static_cast<i64>(random_bits(stream_of(name), static_cast<u64>(i)) % static_cast<u64>(config.V));
          if (name == "position") value = i - symbols.sequence_edges[static_cast<size_t>(s)];
          if (name == "sequence") value = s;
          if (name == "targets" && i % 5 == 0) value = -1;
          t.as<std::int32_t>()[i] = static_cast<std::int32_t>(value);
        }
      }
      named.emplace(name, t);
      tensors.emplace(name, std::move(t));
    }
    for (auto& [name, view] : named) view = tensors.at(name);
    oracle = evaluate(graph, named, sizes);
  }

  /// Empty when the plan gives the bits of one device, else what differs first.
  std::string run(const Plan& plan) const {
    auto s = std::make_shared<ShardedGraph>(propagate(graph, plan));
    s->verify();
    ShardedRun r = run_sharded(s, named, symbols);
    std::string d = first_difference(*s, r, [&](ValueId v) -> const View* {
      const Value& x = graph.at(v);
      return x.kind == Kind::temp ? &oracle.values[static_cast<size_t>(v)] : &named.at(x.name);
    });
    if (!d.empty()) return d;
    for (auto& [name, v] : grads) {  // sums that no rank reads whole
      Tensor whole = r.whole(*s, v, symbols);
      const View& want = oracle.values[static_cast<size_t>(v)];
      if (std::memcmp(whole.data, want.data, static_cast<size_t>(bytes_of(want.dtype, want.elements()))) != 0)
        return "gradient of " + name;
    }
    return {};
  }
};

PlanAxis axis(const std::string& name, i64 size, const std::string& dims, bool data = false,
              std::vector<i64> weights = {}) {
  return {name, size, dims, data, std::move(weights)};
}

std::vector<Plan> chosen_plans(i64 heads) {
  std::vector<Plan> plans;
  for (i64 n : {2, 3, 4, 5}) plans.push_back(Plan{{axis("tp", n, "NKFV")}});
  if (heads >= 9)
    for (i64 n : {7, 9}) plans.push_back(Plan{{axis("tp", n, "NKFV")}});
  plans.push_back(Plan{{axis("tp", 2, "NKFV", false, {3, 1})}});
  plans.push_back(Plan{{axis("tp", 3, "NKFV", false, {0, 2, 1})}});
  plans.push_back(Plan{{axis("tp", 3, "KNFV")}});
  plans.push_back(Plan{{axis("tp", 4, "NKFVT")}});
  plans.push_back(Plan{{axis("dp", 2, "T", true)}});
  plans.push_back(Plan{{axis("cp", 3, "T")}});
  plans.push_back(Plan{{axis("dp", 2, "T", true), axis("tp", 3, "NKFVT")}});
  plans.push_back(Plan{{axis("dp", 2, "T", true), axis("cp", 2, "T"), axis("tp", 2, "NKFV")}});
  plans.push_back(Plan{{axis("a", 2, "NKFV"), axis("b", 2, "NKFV")}});
  plans.push_back(Plan{{axis("tp", 2, "FV"), axis("dp", 2, "T", true)}});
  plans.push_back(Plan{{axis("pp", 2, "L"), axis("tp", 2, "NKFV")}});
  return plans;
}

void sweep(const Case& c, i64 heads) {
  for (auto& plan : chosen_plans(heads)) EXPECT_EQ(c.run(plan), "") << plan.text();
}

TEST(Layouts, LlamaF32) { sweep(Case(small_llama(), DType::f32), 9); }
TEST(Layouts, LlamaF64) { sweep(Case(small_llama(), DType::f64), 9); }
TEST(Layouts, Gpt2F32) { sweep(Case(small_gpt2(), DType::f32), 5); }
TEST(Layouts, LlamaBf16) { sweep(Case(small_llama(), DType::f32, DType::bf16), 9); }

TEST(Layouts, RefusesACutInsideALeaf) {
  Case c(small_llama(), DType::f32);
  try {
    c.run(Plan{{axis("tp", 2, "D")}});
    FAIL() << "a plan that cuts D was taken";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::usage);
    EXPECT_NE(std::string(e.what()).find("cuts D"), std::string::npos) << e.what();
  }
}

/// Collectives by name, those of one layer apart: what a plan costs beyond equal bits.
std::map<std::string, i64> count(const Graph& g, const Plan& plan, i64 layer, bool backward) {
  ShardedGraph s = propagate(g, plan);
  Sizes sizes = static_sizes(s.graph);
  Binding b(s.plan, sizes);
  std::map<std::string, i64> n;
  for (size_t i = 0; i < s.steps.size(); i++) {
    const Step& st = s.steps[i];
    if (st.node >= 0) continue;
    const Node* reader = nullptr;  // of the reshard
    for (auto& other : s.steps)
      if (other.node >= 0 && reader == nullptr &&
          std::find(other.in.begin(), other.in.end(), st.value) != other.in.end())
        reader = &s.graph.nodes[static_cast<size_t>(other.node)];
    if (reader == nullptr || reader->layer != layer || reader->backward != backward) continue;
    n[to_string(recognise(s.of(st.source), s.of(st.value), s.logical(st.source).dims, b), s.plan)]++;
  }
  return n;
}

using Counts = std::map<std::string, i64>;

/// Forward and backward of three layers: layer 1 has neither the embedding nor the loss.
Graph three_layers() {
  ModelConfig c = small_llama();
  c.layers = 3;
  BuildOptions o;
  o.real = o.compute = DType::f64;
  o.sum = DType::i128;
  Graph g = build_training(c, o);
  grad(g, g.nodes.back().out[0]);
  return g;
}

TEST(Collectives, TensorParallelHasTwoAllReducesALayerEachWay) {
  const Graph g = three_layers();
  for (i64 tp : {2, 4}) {
    const Plan groups{{axis("tp", tp, "KNFV")}};
    EXPECT_EQ(count(g, groups, 1, false), (Counts{{"all_reduce tp", 2}})) << tp;
    EXPECT_EQ(count(g, groups, 1, true), (Counts{{"all_reduce tp", 2}})) << tp;
    const Plan heads{{axis("tp", tp, "NKFV")}};  // heads cut inside a KV group: dk and dv are summed as well
    EXPECT_EQ(count(g, heads, 1, false), (Counts{{"all_reduce tp", 2}})) << tp;
    EXPECT_EQ(count(g, heads, 1, true), (Counts{{"all_reduce tp", 2}, {"sum_overlap tp", 2}})) << tp;
  }
  // Heads cut between groups: nothing overlaps, and static ranges show it.
  EXPECT_EQ(count(g, Plan{{axis("tp", 3, "NKFV")}}, 1, true), (Counts{{"all_reduce tp", 2}}));
}

TEST(Collectives, SequenceParallelHasGathersAndScatters) {
  const Graph g = three_layers();
  const Plan plan{{axis("tp", 4, "KNFVT")}};
  EXPECT_EQ(count(g, plan, 1, false), (Counts{{"all_gather tp", 2}, {"reduce_scatter tp", 2}}));
  Counts back = count(g, plan, 1, true);
  // Backward gathers the cotangents of the two sums and, once more, the two norm outputs: none is kept from forward.
  EXPECT_EQ(back["reduce_scatter tp"], 2);
  EXPECT_EQ(back["all_gather tp"], 4);
}

TEST(Collectives, DataParallelMovesNothingInAMicroStep) {
  const Graph g = three_layers();
  EXPECT_TRUE(count(g, Plan{{axis("dp", 2, "T", true)}}, 1, false).empty());
  EXPECT_TRUE(count(g, Plan{{axis("dp", 2, "T", true)}}, 1, true).empty());
}

TEST(Layouts, TextFormsRoundTrip) {
  Case c(small_llama(), DType::f32);
  for (auto& plan : chosen_plans(9)) {
    auto s = std::make_shared<ShardedGraph>(propagate(c.graph, plan));
    const std::string text = s->text();
    EXPECT_EQ(ShardedGraph::parse(text).text(), text) << plan.text();
    Program p = partition(s, plan.world() - 1);
    EXPECT_EQ(Program::parse(p.text()).text(), p.text()) << plan.text();
  }
}

/// Random names, orders, weights with zeros, nested axes. PLAIT_FUZZ_PLANS (count) and PLAIT_FUZZ_SEED make it long.
TEST(Layouts, RandomPlans) {
  auto number = [](const char* name, u64 otherwise) {
    const char* s = std::getenv(name);
    return s != nullptr ? std::strtoull(s, nullptr, 10) : otherwise;
  };
  const u64 plans = number("PLAIT_FUZZ_PLANS", 60), seed = number("PLAIT_FUZZ_SEED", 1);
  Case llama(small_llama(), DType::f32), gpt2(small_gpt2(), DType::f32);
  u64 refused = 0;
  for (u64 k = 0; k < plans; k++) {
    u64 draw = 0;
    auto random = [&](u64 below) { return random_bits(seed * 1000003 + k, draw++) % below; };
    Plan plan;
    const u64 axes = 1 + random(3);
    for (u64 a = 0; a < axes; a++) {
      PlanAxis x;
      x.name = std::string(1, static_cast<char>('a' + a));
      x.size = static_cast<i64>(1 + random(3));
      std::string names = "NKFVT";
      for (size_t i = names.size(); i > 1; i--) std::swap(names[i - 1], names[random(i)]);
      x.dims = names.substr(0, 1 + random(5));
      if (random(4) == 0) {
        x.data = true;
        x.dims = "T";
      }
      if (random(8) == 0) x.dims = "L";
      if (random(3) == 0) {
        i64 total = 0;
        for (i64 i = 0; i < x.size; i++) total += x.weights.emplace_back(static_cast<i64>(random(4)));
        if (total == 0) x.weights[0] = 1;
      }
      plan.axes.push_back(x);
    }
    try {
      EXPECT_EQ((k % 3 == 2 ? gpt2 : llama).run(plan), "") << "seed " << seed << " plan " << k << "\n" << plan.text();
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Code::usage) << "seed " << seed << " plan " << k << ": " << e.what() << "\n" << plan.text();
      refused++;
    }
  }
  EXPECT_LT(refused * 2, plans);
  RecordProperty("refused", static_cast<int>(refused));
}

}  // namespace
}  // namespace plait
