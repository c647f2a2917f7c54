// Plan files and the texts of placements that lie: each is refused with its place.
#include "plait/placement/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plait/base/random.h"
#include "plait/placement/placement.h"

namespace plait {
namespace {

template <class F>
std::string error_of(F f) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::bad_file) << e.what();
    return e.what();
  }
  return "no error";
}

const std::string kGood = "plan = 1\n[[axis]]\nname = \"tp\"\nsize = 2\ndims = \"N K F V\"\n";

TEST(PlanText, says_where_and_what) {
  std::string dots;
  for (int i = 0; i < 50'000; i++) dots += ".a";
  const std::pair<std::string, const char*> cases[] = {
      {"plan = 2", "[p] line 1: plan = 2, want 1 to 1"},
      {"plan = 1\nspeed = 3", "[p] line 2: unknown key 'speed'"},
      {"plan = = 1", "[p] line 1"},
      {kGood + "color = 1", "[p] line 6: unknown key axis.color"},
      {kGood + "unit = \"row\"", "want leaf or sequence"},
      {kGood + "weights = [1]", "1 weights for 2 coordinates"},
      {kGood + "weights = [0, 0]", "add up to nothing"},
      {kGood + "weights = [1, -1]", "axis.weights = -1, want 0 to"},
      {kGood + "weights = 3", "no list"},
      {kGood + "[leaves]\nF = 0", "leaves = 0"},
      {kGood + "[leaves]\nQ = 1", "leaves has 'Q'"},
      {kGood + kGood.substr(9), "is there twice"},
      {"[[axis]]\nname = \"t p\"", "axis name"},
      {"[[axis]]\nsize = 2", "axis name"},
      {"[[axis]]\nname = \"" + std::string(33, 'a') + "\"", "axis name of 33 bytes"},
      {"[[axis]]\nname = \"a\"\nsize = 1000000", "want 1 to 16384"},
      {"[[axis]]\nname = \"a\"\nsize = 200\n[[axis]]\nname = \"b\"\nsize = 200", "want 1 to 16384 ranks in all"},
      {"[[axis]]\nname = \"a\"\nsize = \"2\"", "is not an integer"},
      {"plan = 1\n[a" + dots + "]", "[p] line 2: got more than 256 dots"},
      {"x = " + std::string(100'000, '['), "[p] line 1"},
      {"# " + std::string(300'000, 'x'), "want at most 262144 for a plan"},
  };
  for (auto& [text, want] : cases)
    EXPECT_THAT(error_of([&] { Plan::parse(text, "p"); }), testing::HasSubstr(want)) << text.substr(0, 200);
  std::string axes;
  for (int i = 0; i < 9; i++) axes += fmt::format("[[axis]]\nname = \"a{}\"\n", i);
  EXPECT_THAT(error_of([&] { Plan::parse(axes, "p"); }), testing::HasSubstr("got 9 axes, want at most 8"));
  EXPECT_EQ(Plan::parse(kGood, "p").text(), Plan::parse(Plan::parse(kGood, "p").text(), "p").text());
}

TEST(PlanText, survives_damage) {
  const std::string text = kGood + "weights = [3, 1]\nunit = \"leaf\"\n[leaves]\nF = 96\n";
  i64 read = 0;
  for (u64 i = 0; i < 3000; i++) {
    std::string t = text;
    for (u64 k = 0; k <= i % 3; k++) {
      const u64 r = random_bits(stream_of("plan"), i * 4 + k);
      t[r % t.size()] = text[(r >> 20) % text.size()];
    }
    read += error_of([&] { Plan::parse(Plan::parse(t, "p").text(), "p"); }) == "no error";
  }
  EXPECT_GT(read, 30);
}

TEST(Split, of_many_leaves_by_large_weights) {
  const std::vector<i64> weights(16384, 1 << 20);
  const Edges edges{i64{1} << 40, 1, {}};
  EXPECT_EQ(split({0, i64{1} << 40}, edges, 16384, 16383, weights),
            (Range{(i64{1} << 40) - (i64{1} << 26), i64{1} << 40}));
}

TEST(PlacementText, refuses_what_no_graph_says) {
  const Plan plan = tensor_parallel(4);
  auto of = [&](const std::string& text) { return error_of([&] { parse_placement(text, plan, "TF"); }); };
  EXPECT_EQ(of("tp:/1F!"), "no error");
  EXPECT_EQ(of("tp:sum/0TbyS@0,2-3"), "no error");
  EXPECT_THAT(of("tp:/1FbyN"), testing::HasSubstr("'byN' is left over"));  // ranges of another dim
  EXPECT_THAT(of("tp:/1FbyS"), testing::HasSubstr("left over"));
  EXPECT_THAT(of("tp:/2D"), testing::HasSubstr("has not"));
  EXPECT_THAT(of("dp:/1F"), testing::HasSubstr("no axis 'dp'"));
  EXPECT_THAT(of("tp:@2,1"), testing::HasSubstr("ascending and apart"));
  EXPECT_THAT(of("tp:@0-1,2"), testing::HasSubstr("ascending and apart"));
  EXPECT_THAT(of("tp:@3-1"), testing::HasSubstr("want coordinates"));
  std::string many = "tp:@0";
  for (int i = 2; i < 200; i += 2) many += fmt::format(",{}", i);
  EXPECT_THAT(of(many), testing::HasSubstr("at most 64 ranges"));
}

// Axes that nest on a dim: ranges overlap only where a cut of query heads falls inside the group of a KV head.
TEST(Placement, a_sum_over_ranges_apart_is_complete) {
  for (i64 heads : {4, 6, 9}) {
    const Plan plan{{{"a", 2, "NK", false, {}}, {"b", 2, "NK", false, {}}}, false, {}};
    const Sizes sizes{{{'N', {heads * 3, 1, {}}}, {'K', {heads, 1, {}}}}, {}, {}};
    const Binding b(plan, sizes);
    Placement p(2);
    p[0] = p[1] = {.dim = 0, .by = 'K', .join = Joined::sum};
    bool apart[2] = {true, true};
    for (i64 x = 0; x < 4; x++)
      for (i64 y = 0; y < 4; y++)
        for (size_t axis : {0u, 1u}) {
          const Coords c = b.mesh().coords(x), o = b.mesh().coords(y);
          const auto cuts = Binding::uses(p, 0);
          if (c[axis] != o[axis] && !(b.range('K', cuts, c) & b.range('K', cuts, o)).empty()) apart[axis] = false;
        }
    const Placement s = simplified(p, "K", b);
    for (size_t axis : {0u, 1u}) EXPECT_EQ(s[axis].join == Joined::copy, apart[axis]) << heads << " " << axis;
  }
}

}  // namespace
}  // namespace plait
