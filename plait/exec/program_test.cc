// Texts of programs that lie: an Error with bad_file or a program that keeps its rules.
#include "plait/exec/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plait/base/random.h"

namespace plait {
namespace {

std::string example() {
  Graph g;
  g.name = "small";
  g.dims = {{'T', {0, 4}}, {'D', {6, 0}}, {'F', {8, 2}}};
  const ValueId h =
      g.one("matmul", {g.input("x", "TD", Type::num), g.state("up", "FD")}, {.rule = "t d, f d -> t f", .label = "h"});
  g.num(g.one("matmul", {h, g.state("down", "DF")}, {.rule = "t f, d f -> t d", .label = "y"}));
  return partition(std::make_shared<const ShardedGraph>(propagate(g, tensor_parallel(2))), 1).text();
}

std::string error_of(const std::string& text) {
  try {
    Program::parse(text);
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

TEST(ProgramText, says_what_is_wrong) {
  const std::string good = example();
  EXPECT_EQ(Program::parse(good).text(), good);
  EXPECT_THAT(error_of(""), testing::HasSubstr("the text ends before 'of'"));
  EXPECT_THAT(error_of("program rank x\n"), testing::HasSubstr("want a number"));
  EXPECT_THAT(error_of(with(good, "rank 1", "rank 2")), testing::HasSubstr("rank 2 of a plan for 2 ranks"));
  EXPECT_THAT(error_of(with(good, "kernel", "kennel")), testing::HasSubstr("want kernel, start or wait"));
  EXPECT_THAT(error_of(with(good, "start ", "kernel")), testing::HasSubstr("another kind than its step"));
  const std::string line = good.substr(good.find('\n') + 1, good.find('\n', good.find('\n') + 1) - good.find('\n'));
  EXPECT_THAT(error_of(with(good, line, line + line)), testing::HasSubstr("runs twice"));
  EXPECT_THAT(error_of(with(good, line, "")), testing::HasSubstr("before it is made"));
}

TEST(ProgramText, survives_damage) {
  const std::string text = example();
  i64 read = 0, refused = 0;
  for (u64 i = 0; i < 2000; i++) {
    std::string t = text;
    for (u64 k = 0; k <= i % 2; k++) {
      const u64 r = random_bits(stream_of("program"), i * 4 + k);
      t[r % t.size()] = text[(r >> 20) % text.size()];
    }
    (error_of(t) == "no error" ? read : refused)++;
  }
  EXPECT_GT(read, 50);
  EXPECT_GT(refused, 300);
}

}  // namespace
}  // namespace plait
