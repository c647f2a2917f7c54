// Pre-tokenizers: the scan by hand against the pattern, behaviours at matches, patterns that are refused.
#include "plait/text/split.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plait/text/random_strings.h"

namespace plait::text {
namespace {

using Strings = std::vector<std::string>;

Strings split(std::vector<SplitStep> steps, const std::string& text) {
  Pieces p{.text = text, .spans = {{0, static_cast<i64>(text.size())}}};
  Splitter(std::move(steps)).split(p);
  Strings out;
  for (const auto& s : p.spans) out.push_back(p.text.substr(s.begin, s.end - s.begin));
  return out;
}

SplitStep pattern(const char* text, Behavior behavior = Behavior::isolated, bool invert = false) {
  return {.kind = SplitStep::Kind::pattern, .text = text, .behavior = behavior, .invert = invert};
}

TEST(Split, Gpt2ByHandAsByPattern) {
  // An equal pattern that is written otherwise, so that PCRE2 matches it.
  const std::string same = std::string("(?:") + kGpt2Pattern + ")";
  for (i64 n = 0; n < 3000; n++) {
    std::string s = random_string(n);
    if (n % 7 == 0) s.insert(s.size() / 2, "\xC3\xFF ");
    ASSERT_EQ(split({{}}, s), split({pattern(same.c_str())}, s)) << n << ": " << s;
  }
}

TEST(Split, Gpt2) {
  EXPECT_EQ(split({{}}, "I've 12 cats!!  \n x"), (Strings{"I", "'ve", " 12", " cats", "!!", "  \n", " x"}));
  EXPECT_EQ(split({{}}, "  "), (Strings{"  "}));
  EXPECT_EQ(split({{}}, "a\n\nb 'x"), (Strings{"a", "\n", "\n", "b", " '", "x"}));
  EXPECT_EQ(split({{}}, "\u180E\u00A0x"), (Strings{"\u180E", "\u00A0", "x"}));  // U+180E is no white space
}

TEST(Split, NamedPreTokenizers) {
  EXPECT_EQ(split(*splits_of_name("smollm"), "a 123\n4"), (Strings{"a", " ", "1", "2", "3", "\n", "4"}));
  EXPECT_EQ(split(*splits_of_name("llama-bpe"), "I'LL 12345\n\n x"),
            (Strings{"I", "'LL", " ", "123", "45", "\n\n", " x"}));
  EXPECT_EQ(split(*splits_of_name("qwen2"), "12 ab\r\n"), (Strings{"1", "2", " ab", "\r\n"}));
  EXPECT_FALSE(splits_of_name("smol").has_value());
  EXPECT_FALSE(splits_of_name("").has_value());
}

TEST(Split, Behaviors) {
  const std::string s = "the-final--countdown";
  EXPECT_EQ(split({pattern("-")}, s), (Strings{"the", "-", "final", "-", "-", "countdown"}));
  EXPECT_EQ(split({pattern("-", Behavior::removed)}, s), (Strings{"the", "final", "countdown"}));
  EXPECT_EQ(split({pattern("-", Behavior::merged_with_previous)}, s), (Strings{"the-", "final-", "-", "countdown"}));
  EXPECT_EQ(split({pattern("-", Behavior::merged_with_next)}, s), (Strings{"the", "-final", "-", "-countdown"}));
  EXPECT_EQ(split({pattern("-", Behavior::contiguous)}, s), (Strings{"the", "-", "final", "--", "countdown"}));
  EXPECT_EQ(split({pattern("[a-z]+", Behavior::removed, true)}, s), (Strings{"the", "final", "countdown"}));
  EXPECT_EQ(split({{.kind = SplitStep::Kind::literal, .text = "--"}}, s), (Strings{"the-final", "--", "countdown"}));
  EXPECT_EQ(split({{.kind = SplitStep::Kind::digits}}, "a12b٣"), (Strings{"a", "12", "b", "٣"}));
  EXPECT_EQ(split({{.kind = SplitStep::Kind::prefix_space}}, "ab"), (Strings{" ab"}));
  EXPECT_EQ(split({{.kind = SplitStep::Kind::metaspace}}, "a  b"), (Strings{"▁a", "▁", "▁b"}));
  EXPECT_EQ(split({{.kind = SplitStep::Kind::metaspace, .cut = false}}, " a b"), (Strings{"▁a▁b"}));
}

TEST(Regex, WhiteSpaceAndRefusals) {
  EXPECT_EQ(split({pattern(R"(\s)")}, "a\u180E\u0085b"), (Strings{"a\u180E", "\u0085", "b"}));
  EXPECT_EQ(split({pattern(R"([^\s]+)", Behavior::removed)}, "a\u180E\u3000b"), (Strings{"\u3000"}));
  EXPECT_EQ(split({pattern(R"(\S+)", Behavior::removed)}, "a\u180E\u3000b"), (Strings{"\u3000"}));
  EXPECT_EQ(split({pattern("x*")}, "axxb"), (Strings{"a", "xx", "b"}));
  EXPECT_EQ(split({pattern("[[:digit:]\\s]+")}, "a1 2b"), (Strings{"a", "1 2", "b"}));
  for (const char* bad : {"(", "[a[b]]", "[a&&b]", "\\h", "\\C", "a\\", "[[:alpha", "(?<", "\xFF"})
    EXPECT_THROW(Regex{bad}, Error) << bad;
  // A match that would take 2^60 steps.
  EXPECT_THROW(split({pattern("(a|aa)+(b|c)")}, std::string(90, 'a')), Error);
}

}  // namespace
}  // namespace plait::text
