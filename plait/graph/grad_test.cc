#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plait/graph/graph.h"

// The ops are those of graph_test.cc.
namespace plait {
namespace {

Graph dims() {
  Graph g;
  g.dims = {{'T', {0, 4}}, {'D', {6, 0}}, {'F', {8, 2}}, {'1', {1, 0}}};
  g.layers = 2;
  return g;
}

ValueId product(Graph& g, ValueId x, ValueId w, const std::string& rule) {
  return g.one("product", {x, w}, {.rule = rule, .label = "p"});
}

/// Two layers x + down(up(x)) and a loss; one weight is used twice.
ValueId build(Graph& g) {
  ValueId x = g.input("x", "TD", Type::num), up = g.state("up", "FD"), down = g.state("down", "DF");
  for (i64 l = 0; l < 2; l++) {
    g.layer = l;
    x = g.one("add", {x, product(g, product(g, x, up, "t d, f d -> t f"), down, "t f, d f -> t d")}, {.label = "x"});
  }
  ValueId per_token = product(g, x, g.state("head", "D"), "t d, d -> t");
  return g.one("total", {per_token}, {.dims = "1", .cls = Class::loss, .label = "loss"});
}

TEST(Grad, GradientsOfWeightsAreSumsOverTokens) {
  Graph g = dims();
  ValueId loss = build(g);
  auto d = grad(g, loss);
  ASSERT_EQ(d.size(), 4u);  // the input too
  for (const char* name : {"up", "down", "head"}) {
    EXPECT_EQ(g.at(d.at(name)).type, Type::sum) << name;
    EXPECT_EQ(g.at(d.at(name)).cls, Class::wgrad) << name;
    EXPECT_EQ(g.at(d.at(name)).dims, g.at(g.named.at(name)).dims) << name;
  }
  EXPECT_EQ(g.at(d.at("x")).dims, "TD");
  EXPECT_FALSE(g.backward);
  EXPECT_NO_THROW(g.verify());
}

TEST(Grad, ContributionsLieInTheLayerOfTheirUse) {
  Graph g = dims();
  ValueId loss = build(g);
  auto forward = g.nodes.size();
  grad(g, loss);
  std::map<i64, i64> dw;
  for (size_t i = forward; i < g.nodes.size(); i++) {
    EXPECT_TRUE(g.nodes[i].backward);
    if (g.nodes[i].attrs.label == "dw") dw[g.nodes[i].layer]++;
  }
  EXPECT_EQ(dw[0], 2);
  EXPECT_EQ(dw[1], 3);  // and the head
  for (size_t i = 0; i < forward; i++) EXPECT_FALSE(g.nodes[i].backward);
}

TEST(Grad, SumsOfAWeightThatLayersShareStayApart) {
  Graph g = dims();
  ValueId loss = build(g);
  auto d = grad(g, loss);
  const Node& n = g.nodes[static_cast<size_t>(g.at(d.at("up")).node)];
  EXPECT_EQ(n.op->name, "add_sums");
  EXPECT_EQ(n.layer, -1);  // no stage's own: the sums of both meet as sums
}

TEST(Grad, ResidualIsReadOnceALayer) {
  Graph g = dims();
  ValueId loss = build(g);
  grad(g, loss);
  i64 finishes = 0;
  for (auto& n : g.nodes) finishes += n.backward && n.op->name == "finish" ? 1 : 0;
  EXPECT_EQ(finishes, 2);  // dx of `up`, the only sum over F
}

TEST(Grad, NothingFlowsWhereNothingIsAsked) {
  Graph g = dims();
  ValueId x = g.input("x", "T", Type::num);
  g.one("copy", {x}, {.label = "aside"});
  ValueId loss = g.one("total", {x}, {.dims = "1"});
  auto d = grad(g, loss);
  EXPECT_EQ(d.size(), 1u);
  EXPECT_EQ(g.nodes[static_cast<size_t>(g.at(d.at("x")).node)].op->name, "spread");
}

}  // namespace
}  // namespace plait
