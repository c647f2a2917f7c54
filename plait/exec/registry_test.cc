// Walks the registry: every op has a reference kernel and an example made from its datasheet; the example's graph
// prints and reads back; each gradient agrees with central differences in f64; and each kernel, run on parts of every
// factor with operands cut to what the part needs, gives the bits of the whole.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "plait/base/exact_squares.h"
#include "plait/base/random.h"
#include "plait/exec/evaluate.h"
#include "plait/kernels/reference/reference.h"

namespace plait {
namespace {

using Tensors = std::map<std::string, Tensor>;

const std::vector<i64> kSequences = {0, 11, 12, 27, 29}, kTokens = {0, 4, 8, 11, 12, 16, 20, 24, 27, 29};

char dim_of(const std::string& group) {
  static const std::map<char, char> dims = {{'t', 'T'}, {'s', 'T'}, {'r', 'R'}, {'v', 'V'}, {'d', 'D'}, {'n', 'N'},
                                            {'k', 'K'}, {'h', 'H'}, {'f', 'F'}, {'c', 'C'}, {'b', 'B'}, {'p', 'P'},
                                            {'q', 'Q'}, {'a', 'T'}, {'o', '1'}, {'z', '1'}};
  return group == "kg" ? 'N' : dims.at(group[0]);
}

Sizes sizes() {
  Sizes s;
  s.dims = {{'T', {29, 1, kTokens}},
            {'R', {5, 1, {}}},
            {'V', {37, 8, {}}},
            {'D', {20, 1, {}}},
            {'N', {6, 1, {}}},
            {'K', {2, 1, {}}},
            {'H', {4, 1, {}}},
            {'F', {40, 16, {}}},
            {'C', {48, 16, {}}},
            {'B', {4, 1, {}}},
            {'P', {4, 1, {}}},
            {'1', {1, 1, {}}},
            {'Q', {ExactSquares<float>::kLanes, 1, {}}}};
  s.sequence_edges = kSequences;
  return s;
}

Graph graph_of(DType real) {
  Graph g;
  g.name = "example";
  g.real = g.compute = real;
  g.sum = real == DType::f64 ? DType::i128 : DType::i64;
  for (auto& [dim, e] : sizes().dims) g.dims[dim] = {e.size, 0};
  g.dims['T'] = {0, 4};
  g.dims['R'].size = 0;
  for (char c : {'N', 'K'}) g.dims[c].leaf = 1;
  g.dims['F'].leaf = 16;
  g.dims['V'].leaf = 8;
  return g;
}

i64 sequence_of(i64 t) {
  i64 q = 0;
  while (kSequences[static_cast<size_t>(q + 1)] <= t) q++;
  return q;
}

/// One op with inputs in0, in1 ...: what its datasheet says about operands and attributes, random numbers else.
struct Example {
  Graph g;
  std::vector<ValueId> in, out;
  std::string rule;

  Example(const Op& op, const std::string& rule_, DType real) : g(graph_of(real)), rule(rule_) {
    Rule r = Rule::parse(rule);
    for (size_t i = 0; i < r.in.size(); i++) {
      std::string dims;
      for (auto& group : r.in[i]) dims += group == "b" && op.elementwise ? 'D' : dim_of(group);
      in.push_back(operand(op, i, dims));
    }
    Attrs a{.cls = Class::dgrad, .x = op.attributes, .label = "op"};
    if (op.rule.empty() && !op.elementwise) a.rule = rule;
    std::set<std::string> known;
    for (auto& t : r.in) known.insert(t.begin(), t.end());
    for (auto& t : r.out)
      for (auto& group : t)
        if (known.insert(group).second) a.dims += dim_of(group);
    out = g.apply(op.name, in, a);
  }

  ValueId operand(const Op& op, size_t i, const std::string& dims) {
    const std::string name = "in" + std::to_string(i);
    const int k = static_cast<int>(i);
    bool index = op.indexes.count(k) > 0 || (op.roles.count(k) > 0 && op.roles.at(k) != Role::positive);
    if (op.name == "finish_max") return g.input(name, dims, Type::max);
    if (!op.takes_sums) return g.input(name, dims, index ? Type::index : Type::num);
    // A sum over F, so that gradients can be asked for.
    std::string letters;
    for (size_t d = 0; d < dims.size(); d++) letters += std::string(1, "xyz"[d]) + " ";
    return g.one("matmul", {g.input(name, dims + "F", Type::num), g.input("by" + std::to_string(i), "F", Type::num)},
                 {.rule = letters + "f, f -> " + letters, .cls = Class::dgrad, .label = "sum" + std::to_string(i)});
  }

