// The ops of this program are registered here, for all tests of the room: the room knows none itself.
#include "plait/graph/graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plait {

namespace {

using Ids = std::vector<ValueId>;

const Registry kOps[] = {
    Registry{Op{.name = "constant", .rule = "-> o"}},
    Registry{Op{.name = "add",
                .rule = "",
                .elementwise = true,
                .vjp = [](Graph&, const Node&, const Ids& d) -> Ids { return {d[0], d[0]}; }}},
    Registry{Op{.name = "add_sums", .rule = "", .elem = {Elem::as_first}, .takes_sums = true, .elementwise = true}},
    Registry{Op{.name = "finish",
                .rule = "",
                .takes_sums = true,
                .elementwise = true,
                .vjp = [](Graph&, const Node&, const Ids& d) -> Ids { return {d[0]}; }}},
    Registry{Op{.name = "finish_max", .rule = "", .takes_sums = true, .elementwise = true}},
    Registry{Op{.name = "accumulate", .rule = "", .elem = {Elem::as_first}, .takes_sums = true, .elementwise = true}},
    Registry{Op{.name = "largest", .rule = "t v -> t", .out = {Type::max}}},
    Registry{Op{.name = "copy", .rule = "", .elem = {Elem::as_first}, .elementwise = true}},
    Registry{Op{.name = "total",
                .rule = "t -> o",
                .out = {Type::sum},
                .vjp = [](Graph& g, const Node& n, const Ids& d) -> Ids {
                  return {g.one("spread", {d[0], n.in[0]}, {.label = "spread"})};
                }}},
    Registry{Op{.name = "spread", .rule = "o, t -> t"}},
    Registry{Op{.name = "halves", .rule = "t d -> t d, t", .out = {Type::num, Type::num}}},
    Registry{Op{.name = "product",
                .rule = "",
                .vjp = [](Graph& g, const Node& n, const Ids& d) -> Ids {
                  const Rule a{{n.rule.out[0], n.rule.in[1]}, {n.rule.in[0]}};
                  const Rule b{{n.rule.in[0], n.rule.out[0]}, {n.rule.in[1]}};
                  return {g.one("product", {d[0], n.in[1]}, {.rule = to_string(a), .cls = Class::dgrad, .label = "dx"}),
                          g.one("product", {n.in[0], d[0]}, {.rule = to_string(b), .cls = Class::wgrad, .label = "dw"})};
                }}},
};

Graph small() {
  Graph g;
  g.name = "small";
  g.dims = {{'T', {0, 4}}, {'D', {6, 0}}, {'F', {8, 2}}, {'V', {5, 0}}, {'1', {1, 0}}};
  g.layers = 2;
  return g;
}

std::string message(const Graph& g) {
  try {
    g.verify();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::bad_file);
    return e.what();
  }
  return "no error";
}

template <class F>
std::string thrown(F f) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::bad_file);
    return e.what();
  }
  return "no error";
}

}  // namespace

TEST(Graph, ProductIsASumWhereTheSummedDimHasLeaves) {
  Graph g = small();
  ValueId x = g.input("x", "TD", Type::num), up = g.state("up", "FD"), down = g.state("down", "DF");
  ValueId h = g.one("product", {x, up}, {.rule = "t d, f d -> t f", .label = "h"});
  ValueId y = g.one("product", {h, down}, {.rule = "t f, d f -> t d", .cls = Class::dgrad, .label = "y"});
  EXPECT_EQ(g.at(h).type, Type::num);
  EXPECT_EQ(g.at(h).dims, "TF");
  EXPECT_EQ(g.at(h).dtype, DType::f32);
  EXPECT_EQ(g.at(y).type, Type::sum);
  EXPECT_EQ(g.at(y).dtype, DType::i64);
  EXPECT_EQ(g.at(y).cls, Class::dgrad);
  // read once, however many ask
  ValueId a = g.one("add", {x, y}), b = g.one("add", {y, a});
  EXPECT_EQ(g.nodes.size(), 5u);
  EXPECT_EQ(g.nodes[static_cast<size_t>(g.at(a).node)].in[1], g.num(y));
  EXPECT_EQ(g.nodes[static_cast<size_t>(g.at(b).node)].in[0], g.num(y));
  EXPECT_EQ(message(g), "no error");
}

TEST(Graph, SumsPassThroughWhatTakesThem) {
  Graph g = small();
  g.sum = DType::f32;
  ValueId x = g.input("x", "T", Type::num);
  ValueId s = g.one("total", {x}, {.dims = "1", .cls = Class::loss});
  ValueId twice = g.one("add_sums", {s, s});
  EXPECT_EQ(g.at(twice).type, Type::sum);
  EXPECT_EQ(g.at(twice).cls, Class::loss);
  EXPECT_EQ(g.at(twice).dtype, DType::f32);
  EXPECT_EQ(g.at(g.num(twice)).type, Type::num);
}

TEST(Graph, AddsSumsFirst) {
  Graph g = small();
  ValueId n = g.input("n", "1", Type::num), x = g.input("x", "T", Type::num);
  ValueId s = g.one("total", {x}, {.dims = "1"}), t = g.one("total", {x}, {.dims = "1"});
  g.layer = 1;
  ValueId all = g.add_all({n, s, t}, 0);
  EXPECT_EQ(g.layer, 1);
  const Node& last = g.nodes[static_cast<size_t>(g.at(all).node)];
  EXPECT_EQ(last.op->name, "add");
  EXPECT_EQ(last.layer, 0);
  EXPECT_EQ(g.at(last.in[0]).type, Type::num);
  EXPECT_EQ(g.nodes[static_cast<size_t>(g.at(last.in[0]).node)].op->name, "finish");
}

