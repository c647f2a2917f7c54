// Texts of sharded graphs that lie: an Error with bad_file or a graph that keeps its rules; no check of ours fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plait/base/random.h"
#include "plait/shard/shard.h"

namespace plait {
namespace {

/// Grouped heads and a product over them, so that linked dims, sums and gathers are in the text.
Graph example() {
  Graph g;
  g.name = "small";
  g.dims = {{'T', {0, 4}}, {'D', {6, 0}}, {'F', {8, 2}}, {'N', {6, 1}}, {'K', {2, 1}}, {'H', {4, 0}}};
  const ValueId x = g.input("x", "TD", Type::num), up = g.state("up", "FD"), down = g.state("down", "DF");
  const ValueId h = g.one("matmul", {x, up}, {.rule = "t d, f d -> t f", .label = "h"});
  const ValueId y = g.one("matmul", {h, down}, {.rule = "t f, d f -> t d", .label = "y"});
  const ValueId q = g.one("matmul", {y, g.state("wq", "NHD")}, {.rule = "t d, n h d -> t n h", .label = "q"});
  g.one("matmul", {q, g.state("wo", "DNH")}, {.rule = "t n h, d n h -> t d", .label = "o"});
  g.one("matmul", {y, g.state("wk", "KHD")}, {.rule = "t d, k h d -> t k h", .label = "k"});
  return g;
}

std::string text_of(const Plan& plan) { return propagate(example(), plan).text(); }

std::string error_of(const std::string& text) {
  try {
    ShardedGraph::parse(text);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::bad_file) << e.what();
    return e.what();
  }
  return "no error";
}

std::string with(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from << " in\n" << text;
  return text.replace(at, from.size(), to);
}

TEST(ShardedText, reads_back_the_same) {
  for (const Plan& plan : {tensor_parallel(1), tensor_parallel(2), tensor_parallel(3, {2, 0, 1}),
                           Plan{{{"dp", 2, "T", true, {}}, {"tp", 2, "NKFV", false, {}}}, true, {{'F', 2}}}}) {
    const std::string text = text_of(plan);
    EXPECT_EQ(ShardedGraph::parse(text).text(), text);
  }
}

TEST(ShardedText, refuses_what_propagate_never_makes) {
  const std::string good = text_of(tensor_parallel(2)), graph = "== graph\n", steps = "== steps\n";
  EXPECT_EQ(error_of(good), "no error");
  EXPECT_THAT(error_of(""), testing::HasSubstr("want 'sharded'"));
  EXPECT_THAT(error_of(with(good, steps, "")), testing::HasSubstr("want 'sharded'"));
  const std::string step =
      good.substr(good.find("node 0 cut"), good.find('\n', good.find("node 0 cut")) - good.find("node 0 cut") + 1);
  EXPECT_THAT(error_of(with(good, step, step + step)), testing::HasSubstr("is there twice"));
  EXPECT_THAT(error_of(with(good, "node 0 cut", "node 99 cut")), testing::HasSubstr("a number below"));
  EXPECT_THAT(error_of(with(good, "tp=F(f)", "tp=F(q)")), testing::HasSubstr("no factor group 'q'"));
  EXPECT_THAT(error_of(with(good, "tp=F(f)", "xx=F(f)")), testing::HasSubstr("no axis 'xx'"));
  EXPECT_THAT(error_of(with(good, "dim K 2 leaf 1", "dim K 4 leaf 1")), testing::HasSubstr("want a multiple"));
  EXPECT_THAT(error_of(with(good, "dim N 6 leaf 1", "dim N 0 leaf 1")), testing::HasSubstr("cuts heads"));
  const std::string data = text_of({{{"dp", 2, "T", true, {}}, {"cp", 2, "T", false, {}}}, false, {}});
  EXPECT_THAT(error_of(with(data, "dim T 0 leaf 4", "dim T 10 leaf 4")), testing::HasSubstr("T has a fixed size"));
  std::string many = with(text_of(tensor_parallel(1)), "size = 1\n", "size = 16384\n");
  for (int i = 0; i < 300; i++) many += fmt::format("reshard %{} = %0 : whole # a because b\n", 100 + i);
  EXPECT_THAT(error_of(many), testing::HasSubstr("sharded"));
}

TEST(ShardedText, survives_damage) {
  const std::string text = text_of({{{"dp", 2, "T", true, {}}, {"tp", 3, "NKFV", false, {}}}, false, {}});
  i64 read = 0, refused = 0;
  for (u64 i = 0; i < 3000; i++) {
    std::string t = text;
    for (u64 k = 0; k <= i % 3; k++) {
      const u64 r = random_bits(stream_of("sharded"), i * 4 + k);
      const size_t at = r % t.size(), from = (r >> 20) % text.size();
      if ((r >> 60) % 2 == 0)
        t[at] = text[from];
      else
        t.replace(at, (r >> 50) % 9, text.substr(from, (r >> 40) % 9));
    }
    (error_of(t) == "no error" ? read : refused)++;
  }
  EXPECT_GT(read, 50);
  EXPECT_GT(refused, 500);
}

}  // namespace
}  // namespace plait