  /// What an element of an operand is.
  double element(const Op& op, size_t i, const std::vector<i64>& x, i64 at) const {
    const int k = static_cast<int>(i);
    if (auto it = op.indexes.find(k); it != op.indexes.end()) {
      const i64 n = sizes().size(dim_of(std::string(1, it->second)));
      if (it->second == 'c')
        return static_cast<double>(slot(sequence_of(x[0]), x[0] - kSequences[static_cast<size_t>(sequence_of(x[0]))]));
      u64 r = random_bits(stream_of("ids"), static_cast<u64>(at));
      return it->second == 'v' && r % 5 == 0 ? -1 : static_cast<double>(r % static_cast<u64>(n));
    }
    if (op.name == "gradient_norm" && x[0] > 11) return 0;  // of such digits the root is a float
    const double z = normal(stream_of(op.name) + i, static_cast<u64>(at));
    if (auto it = op.roles.find(k); it != op.roles.end()) switch (it->second) {
        case Role::position:
          return static_cast<double>(x[0] - kSequences[static_cast<size_t>(sequence_of(x[0]))]);
        case Role::sequence:
          return static_cast<double>(sequence_of(x[0]));
        case Role::page_table:
          return static_cast<double>(slot(x[0], 4 * x[1]) / 4);
        case Role::positive:
          return 0.5 + std::fabs(z);
      }
    return z;
  }
  /// Slot of a position: pages of 4 in a scrambled order, no two sequences share one.
  static i64 slot(i64 sequence, i64 position) {
    i64 page = 0;
    for (i64 q = 0; q < sequence; q++)
      page += ceil_div(kSequences[static_cast<size_t>(q + 1)] - kSequences[static_cast<size_t>(q)], 4);
    return (page + position / 4) * 5 % 12 * 4 + position % 4;
  }

