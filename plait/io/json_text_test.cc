#include <nlohmann/json.hpp>

#include "plait/io/json_text.h"

#include "plait/io/test_support.h"

namespace plait::io {
namespace {

TEST(JsonText, good_text) {
  EXPECT_EQ(parse_json(R"( {"a": [1, 2.5, null, "x\"[[[\\"], "b": {"a": true}} )", "f")["b"]["a"], true);
  std::string deep(60, '['), close(60, ']');
  EXPECT_NO_THROW(parse_json(deep + close, "f"));
}

TEST(JsonText, names_what_is_wrong) {
  auto bad = [](std::string text, auto... parts) {
    expect_bad_file([&] { parse_json(text, "f.json"); }, "[f.json]", parts...);
  };
  bad(R"({"a": 1, "b": 2, "a": 3})", "'a' again");
  bad(R"([{"x": {"a": 1, "\u0061": 3}}])", "'a' again");
  bad("", "offset 0", "the end");
  bad("{", "the end");
  bad("{\"a\": tru}", "offset");
  bad("{} {}", "offset 3");
  bad("\xef\xbb\xbf{}", "byte order mark");
  bad("{\"a\": \"\xff\"}", "offset");
  bad("{\"a\": \"\\ud800\"}", "offset");
  bad(std::string("{}\0", 3), "offset 2", "NUL");
  bad("{\"a\": 1e999}", "JSON");
  bad("{\"a\": NaN}", "offset");
  bad("// c\n{}", "offset");
  bad("[1, " + std::string(100'000, '1') + "]", "offset 3", "a number of more than 4096");
  bad(std::string(100'000, '['), "64 levels");
  std::string objects;
  for (int i = 0; i < 100'000; i++) objects += "{\"a\":";
  bad(objects, "64 levels");
}

TEST(JsonText, memory_is_bounded_before_anything_is_made) {
  std::string lists = "[", objects = "[";
  for (int i = 0; i < 1'000'000; i++) lists += "[],";
  for (int i = 0; i < 400'000; i++) objects += "{\"\":1},";
  const i64 before = peak_bytes();
  expect_bad_file([&] { parse_json(lists + "[]]", "f"); }, "[f] JSON: got values that take 88 MB", "at most 80 MB");
  expect_bad_file([&] { parse_json(objects + "{}]", "f"); }, "at most 80 MB");
  EXPECT_LT(peak_bytes() - before, i64{10} << 20);
  const std::string some = objects.substr(0, 1 + 7 * 200'000) + "{}]";
  const clock_t begin = clock();
  EXPECT_EQ(parse_json(some, "f").size(), 200'001u);
  EXPECT_LT(static_cast<double>(clock() - begin) / CLOCKS_PER_SEC, 5.0);  // 0.1 s, or minutes where it grows as n^2
  EXPECT_EQ(parse_json(lists.substr(0, 1'500'001) + "[]]", "f").size(), 500'001u);
  EXPECT_LT(peak_bytes() - before, i64{80} << 20);
}

TEST(JsonText, files) {
  TempFolder t;
  write_file(t / "a.json", "{\"a\": 1}");
  EXPECT_EQ(read_json(t / "a.json")["a"], 1);
  expect_bad_file([&] { read_json(t / "a.json", 4); }, "a.json", "8 bytes");
  expect_bad_file([&] { read_json(t / "b.json"); }, "b.json", "No such file");
}

}  // namespace
}  // namespace plait::io