TEST(Graph, MaximumIsRead) {
  Graph g = small();
  ValueId x = g.input("x", "TV", Type::num), m = g.one("largest", {x}), y = g.one("copy", {m});
  EXPECT_EQ(g.at(m).type, Type::max);
  EXPECT_EQ(g.at(y).type, Type::num);
  EXPECT_EQ(g.nodes[1].op->name, "finish_max");
}

TEST(Graph, ApplySaysWhatDoesNotFit) {
  Graph g = small();
  ValueId x = g.input("x", "TD", Type::num), w = g.state("w", "FD"), v = g.input("v", "V", Type::num);
  EXPECT_THAT(thrown([&] { g.one("no_such_op", {x}); }),
              testing::HasSubstr("no op 'no_such_op'; known: accumulate add"));
  EXPECT_THAT(thrown([&] {
                g.one("add", {x, v}, {.label = "a"});
              }),
              testing::HasSubstr("add: operand v has dims [V], want [TD] or a scalar"));
  EXPECT_THAT(thrown([&] { g.one("product", {x}, {.rule = "t d, f d -> t f", .label = "p"}); }),
              testing::HasSubstr("product (p): 1 operands, want those of"));
  EXPECT_THAT(thrown([&] {
                g.one("product", {x, v}, {.rule = "t d, f d -> t f", .label = "p"});
              }),
              testing::HasSubstr("operand v has dims [V], want those of"));
  EXPECT_THAT(thrown([&] {
                g.one("product", {x, w}, {.rule = "t d, d f -> t f", .label = "p"});
              }),
              testing::HasSubstr("factor d is dim D and dim F"));
  EXPECT_THAT(thrown([&] {
                g.one("product", {x, w}, {.rule = "t d, f d -> t f z", .label = "p"});
              }),
              testing::HasSubstr("no dim name for factor z of the output"));
  EXPECT_THAT(thrown([&] { g.state("w", "D"); }), testing::HasSubstr("w is in the graph already"));
}

TEST(GraphVerify, SumThatNobodyReads) {
  Graph g = small();
  ValueId x = g.input("x", "T", Type::num), s = g.one("total", {x}, {.dims = "1", .label = "loss"});
  ValueId y = g.one("copy", {s}, {.label = "host"});
  EXPECT_EQ(message(g), "no error");
  g.nodes[static_cast<size_t>(g.at(y).node)].in[0] = s;  // past the finish
  EXPECT_EQ(message(g), "copy (host): reads %1 (loss), a sum that nobody has finished");
}

TEST(GraphVerify, StateReadAfterItsOverwrite) {
  Graph g = small();
  ValueId w = g.state("w", "D");
  g.one("copy", {w}, {.alias = "w", .label = "step"});
  EXPECT_EQ(message(g), "no error");
  Graph late = g;
  late.one("copy", {w}, {.label = "late"});
  EXPECT_EQ(message(late), "copy (late): reads state w after it was overwritten in place");
  Graph twice = g;
  twice.nodes.push_back(g.nodes[0]);
  twice.nodes[1].in = {twice.input("x", "D", Type::num)};
  twice.nodes[1].attrs.label = "again";
  EXPECT_EQ(message(twice), "copy (again): writes %1 a second time");
  twice.nodes[1].out = {twice.one("copy", {twice.nodes[1].in[0]})};
  twice.nodes.pop_back();
  EXPECT_EQ(message(twice), "copy (again): overwrites state w a second time");
}

TEST(GraphVerify, OverwriteOfSomethingElse) {
  Graph g = small();
  ValueId x = g.input("x", "D", Type::num);
  g.state("w", "F");
  g.state("b", "D", DType::bf16);
  ValueId y = g.one("copy", {x}, {.alias = "w", .label = "y"});
  EXPECT_EQ(message(g), "copy (y): overwrites state w f32[F] with f32[D]");
  Node& n = g.nodes[static_cast<size_t>(g.at(y).node)];
  n.attrs.alias = "b";
  EXPECT_EQ(message(g), "copy (y): overwrites state b bf16[D] with f32[D]");
  n.attrs.alias = "x";
  EXPECT_EQ(message(g), "copy (y): overwrites x, which is no state");
  n.attrs.alias = "z";
  EXPECT_EQ(message(g), "copy (y): overwrites z, which is no state");
}

TEST(GraphVerify, UseBeforeDefinition) {
  Graph g = small();
  ValueId x = g.input("x", "D", Type::num), a = g.one("copy", {x}, {.label = "a"});
  g.one("copy", {a}, {.label = "b"});
  std::swap(g.nodes[0], g.nodes[1]);
  EXPECT_EQ(message(g), "copy (b): reads %1 (a) before it is made");
}

TEST(GraphVerify, OneDimAFactor) {
  Graph g = small();
  ValueId x = g.input("x", "TD", Type::num), w = g.state("w", "FD"), u = g.state("u", "FV");
  ValueId y = g.one("product", {x, w}, {.rule = "t d, f d -> t f", .label = "y"});
  Node& n = g.nodes[static_cast<size_t>(g.at(y).node)];
  n.in[1] = u;
  EXPECT_EQ(message(g), "product (y): factor d is dim D and dim V");
  n.in[1] = 99;
  EXPECT_EQ(message(g), "product (y): got %99, want one of 4 values");
  n.in = {x};
  EXPECT_THAT(message(g), testing::HasSubstr("product (y): got 1 operands and 1 outputs"));
}

}  // namespace plait
