#include "plait/graph/rule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plait {
namespace {

TEST(Rule, ReadsTermsAndGroups) {
  Rule r = Rule::parse("t (k g) h, s k h, s -> t (k g) h, t (k g)");
  ASSERT_EQ(r.in.size(), 3u);
  EXPECT_EQ(r.in[0], (Rule::Term{"t", "kg", "h"}));
  EXPECT_EQ(r.in[2], (Rule::Term{"s"}));
  ASSERT_EQ(r.out.size(), 2u);
  EXPECT_EQ(r.out[1], (Rule::Term{"t", "kg"}));
  EXPECT_EQ(r.contracted(), "s");
  EXPECT_TRUE(r.in_output('g'));
  EXPECT_FALSE(r.in_output('s'));
  EXPECT_EQ(r.groups(), (std::vector<std::string>{"t", "kg", "h", "s", "k"}));
}

TEST(Rule, PrintsWhatItRead) {
  for (const char* text : {"t d, n h d -> t n h", "t (k g) h, s k h, s -> t (k g) h, t (k g)", "-> o", "t v -> t",
                           "a b, -> a b", "a -> "}) {
    Rule r = Rule::parse(text), again = Rule::parse(to_string(r));
    EXPECT_EQ(again.in, r.in) << text;
    EXPECT_EQ(again.out, r.out) << text;
    EXPECT_EQ(to_string(again), to_string(r)) << text;
  }
}

TEST(Rule, ContractedInOrderOfAppearance) {
  EXPECT_EQ(Rule::parse("t n h, d n h -> t d").contracted(), "nh");
  EXPECT_EQ(Rule::parse("t v, t -> t").contracted(), "v");
  EXPECT_EQ(Rule::parse("-> o").contracted(), "");
}

TEST(Rule, SaysWhatIsWrong) {
  auto message = [](const char* text) -> std::string {
    try {
      Rule::parse(text);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Code::bad_file);
      return e.what();
    }
    return "no error";
  };
  EXPECT_THAT(message("t d"), testing::HasSubstr("no arrow"));
  EXPECT_THAT(message("t (k g -> t"), testing::HasSubstr("an open group"));
  EXPECT_THAT(message("t (k (g)) -> t"), testing::HasSubstr("a group inside a group at character 5"));
  EXPECT_THAT(message("t () -> t"), testing::HasSubstr("an empty or unopened group"));
  EXPECT_THAT(message("t k) -> t"), testing::HasSubstr("an empty or unopened group"));
  EXPECT_THAT(message("t T -> t"), testing::HasSubstr("'T' is no factor letter at character 2"));
  EXPECT_THAT(message("t -> t -> t"), testing::HasSubstr("a misplaced arrow"));
  EXPECT_THAT(message("t - t"), testing::HasSubstr("a misplaced arrow"));
}

}  // namespace
}  // namespace plait
