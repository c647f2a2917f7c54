#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "plait/base/random.h"
#include "plait/graph/graph.h"

// The ops are those of graph_test.cc.
namespace plait {
namespace {

Graph example() {
  Graph g;
  g.name = "a \"small\" graph";
  g.dims = {{'T', {0, 4}}, {'D', {6, 0}}, {'F', {8, 2}}, {'1', {1, 0}}};
  g.layers = 2;
  g.compute = DType::bf16;
  ValueId x = g.input("x", "TD", Type::num), ids = g.input("ids", "T"), up = g.state("layers.0.up", "FD", DType::q8_0);
  g.layer = 0;
  ValueId h = g.one("product", {x, up}, {.rule = "t d,f d->t f", .label = "h", .elem = Elem::compute});
  g.layer = 1;
  ValueId y =
      g.one("product", {h, g.state("layers.0.down", "DF")},
            {.rule = "t f, d f -> t d", .x = {{"eps", 1e-5}, {"tiny", 5e-324}, {"third", 1.0 / 3}, {"low", -0.0}}});
  g.apply("halves", {g.one("add", {x, y}, {.label = "two words"})}, {.label = "h2"});
  ValueId s = g.one("total", {g.input("losses", "T", Type::num)}, {.dims = "1", .cls = Class::loss, .label = "loss"});
  g.layer = -1;
  g.one("accumulate", {g.state("acc.loss", "1", Type::sum, Class::loss), s},
        {.alias = "acc.loss", .label = "acc.loss"});
  g.one("copy", {ids});
  g.num(s);
  g.values.back().name = "renamed";
  return g;
}

TEST(GraphText, IsReadable) {
  EXPECT_EQ(example().text(),
            "graph \"a \\\"small\\\" graph\" real f32 compute bf16 sum i64 layers 2\n"
            "dim 1 1\n"
            "dim D 6\n"
            "dim F 8 leaf 2\n"
            "dim T 0 leaf 4\n"
            "input %0 x f32 num [T D]\n"
            "input %1 ids i32 index [T]\n"
            "state %2 layers.0.up q8_0 num [F D]\n"
            "state %4 layers.0.down f32 num [D F]\n"
            "input %10 losses f32 num [T]\n"
            "state %12 acc.loss i64 sum loss [1]\n"
            "%3 bf16 num [T F] = product(%0, %2) \"t d, f d -> t f\" elem compute label h layer 0\n"
            "%5 i64 sum [T D] = product(%3, %4) \"t f, d f -> t d\" {eps 1e-05, low -0, third 0.3333333333333333, tiny "
            "5e-324} layer 1\n"
            "%6 f32 num [T D] = finish(%5) \"a b -> a b\" label product layer 1\n"
            "%7 f32 num [T D] = add(%0, %6) \"a b, a b -> a b\" label \"two words\" layer 1\n"
            "%8 f32 num [T D], %9 f32 num [T] = halves(%7) label h2 layer 1\n"
            "%11 i64 sum loss [1] = total(%10) dims 1 class loss label loss layer 1\n"
            "%13 i64 sum loss [1] = accumulate(%12, %11) \"a, a -> a\" alias acc.loss label acc.loss\n"
            "%14 i32 num [T] = copy(%1) \"a -> a\"\n"
            "%15 name renamed f32 num [1] = finish(%11) \"a -> a\" label loss\n");
}

void expect_same(const Graph& a, const Graph& b) {
  EXPECT_EQ(a.name, b.name);
  EXPECT_EQ(a.layers, b.layers);
  EXPECT_EQ(a.named, b.named);
  EXPECT_TRUE(a.real == b.real && a.compute == b.compute && a.sum == b.sum);
  ASSERT_EQ(a.dims.size(), b.dims.size());
  for (auto& [c, d] : a.dims) EXPECT_TRUE(b.dims.at(c).size == d.size && b.dims.at(c).leaf == d.leaf) << c;
  ASSERT_EQ(a.values.size(), b.values.size());
  for (size_t i = 0; i < a.values.size(); i++) {
    const Value &x = a.values[i], &y = b.values[i];
    EXPECT_TRUE(x.name == y.name && x.dims == y.dims && x.type == y.type && x.dtype == y.dtype && x.cls == y.cls &&
                x.kind == y.kind && x.node == y.node)
        << i;
  }
  ASSERT_EQ(a.nodes.size(), b.nodes.size());
  for (size_t i = 0; i < a.nodes.size(); i++) {
    const Node &x = a.nodes[i], &y = b.nodes[i];
    EXPECT_TRUE(x.op == y.op && x.rule.in == y.rule.in && x.rule.out == y.rule.out && x.in == y.in && x.out == y.out)
        << i;
    EXPECT_TRUE(x.layer == y.layer && x.backward == y.backward && x.attrs.dims == y.attrs.dims &&
                x.attrs.cls == y.attrs.cls && x.attrs.alias == y.attrs.alias && x.attrs.label == y.attrs.label &&
                x.attrs.elem == y.attrs.elem && x.attrs.rule.empty() == y.attrs.rule.empty())
        << i;
    ASSERT_EQ(x.attrs.x.size(), y.attrs.x.size()) << i;
    for (auto& [key, v] : x.attrs.x)
      EXPECT_EQ(std::bit_cast<u64>(y.attrs.x.at(key)), std::bit_cast<u64>(v)) << i << " " << key;
  }
}

TEST(GraphText, ReadsBackTheSameGraph) {
  Graph g = example(), again = Graph::parse(g.text());
  expect_same(g, again);
  EXPECT_EQ(again.text(), g.text());
}

TEST(GraphText, KeepsGradients) {
  Graph g;
  g.dims = {{'T', {0, 4}}, {'D', {6, 0}}, {'1', {1, 0}}};
  ValueId y = g.one("product", {g.input("x", "TD", Type::num), g.state("w", "D")}, {.rule = "t d, d -> t"});
  grad(g, g.one("total", {y}, {.dims = "1", .cls = Class::loss}));
  Graph again = Graph::parse(g.text());
  expect_same(g, again);
  EXPECT_TRUE(again.nodes.back().backward);
}

TEST(GraphText, ReadGraphsGrow) {
  Graph g = Graph::parse(example().text());
  auto before = g.nodes.size();
  ValueId s = g.nodes[5].out[0];
  EXPECT_EQ(g.at(s).type, Type::sum);
  EXPECT_EQ(g.at(g.num(s)).name, "renamed");  // no second finish
  EXPECT_EQ(g.nodes.size(), before);
}

std::string message(const std::string& text) {
  try {
    Graph::parse(text);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::bad_file);
    return e.what();
  }
  return "no error";
}

TEST(GraphText, SaysWhereAndWhat) {
  const std::string head = "graph g real f32 compute f32 sum i64 layers 1\n", dims = "dim T 0\ndim D 6\n";
  const std::string base = head + dims + "input %0 x f32 num [T D]\n";
  EXPECT_EQ(message(base), "no error");
  EXPECT_EQ(message(""), "[graph text, line 1] got nothing, want 'graph'");
  EXPECT_EQ(message("grph"), "[graph text, line 1] got 'grph', want 'graph'");
  EXPECT_EQ(message("graph g real f31"), "[graph text, line 1] got 'f31', want an element type");
  EXPECT_EQ(message(head + "dim T -1"), "[graph text, line 2] got '-1', want a size");
  EXPECT_EQ(message(head + "dim T 99999999999999999999"),
            "[graph text, line 2] got '99999999999999999999', want a size");
  EXPECT_EQ(message(head + dims + "dim T 2"), "[graph text, line 4] dim T is given already");
  EXPECT_EQ(message(base + "%2 f32 num [T D] = copy(%0) \"a b -> a b\""),
            "[graph text, line 5] got %2, want %1: values are numbered from 0 without gaps");
  EXPECT_EQ(message(base + "%0 f32 num [T D] = copy(%0) \"a b -> a b\""),
            "[graph text, line 5] %0 is defined already, in line 4");
  EXPECT_EQ(message(base + "%1 f32 nam [T D] = copy(%0)"),
            "[graph text, line 5] got 'nam [T D] = copy(%0)', want num, index, sum or max");
  EXPECT_EQ(message(base + "%1 f32 num [T D] = copy(%0) \"a b -> a b\" lable x"),
            "[graph text, line 5] got 'lable x', want dims, class, elem, alias, label, layer or backward");
  EXPECT_EQ(message(base + "%1 f32 num [T D = copy(%0)"), "[graph text, line 5] got '= copy(%0)', want a dim or ']'");
  EXPECT_EQ(message(base + "%1 f32 num [T D] = copy(%0) \"a b"),
            "[graph text, line 5] got '\"a b', want a closing quote after at most 1024 characters");
  EXPECT_EQ(message(base + "%1 f32 num [T D] = copy(%0) \"a b -> a b\" {eps}"),
            "[graph text, line 5] got '}', want a number");
  EXPECT_THAT(message(base + "%1 f32 num [T D] = coppy(%0)"), testing::HasSubstr("no op 'coppy'"));
  EXPECT_THAT(message(base + "%1 f32 num [T D] = copy(%7) \"a b -> a b\""), testing::HasSubstr("got %7"));
  EXPECT_THAT(message(base + "%1 f32 num [T] = copy(%0) \"a b -> a b\""), testing::HasSubstr("has dims [T]"));
  EXPECT_THAT(message(base + "%1 f32 num [T Q] = copy(%0) \"a b -> a b\""), testing::HasSubstr("dim Q is not given"));
  EXPECT_EQ(message(head + dims + "input %0 x f32 sum [T D]\n%1 f32 num [T D] = copy(%0) \"a b -> a b\""),
            "copy (): reads %0 (x), a sum that nobody has finished");
}

TEST(GraphText, BoundsWhatALineMayMake) {
  const std::string base = "graph g real f32 compute f32 sum i64 layers 1\ndim T 0\ninput %0 x f32 num [T]\n";
  EXPECT_THAT(message(base + "%1 f32 num [T] = copy() \"-> a\""), testing::HasSubstr("got no operand"));
  std::string numbers = "%1 f32 num [T] = copy(%0) \"a -> a\" {a 1";
  for (int i = 0; i < 40; i++) numbers += fmt::format(", a{} 1", i);
  EXPECT_THAT(message(base + numbers + "}"), testing::HasSubstr("want at most 32 numbers"));
  std::string rule = "a";
  for (int i = 0; i < 300; i++) rule += ",a";
  EXPECT_THAT(message(base + "%1 f32 num [T] = copy(%0) \"" + rule + " -> a\""), testing::HasSubstr("at most 512"));
  std::string inputs = base;
  for (int i = 1; i <= 70'000; i++) inputs += fmt::format("input %{} x{} f32 num [T]\n", i, i);
  EXPECT_THAT(message(inputs), testing::HasSubstr("want at most 65536 values"));
}

// Whatever the bytes, an Error or a graph that prints and reads back.
TEST(GraphText, SurvivesDamage) {
  const std::string text = example().text();
  i64 read = 0, refused = 0;
  for (u64 i = 0; i < 6000; i++) {
    std::string t = text;
    for (u64 k = 0; k <= random_bits(1, i) % 3; k++) {
      u64 r = random_bits(2 + k, i);
      size_t at = static_cast<size_t>(r % t.size());
      switch (r >> 32 & 3) {
        case 0:
          t[at] = static_cast<char>(r >> 40);
          break;
        case 1:
          t.erase(at, 1 + (r >> 40) % 9);
          break;
        case 2:
          t.insert(at, t.substr((r >> 40) % t.size(), 1 + (r >> 50) % 12));
          break;
        default:
          t.resize(at + 1);
      }
    }
    try {
      Graph g = Graph::parse(t);
      EXPECT_EQ(Graph::parse(g.text()).text(), g.text()) << t;
      read++;
    } catch (const Error&) { refused++; }
  }
  EXPECT_GT(read, 100);
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace plait
