// Faults of a partitioner, planted in a training step's graphs: each is found, with the name of the first value that
// differs, and by the verifier of the sharded graph where it could know.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plait/train/test_models.h"

namespace plait::train {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr i64 kSteps = 1;

Experiment llama() { return experiment(small_llama(), DType::f32, DType::f32, OptimizerSpec::Kind::sgd); }
Experiment gpt2() { return experiment(small_gpt2(), DType::f32, DType::f32, OptimizerSpec::Kind::sgd); }
std::shared_ptr<ShardedGraph> copy_of(const std::shared_ptr<const ShardedGraph>& s) {
  return std::make_shared<ShardedGraph>(*s);
}

std::string verified(const ShardedGraph& s) {
  try {
    s.verify();
  } catch (const Error& e) { return e.what(); }
  return "";
}

struct Found {
  std::optional<ValueDifference> first_value;
  std::string bad_copy;
};

/// The run of a broken plan against the whole one on one rank.
Found compared(const Experiment& e, const TrainingPlan& broken) {
  const Oracle oracle(e, kSteps);
  Values values(broken, &oracle.values);
  const Recorded got = run(e, broken, kSteps, values);
  EXPECT_NE(difference(oracle, got, values), "");
  return {values.first(), got.bad_copy};
}

/// Of a value of that name and phase: the step that reshards it.
size_t reshard_of(const ShardedGraph& s, const std::string& name) {
  for (size_t i = 0; i < s.steps.size(); i++)
    if (s.steps[i].node < 0 && s.logical(s.steps[i].source).name == name) return i;
  PLAIT_CHECK(false, "nothing reshards {}\n{}", name, s.text());
}

void replace(ShardedGraph& s, size_t from, ValueId old, ValueId with) {
  for (size_t i = from; i < s.steps.size(); i++) {
    std::replace(s.steps[i].in.begin(), s.steps[i].in.end(), old, with);
    if (s.steps[i].source == old) s.steps[i].source = with;
  }
}

/// Its readers take what each rank has as if it were whole.
void forget(ShardedGraph& s, const std::string& name) {
  const size_t at = reshard_of(s, name);
  const Step step = s.steps[at];
  s.steps.erase(s.steps.begin() + static_cast<std::ptrdiff_t>(at));
  replace(s, at, step.value, step.source);
  for (auto& a : s.placement[static_cast<size_t>(step.source)]) a.join = Joined::copy;
}

TEST(PlantedFault, ForgottenReductionOfALayer) {
  const Experiment e = llama();
  TrainingPlan p = plan_of(e, Plan{{axis("tp", 2, "KNFV")}});
  auto micro = copy_of(p.micro);
  forget(*micro, "layers.1.down");
  EXPECT_THAT(verified(*micro), StartsWith("step of matmul (layers.1.down): output 0 lies as"));
  p.micro = micro;
  const Found got = compared(e, p);
  ASSERT_TRUE(got.first_value);
  EXPECT_EQ(got.first_value->label, "layers.1.down");
  EXPECT_EQ(got.first_value->op, "finish");
  EXPECT_EQ(got.first_value->layer, 1);
}

TEST(PlantedFault, ForgottenReductionOfAGradient) {
  const Experiment e = llama();
  TrainingPlan p = plan_of(e, Plan{{axis("dp", 2, "T", true)}});
  auto update = copy_of(p.update);
  forget(*update, "acc.layers.0.up");
  EXPECT_NE(verified(*update), "");
  p.update = update;
  const Found got = compared(e, p);
  EXPECT_FALSE(got.first_value);  // micro is as it should be
  EXPECT_THAT(got.bad_copy, StartsWith("gradient of layers.0.up after step 1: rank 1 holds another value"));
}

/// Each rank adds the bias to its part of the sum, then the parts are added.
TEST(PlantedFault, BiasCountedTwice) {
  const Experiment e = gpt2();
  TrainingPlan p = plan_of(e, Plan{{axis("tp", 2, "NKFV")}});
  auto micro = copy_of(p.micro);
  ShardedGraph& s = *micro;
  const size_t early = reshard_of(s, "layers.0.wo");
  const Step step = s.steps[early];
  s.steps.erase(s.steps.begin() + static_cast<std::ptrdiff_t>(early));
  replace(s, early, step.value, step.source);
  const Placement partial = s.of(step.source), whole = s.of(step.value);
  for (size_t i = early; i < s.steps.size(); i++) {
    if (s.steps[i].node < 0) continue;
    const Node& n = s.graph.nodes[static_cast<size_t>(s.steps[i].node)];
    if (n.attrs.label != "layers.0.wo" && n.attrs.label != "layers.0.wo.bias") continue;
    s.placement[static_cast<size_t>(n.out[0])] = partial;
    if (n.op->name != "bias") continue;
    const auto late = static_cast<ValueId>(s.placement.size());
    s.placement.push_back(whole);
    s.origin.push_back(n.out[0]);
    replace(s, i + 1, n.out[0], late);
    s.steps.insert(s.steps.begin() + static_cast<std::ptrdiff_t>(i) + 1, Step{-1, {}, n.out[0], late, "planted"});
    break;
  }
  EXPECT_THAT(verified(s), StartsWith("step of finish (layers.0.wo): operand layers.0.wo lies as tp:sum"));
  p.micro = micro;
  const Found got = compared(e, p);
  ASSERT_TRUE(got.first_value);
  EXPECT_EQ(got.first_value->label, "layers.0.wo.bias");
  const double bias = random_weight("layers.0.wo.bias", 0);
  EXPECT_THAT(got.first_value->where, HasSubstr("[0, 0]"));
  EXPECT_NEAR(got.first_value->got - got.first_value->want, bias, 1e-5);
}

/// Query heads 0-4 and 5-8: both ranks have a part of the gradient of KV head 1.
TEST(PlantedFault, SharedKvGradientNotSummed) {
  const Experiment e = llama();
  TrainingPlan p = plan_of(e, Plan{{axis("tp", 2, "NKFV")}});
  auto micro = copy_of(p.micro);
  forget(*micro, "layers.1.attention.out.vjp.1");  // dk
  EXPECT_THAT(verified(*micro), StartsWith("step of attention_vjp (layers.1.attention.out.vjp): output 1 lies as"));
  p.micro = micro;
  const Found got = compared(e, p);
  ASSERT_TRUE(got.first_value);
  EXPECT_EQ(got.first_value->label, "layers.1.attention.out.vjp.1");
  EXPECT_THAT(got.first_value->where, HasSubstr(", 1, "));  // the head that is shared
}

/// An attention whose datasheet says that a token reads its own key: a rank of a cut document has too few keys.
TEST(PlantedFault, WrongFactorRule) {
  const Experiment e = llama();
  TrainingGraphs g = build_training_step(e.config, e.build, e.spec);
  Op wrong = Registry::find("attention");
  wrong.rule = "t (k g) h, t k h, t k h, t, t -> t (k g) h, t (k g)";
  wrong.follows.clear();
  for (auto& n : g.micro.nodes)
    if (n.op->name == "attention") n.op = &wrong, n.rule = Rule::parse(wrong.rule);
  TrainingPlan p = plan_of(e, tensor_parallel(1));
  std::map<std::string, Placement> states;
  const Plan plan{{axis("cp", 2, "T")}};
  p.micro = std::make_shared<ShardedGraph>(propagate(std::move(g.micro), plan, {.states = &states}));
  p.update = std::make_shared<ShardedGraph>(propagate(std::move(g.update), plan, {.states = &states}));
  EXPECT_EQ(verified(*p.micro), "");  // it is as the datasheet says: only the numbers know
  const Found got = compared(e, p);
  ASSERT_TRUE(got.first_value);
  EXPECT_EQ(got.first_value->label, "layers.0.attention.out.0");
  EXPECT_EQ(got.first_value->rank, 1);
}

}  // namespace
}  // namespace plait::train
