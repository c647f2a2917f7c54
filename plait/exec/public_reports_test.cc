// Faults that users of other engines reported (docs/testing.md lists them by case), tried on sharded graphs.
#include <gtest/gtest.h>

#include <cstring>

#include "plait/exec/evaluate.h"
#include "plait/exec/run_sharded.h"
#include "plait/models/family.h"
#include "plait/models/random_weights.h"

namespace plait {
namespace {

ModelConfig model(const std::string& family) {
  ModelConfig c;
  c.family = family;
  c.D = 64, c.N = 8, c.K = family == "gpt2" ? 8 : 2, c.H = 8, c.F = 96, c.V = 257, c.layers = 2, c.max_positions = 64;
  c.tied = true;
  c.attention_bias = family == "gpt2";
  return c;
}

Plan along(const std::string& name, i64 size, const std::string& dims) { return Plan{{{name, size, dims, false, {}}}}; }

/// The forward pass over documents; weight(name, tensor) fills a state. Whole values by label.
struct Forward {
  Graph graph;
  Symbols symbols;
  std::map<std::string, Tensor> tensors;
  std::map<std::string, View> named;

  Forward(const ModelConfig& config, const std::vector<std::vector<std::int32_t>>& documents,
          const std::function<void(const std::string&, Tensor&)>& weight) {
    BuildOptions o;
    o.leaves = {{'F', 16}, {'V', 32}, {'T', 4}};
    graph = build_training(config, o);
    symbols.sequence_edges = symbols.token_edges = {0};
    std::map<std::string, std::vector<std::int32_t>> inputs;
    for (size_t d = 0; d < documents.size(); d++) {
      const i64 begin = symbols.sequence_edges.back(), n = static_cast<i64>(documents[d].size());
      for (i64 t = 0; t < n; t++) {
        if (t > 0 && t % 4 == 0) symbols.token_edges.push_back(begin + t);
        inputs["ids"].push_back(documents[d][static_cast<size_t>(t)]);
        inputs["position"].push_back(static_cast<std::int32_t>(t));
        inputs["sequence"].push_back(static_cast<std::int32_t>(d));
        inputs["targets"].push_back(documents[d][static_cast<size_t>((t + 1) % n)]);
      }
      symbols.token_edges.push_back(begin + n);
      symbols.sequence_edges.push_back(begin + n);
    }
    symbols.size['T'] = symbols.sequence_edges.back();
    const Sizes sizes = bound_sizes(graph, symbols);
    for (auto& [name, v] : graph.named) {
      Tensor t(graph.at(v).dtype, whole_box(graph.at(v).dims, sizes));
      if (graph.at(v).kind == Kind::state)
        weight(name, t);
      else
        std::memcpy(t.data, inputs.at(name).data(), inputs.at(name).size() * sizeof(std::int32_t));
      tensors.emplace(name, std::move(t));
    }
    for (auto& [name, t] : tensors) named.emplace(name, t);
  }

  std::map<std::string, std::vector<float>> run(const Plan& plan, const std::vector<std::string>& labels) const {
    auto s = std::make_shared<ShardedGraph>(propagate(graph, plan));
    const ShardedRun r = run_sharded(s, named, symbols);
    std::map<std::string, std::vector<float>> out;
    for (auto& n : graph.nodes)
      if (std::find(labels.begin(), labels.end(), n.attrs.label) != labels.end()) {
        const Tensor t = r.whole(*s, n.out[0], symbols);
        out[n.attrs.label].assign(t.as<float>(), t.as<float>() + t.elements());
      }
    EXPECT_EQ(out.size(), labels.size());
    return out;
  }
};

TEST(PublicReports, S02_BiasAfterARowParallelProductStandsOnce) {
  const ModelConfig c = model("gpt2");
  const Forward f(c, {{1, 2, 3, 4, 5}}, [](const std::string& name, Tensor& t) {
    const bool attention = name.ends_with("0.wo.bias"), ffn = name.ends_with("0.down.bias");
    for (i64 i = 0; i < t.elements(); i++)
      t.as<float>()[i] = attention ? static_cast<float>(i + 1) : ffn ? static_cast<float>(100 * (i + 1)) : 0;
  });
  for (auto& plan : {along("tp", 1, "NKFV"), along("tp", 2, "NKFV"), along("tp", 4, "NKFV"), along("tp", 4, "NKFVT")}) {
    const auto got = f.run(plan, {"layers.0.attention.residual", "layers.0.out"});
    for (i64 i = 0; i < 5 * c.D; i++) {
      const float d = static_cast<float>(i % c.D + 1);
      ASSERT_EQ(got.at("layers.0.attention.residual")[static_cast<size_t>(i)], d) << plan.text();
      ASSERT_EQ(got.at("layers.0.out")[static_cast<size_t>(i)], 101 * d) << plan.text();
    }
  }
}

void random(const std::string& name, Tensor& t) {
  std::vector<i64> sizes;
  for (auto& r : t.box) sizes.push_back(r.size());
  fill_random(name, sizes, t);
}

TEST(PublicReports, S21_EveryPositionHasTheNextIdAsItsTarget) {
  const ModelConfig c = model("llama");
  std::vector<std::int32_t> counting(17);
  for (size_t i = 0; i < counting.size(); i++) counting[i] = static_cast<std::int32_t>(i);
  const Forward f(c, {counting}, random);
  const std::vector<std::string> labels = {"output", "logits.pick", "nll"};
  const auto whole = f.run(along("cp", 1, "T"), labels);
  for (size_t t = 0; t < 17; t++)
    EXPECT_EQ(whole.at("logits.pick")[t], whole.at("output")[t * 257 + (t + 1) % 17]) << t;
  for (i64 n : {2, 4}) EXPECT_EQ(f.run(along("cp", n, "T"), labels), whole) << n;
}

TEST(PublicReports, S31_DocumentsOfABatchDoNotSeeEachOther) {
  const std::vector<std::int32_t> a = {5, 9, 200, 31, 7, 77, 2}, other = {250, 3, 3, 18, 91, 0, 1}, b = {8, 6, 4, 2, 1};
  const ModelConfig c = model("llama");
  const Forward f(c, {a, b}, random), g(c, {other, b}, random);
  const auto edge = static_cast<long>(a.size()) * c.V;
  for (auto& plan : {along("cp", 1, "T"), along("cp", 3, "T"), along("tp", 4, "NKFVT")}) {
    const auto x = f.run(plan, {"output"}).at("output"), y = g.run(plan, {"output"}).at("output");
    EXPECT_NE(std::vector<float>(x.begin(), x.begin() + edge), std::vector<float>(y.begin(), y.begin() + edge));
    EXPECT_EQ(std::vector<float>(x.begin() + edge, x.end()), std::vector<float>(y.begin() + edge, y.end()))
        << plan.text();
  }
}

}  // namespace
}  // namespace plait