  Tensors data(const Op& op) const {
    Tensors all;
    for (auto& [name, v] : g.named) {
      const Value& x = g.at(v);
      Tensor t(x.dtype, whole_box(x.dims, sizes()));
      size_t i = name.size() > 2 && name.rfind("in", 0) == 0 ? static_cast<size_t>(name[2] - '0') : 9;
      i64 at = 0;
      for_each(t.box, [&](const std::vector<i64>& index) {
        double e = i == 9 ? 1 + 0.5 * normal(stream_of(name), static_cast<u64>(at)) : element(op, i, index, at);
        if (x.dtype == DType::f32) t.as<float>()[at] = static_cast<float>(e);
        if (x.dtype == DType::f64) t.as<double>()[at] = e;
        if (x.dtype == DType::i32) t.as<std::int32_t>()[at] = static_cast<std::int32_t>(e);
        at++;
      });
      all.emplace(name, std::move(t));
    }
    return all;
  }
};

std::map<std::string, View> views(const Tensors& t) { return {t.begin(), t.end()}; }

std::vector<std::string> rules_of(const Op& op) {
  return op.rule.empty() ? op.examples : std::vector<std::string>{op.rule};
}

class EveryOp : public testing::TestWithParam<std::string> {
 protected:
  const Op& op() const { return Registry::find(GetParam()); }
};

std::vector<std::string> names(bool with_gradient = false) {
  std::vector<std::string> all;
  for (auto& [name, op] : Registry::all())
    if (op.vjp || !with_gradient) all.push_back(name);
  return all;
}

INSTANTIATE_TEST_SUITE_P(Registry, EveryOp, testing::ValuesIn(names()), [](auto& i) { return i.param; });

TEST_P(EveryOp, HasADatasheetAndKernels) {
  EXPECT_FALSE(op().doc.empty());
  EXPECT_FALSE(rules_of(op()).empty()) << "neither a rule nor examples of one";
  for (DType real : {DType::f32, DType::f64})
    EXPECT_FALSE(kernels::reference_kernels(op().name, real).empty()) << name_of(real);
  for (auto& text : rules_of(op())) {
    Rule r = Rule::parse(text);
    std::string letters;
    for (auto& group : r.groups()) letters += group;
    for (char c : op().whole) EXPECT_NE(letters.find(c), std::string::npos) << "whole " << c;
    for (auto [f, leader] : op().follows) {
      EXPECT_NE(letters.find(f), std::string::npos) << "follower " << f;
      EXPECT_NE(letters.find(leader), std::string::npos) << "leader " << leader;
    }
    for (auto [i, f] : op().indexes) EXPECT_LT(i, static_cast<int>(r.in.size())) << f;
    for (auto& [i, role] : op().roles) EXPECT_LT(i, static_cast<int>(r.in.size()));
  }
}

TEST_P(EveryOp, PrintsAndReadsBack) {
  for (auto& rule : rules_of(op())) {
    Example e(op(), rule, DType::f32);
    e.g.verify();
    EXPECT_EQ(Graph::parse(e.g.text()).text(), e.g.text());
  }
}

class EveryOpWithGradient : public EveryOp {};

INSTANTIATE_TEST_SUITE_P(Registry, EveryOpWithGradient, testing::ValuesIn(names(true)),
                         [](auto& i) { return i.param; });

void expect_gradient(const Op& op) {
  for (auto& rule : rules_of(op)) {
    Example e(op, rule, DType::f64);
    Graph& g = e.g;
    std::string letters;
    for (size_t d = 0; d < g.at(e.out[0]).dims.size(); d++) letters += std::string(1, "abc"[d]) + " ";
    ValueId loss = g.one("matmul", {e.out[0], g.input("weights", g.at(e.out[0]).dims, Type::num)},
                         {.rule = letters + ", " + letters + "-> o", .dims = "1", .label = "loss"});
    loss = g.num(loss);
    auto gradients = grad(g, loss);
    std::map<std::string, ValueId> numbers;
    g.layer = -1;
    for (auto& [name, d] : gradients) numbers[name] = g.num(d);
    g.verify();
    EXPECT_EQ(Graph::parse(g.text()).text(), g.text());
    Tensors data = e.data(op);
    auto run = evaluate(g, views(data), sizes());
    EXPECT_FALSE(run.overflow);
    // Maxima are constants by convention; every other number has a gradient.
    const std::set<std::string> constants = {"sum_exp in1", "nll in0"};
    for (auto& [name, v] : g.named)
      if (name.rfind("in", 0) == 0 && g.at(v).type == Type::num) {
        EXPECT_EQ(gradients.count(name), constants.count(op.name + " " + name) > 0 ? 0u : 1u) << name;
      }
    for (auto& [name, d] : numbers) {
      if (name.rfind("in", 0) != 0) continue;
      Tensor& x = data.at(name);
      ASSERT_EQ(run.values[static_cast<size_t>(d)].box, x.box);
      for (u64 trial = 0; trial < 8; trial++) {
        auto i = random_bits(stream_of(name), trial) % static_cast<u64>(x.elements());
        const double keep = x.as<double>()[i], h = 1e-5;
        double side[2];
        for (int s : {0, 1}) {
          x.as<double>()[i] = keep + (s == 0 ? h : -h);
          side[s] = *evaluate(g, views(data), sizes()).values[static_cast<size_t>(loss)].as<double>();
        }
        x.as<double>()[i] = keep;
        const double difference = (side[0] - side[1]) / (2 * h);
        const double analytic = run.values[static_cast<size_t>(d)].as<double>()[i];
        EXPECT_NEAR(analytic, difference, 2e-7 * (1 + std::fabs(difference))) << rule << " d " << name << " at " << i;
      }
    }
  }
}

TEST_P(EveryOpWithGradient, GradientAgreesWithDifferences) { expect_gradient(op()); }

TEST(Attention, GradientOverAWindow) {
  Op op = Registry::find("attention");
  op.attributes["window"] = 5;
  expect_gradient(op);
  // What lies before the window changes nothing, and what lies in it does.
  Example e(op, op.rule, DType::f64);
  Tensors data = e.data(op);
  auto row = [&](i64 t) {
    const auto run = evaluate(e.g, views(data), sizes());
    const Tensor& o = run.values[static_cast<size_t>(e.out[0])];
    return std::vector<double>(o.as<double>() + t * o.stride(0), o.as<double>() + (t + 1) * o.stride(0));
  };
  const i64 t = 9, step = data.at("in2").stride(0);
  const auto before = row(t);
  data.at("in2").as<double>()[(t - 5) * step] += 1;
  EXPECT_EQ(row(t), before);
  data.at("in2").as<double>()[(t - 4) * step] += 1;
  EXPECT_NE(row(t), before);
}

/// Parts of a factor: on leaf edges, uneven, one of them empty.
std::vector<Range> parts_of(const kernels::Args& a, const std::string& group) {
  Range all = a.range(group);
  i64 x = all.size() / 3 + 1, y = all.size() - 1;
  if (auto it = a.leaves.find(group.back()); it != a.leaves.end()) {
    const auto& edges = it->second;
    x = edges[edges.size() / 3];
    y = edges[edges.size() - 2];
  }
  return {{0, x}, {x, x}, {x, std::max(x, y)}, {std::max(x, y), all.end}};
}

Tensor cut(const View& whole, const Box& box) {
  Tensor t(whole.dtype, box);
  auto size = static_cast<size_t>(info(whole.dtype).block_bytes);
  i64 at = 0;
  for_each(box, [&](const std::vector<i64>& x) {
    std::memcpy(t.as<std::byte>() + static_cast<size_t>(at++) * size,
                whole.as<std::byte>() + static_cast<size_t>(whole.at(x)) * size, size);
  });
  return t;
}

/// Adds a part of the result to what other parts gave.
template <class T>
void join(const View& part, const View& total, bool add, bool max) {
  i64 at = 0;
  for_each(part.box, [&](const std::vector<i64>& x) {
    T& to = total.as<T>()[total.at(x)];
    T from = part.as<T>()[at++];
    to = max ? std::max(to, from) : add ? to + from : from;
  });
}

TEST_P(EveryOp, PartsGiveTheBitsOfTheWhole) {
  for (const kernels::Kernel& kernel : kernels::reference_kernels(op().name, DType::f32))
    for (auto& rule : rules_of(op())) {
      Example e(op(), rule, DType::f32);
      Tensors data = e.data(op());
      auto run = evaluate(e.g, views(data), sizes());
      const Node& n = e.g.nodes[static_cast<size_t>(e.g.at(e.out[0]).node)];
      const kernels::Args whole = whole_args(e.g, n, sizes());
      auto value = [&](ValueId v) -> View {
        return e.g.at(v).kind == Kind::temp ? View(run.values[static_cast<size_t>(v)]) : View(data.at(e.g.at(v).name));
      };
      for (auto& [group, all] : whole.ranges) {
        bool contracted = whole.contracted.find(group[0]) != std::string::npos, can = true;
        for (char f : group) can &= op().whole.find(f) == std::string::npos && op().follows.count(f) == 0;
        // A sum inside a row in f32 has no leaves to cut at; k is cut as the image of kg.
        can &= !contracted || e.g.at(n.out[0]).type != Type::num || op().one_owner;
        can &= !contracted || whole.leaves.count(group[0]) > 0 || op().one_owner || op().element_leaves ||
               op().out[0] == Type::max;
        can &= group != "k" || rule.find("(k g)") == std::string::npos;
        can &= op().name != "kv_write" || group != "t";  // slots of the parts are the batcher's choice
        if (!can) continue;
        std::vector<Tensor> totals;
        for (ValueId v : n.out) {
          totals.emplace_back(e.g.at(v).dtype, whole_box(e.g.at(v).dims, sizes()));
          if (e.g.at(v).type == Type::max) std::fill_n(totals.back().as<float>(), totals.back().elements(), -INFINITY);
        }
        for (Range part : parts_of(whole, group)) {
          kernels::Args a = whole;
          a.ranges[group] = part;
          if (group == "kg" && !part.empty()) a.ranges["k"] = {part.begin / a.group, (part.end - 1) / a.group + 1};
          if (group == "kg" && part.empty()) a.ranges["k"] = {0, 0};
          if (auto f = op().follows.find('s'); f != op().follows.end() && group == "t" && !part.empty())
            a.ranges["s"] = {kSequences[static_cast<size_t>(sequence_of(part.begin))], part.end};
          std::vector<Tensor> in, out;
          auto box = [&](const kernels::Term& t) {
            Box b;
            for (auto& g : t) b.push_back(a.range(g));
            return b;
          };
          for (size_t i = 0; i < n.in.size(); i++) {
            in.push_back(cut(value(n.in[i]), box(n.rule.in[i])));
            a.in.push_back(in.back());
          }
          for (size_t i = 0; i < n.out.size(); i++) {
            out.emplace_back(e.g.at(n.out[i]).dtype, box(n.rule.out[i]));
            if (out.back().elements() > 0)
              std::memset(out.back().data, 0x5a, static_cast<size_t>(out.back().buffer.bytes()));
            a.out.push_back(out.back());
          }
          auto prepared = kernel.prepare(a);
          ASSERT_TRUE(static_cast<bool>(prepared)) << prepared.why();
          kernels::Team team(1);
          kernels::Context context{team};
          (*prepared)(context);
          EXPECT_FALSE(context.overflow);
          for (size_t i = 0; i < n.out.size(); i++) {
            bool added = contracted || e.g.at(n.out[i]).type == Type::sum;
            bool max = e.g.at(n.out[i]).type == Type::max;
            if (out[i].dtype == DType::i64)
              join<i64>(out[i], totals[i], added, false);
            else if (out[i].dtype == DType::i32)
              join<std::int32_t>(out[i], totals[i], added, false);
            else
              join<float>(out[i], totals[i], added, max);
          }
        }
        for (size_t i = 0; i < n.out.size(); i++)
          EXPECT_EQ(std::memcmp(totals[i].data, value(n.out[i]).data, static_cast<size_t>(totals[i].buffer.bytes())), 0)
              << kernel.name << ", " << rule << ": output " << i << " cut along " << group;
      }
    }
}

}  // namespace
}  // namespace plait
