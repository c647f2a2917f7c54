// Which sums travel together, and that a Program's text, parser and verifier know it. That no bit changes is held by
// the layouts of plait/train.
#include "plait/exec/buckets.h"

#include <gtest/gtest.h>

#include "plait/exec/program.h"
#include "plait/models/family.h"
#include "plait/models/test_configs.h"
#include "plait/models/training.h"

namespace plait {
namespace {

std::shared_ptr<ShardedGraph> update(const Plan& plan) {
  TrainingGraphs g = build_training_step(small_llama(), {}, {});
  std::map<std::string, Placement> states;
  PropagateOptions how;
  how.states = &states;
  propagate(std::move(g.micro), plan, how);
  return std::make_shared<ShardedGraph>(propagate(std::move(g.update), plan, how));
}

const Plan kData{{{"dp", 2, "T", true, {}}}};

TEST(Buckets, FillToTheLimit) {
  auto s = update(kData);
  EXPECT_EQ(find_buckets(*s).size(), 1u);
  const i64 limit = i64{208} * 72 * 8;  // gate, up and down each; the embedding has 257 rows
  const auto buckets = find_buckets(*s, limit);
  size_t members = 0;
  for (auto& bucket : buckets) {
    i64 bytes = 0;
    for (i64 i : bucket) {
      i64 n = 8;
      for (char d : s->logical(s->steps[static_cast<size_t>(i)].source).dims) n *= s->graph.size(d);
      bytes += n;
    }
    EXPECT_TRUE(bytes <= limit || bucket.size() == 1) << bytes;
    members += bucket.size();
  }
  EXPECT_EQ(members, 2u * 9 + 2 + 1);
  EXPECT_GT(buckets.size(), 2u * 3);
  EXPECT_LT(buckets.size(), members);
}

TEST(Buckets, OfSumsAlone) {
  for (i64 tp : {2, 3})
    EXPECT_TRUE(find_buckets(propagate(build_serving(small_llama(), {}), tensor_parallel(tp))).empty());
  EXPECT_TRUE(find_buckets(*update(tensor_parallel(1))).empty());
}

TEST(Buckets, TextParsesAndAnotherBucketIsRefused) {
  const Program p = partition(update(kData), 1);
  i64 starts = 0;
  for (auto& c : p.calls) starts += c.kind == Call::Kind::start;
  EXPECT_EQ(starts, 1);
  const std::string text = p.text();
  const Program parsed = Program::parse(text);
  EXPECT_EQ(parsed.text(), text);
  EXPECT_EQ(parsed.calls, p.calls);
  std::string less = text;
  const size_t second = less.find(' ', less.find(" {") + 2);
  less.erase(second, less.find('}') - second);
  try {
    Program::parse(less);
    ADD_FAILURE() << "a bucket of one went through";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::bad_file);
    EXPECT_NE(std::string(e.what()).find("another bucket"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace plait
