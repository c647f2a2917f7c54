#include "plait/io/safetensors.h"

#include <unistd.h>
#include <nlohmann/json.hpp>

#include "plait/base/random.h"
#include "plait/io/json_text.h"
#include "plait/io/safetensors_writer.h"
#include "plait/io/test_support.h"

namespace plait::io {
namespace {

const std::array<double, 64> kData = [] {
  std::array<double, 64> d{};
  for (size_t i = 0; i < d.size(); i++) d[i] = 1.0 / static_cast<double>(i + 3);
  return d;
}();

SafetensorsWriter example() {
  SafetensorsWriter w;
  w.set_metadata("format", "pt");
  w.add("b.f16", DType::f16, {5}, kData.data());
  w.add("a.f32", DType::f32, {3, 5}, kData.data());
  w.add("c.bf16", DType::bf16, {2, 3}, kData.data());
  w.add("d.f64", DType::f64, {2}, kData.data());
  w.add("e.i64", DType::i64, {2, 2}, kData.data());
  w.add("scalar", DType::f32, {}, kData.data());
  w.add("nothing", DType::f32, {0, 4}, kData.data());
  w.add("\"quoted\" \xc3\xa9", DType::i32, {3}, kData.data());
  return w;
}

Safetensors open(const std::string& bytes) { return Safetensors(MappedFile::of_bytes("x.safetensors", bytes)); }

std::string file_of(const std::string& header, size_t data_bytes) {
  u64 n = header.size();
  return std::string(reinterpret_cast<const char*>(&n), 8) + header + std::string(data_bytes, '\1');
}

void expect_example(const Safetensors& s) {
  ASSERT_EQ(s.tensors().size(), 8u);
  EXPECT_EQ(s.tensor("a.f32").shape, (std::vector<i64>{3, 5}));
  EXPECT_EQ(s.tensor("scalar").shape, std::vector<i64>{});
  EXPECT_EQ(s.tensor("nothing").bytes, 0);
  EXPECT_EQ(*s.tensor("\"quoted\" \xc3\xa9").type->dtype, DType::i32);
  EXPECT_EQ(*s.tensor("c.bf16").type->dtype, DType::bf16);
  for (const auto& t : s.tensors()) {
    EXPECT_EQ(std::memcmp(t.data, kData.data(), static_cast<size_t>(t.bytes)), 0) << t.name;
    EXPECT_EQ(t.offset % (t.type->bits / 8), 0) << t.name;
  }
  EXPECT_EQ(s.metadata().at("format"), "pt");
  EXPECT_EQ(s.find_tensor("none"), nullptr);
  expect_bad_file([&] { s.tensor("none"); }, "no tensor 'none'");
}

TEST(Safetensors, round_trip) {
  TempFolder t;
  example().write(t / "a.safetensors");
  EXPECT_EQ(read_file(t / "a.safetensors"), example().to_bytes());
  expect_example(Safetensors(t / "a.safetensors"));
}

TEST(Safetensors, shards) {
  for (i64 most : {1, 40, 60, 100, 1000}) {
    TempFolder t;
    example().write_folder(t.path(), most);
    const bool sharded = most < 1000;
    ASSERT_EQ(fs::exists(t / "model.safetensors.index.json"), sharded);
    Safetensors s(t / (sharded ? "model.safetensors.index.json" : "model.safetensors"));
    expect_example(s);
    EXPECT_EQ(s.files().size() > 1, sharded);
  }
}

TEST(SafetensorsWriter, refuses_what_the_format_cannot_hold) {
  SafetensorsWriter w;
  EXPECT_THROW(w.add("q", DType::q4_0, {32}, kData.data()), Error);
  EXPECT_THROW(w.add("n", DType::f32, {-1}, kData.data()), Error);
  EXPECT_THROW(w.add("__metadata__", DType::f32, {1}, kData.data()), Error);
  EXPECT_THROW(w.add("o", DType::f32, {INT64_MAX, 2}, kData.data()), Error);
  w.add("t", DType::f32, {1}, kData.data());
  w.add("t", DType::f16, {1}, kData.data());
  EXPECT_THROW(w.to_bytes(), Error);
  SafetensorsWriter utf8;
  utf8.add("\xff", DType::f32, {1}, kData.data());
  EXPECT_THROW(utf8.to_bytes(), Error);
  SafetensorsWriter produced;
  produced.add("p", DType::f32, {2}, Producer([](const Sink& sink) { sink(kData.data(), 4); }));
  EXPECT_THROW(produced.to_bytes(), Error);
}

TEST(Safetensors, real_files) {
  NEED_SHARED(gpt2, "models/tiny_gpt2/model.safetensors");
  Safetensors s(gpt2);
  EXPECT_EQ(s.tensor("wte.weight").shape, (std::vector<i64>{21, 2}));
  Safetensors voices(shared("models/safetensors-misc/voices.safetensors"));
  EXPECT_EQ(*voices.tensor("tokens").type->dtype, DType::i64);
  EXPECT_EQ(voices.find_tensor("mask")->bytes, 32406);
  expect_bad_file([&] { voices.tensor("mask"); }, "'mask'", "got dtype U8");
  EXPECT_NO_THROW(Safetensors(shared("models/safetensors-misc/jfk-codes.safetensors")));
  expect_bad_file([] { Safetensors(shared("malformed/weight-inspect/tiny.safetensors")); },
                  "got 32773 bytes of data, want 32768");
}

template <class... P>
void expect_refused(const std::string& bytes, P... parts) {
  expect_bad_file([&] { open(bytes); }, "[x.safetensors]", parts...);
}

TEST(SafetensorsHostile, header_length) {
  for (size_t n : {0, 1, 7}) expect_refused(std::string(n, '\0'), "header length at offset 0");
  expect_refused(std::string(8, '\0'), "header at offset 8", "nothing");
  for (u64 n : {u64{1}, u64{1} << 32, u64{1} << 63, ~u64{0}})
    expect_refused(std::string(reinterpret_cast<const char*>(&n), 8), "header length");
  EXPECT_NO_THROW(open(file_of("{}", 0)));
  EXPECT_NO_THROW(open(file_of("{}      ", 0)));
  TempFolder t;  // a sparse file with a header that would fit
  u64 n = 100'000'001;
  write_file(t / "big.safetensors", std::string(reinterpret_cast<const char*>(&n), 8) + "{");
  fs::resize_file(t / "big.safetensors", n + 100);
  expect_bad_file([&] { Safetensors(t / "big.safetensors"); }, "100000001", "at most 100000000");
}

TEST(SafetensorsHostile, header_text) {
  for (const char* h : {" {}", "[]", "\xef\xbb\xbf{}", "x", "\"a\""})
    expect_refused(file_of(h, 0), "header at offset 8");
  for (std::string h : {std::string("{"), std::string("{}x"), std::string("{\"a\":}"), std::string("{\"\xff\": 1}"),
                        std::string("{,}")})
    expect_refused(file_of(h, 0), "not JSON");
  expect_refused(file_of(std::string("{}\0", 3), 0), "header at offset 10", "NUL");
  const std::string good = R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  EXPECT_NO_THROW(open(file_of(good, 4)));
  auto with = [&](const std::string& from, const std::string& to) {
    auto h = good;
    return file_of(h.replace(h.find(from), from.size(), to), 4);
  };
  for (const char* d : {"f32", "F33", "", "F32 "}) expect_refused(with("F32", d), "'t'", "want a dtype");
  for (const char* d : {"1", "null", "[]", "{}"}) expect_refused(with("\"F32\"", d), "want a dtype");
  for (const char* s : {"[-1]", "[1.0]", "[\"1\"]", "[null]", "[[1]]", "1", "{}", "[1e30]", "[true]"})
    expect_refused(with("[1]", s), "want a shape");
  for (const char* s : {"[0]", "[2]", "[1,2]", "[4294967296,4294967296]", "[9223372036854775807]"})
    expect_refused(with("[1]", s), "'t'", "bits");
  expect_refused(with("[1]", "[18446744073709551615]"), "want a shape");
  expect_refused(with("[1]", "[" + std::string(20'000, '1') + "]"), "header at offset");
  std::string dims = "[1";
  for (int i = 0; i < 10'000; i++) dims += ",1";
  expect_refused(with("[1]", dims + "]"), "more than 32");
  for (const char* o : {"[0]", "[0,4,8]", "[]", "[4,0]", "[-4,0]", "[0.0,4]", "[\"0\",4]", "[0,1e30]", "4"})
    expect_refused(with("[0,4]", o), "data_offsets");
  for (const char* o : {"[0,3]", "[0,8]"}) expect_refused(with("[0,4]", o), "bytes");
  expect_refused(with("[0,4]", "[4,8]"), "from 4 on, want from 0 on");
  expect_refused(with("[0,4]", "[9223372036854775803,9223372036854775807]"), "want from 0 on");
  expect_refused(with(R"("shape":[1],)", ""), "incomplete");
  expect_refused(with(R"("shape":[1],)", R"("shape":[1],"shape":[1],)"), "'shape' again");
  expect_refused(with(R"("shape":[1],)", R"("shape":[1],"dtype":"F32",)"), "'dtype' again");
  expect_refused(with(R"("shape":[1],)", R"("shape":[1],"stride":[1],)"), "'stride'");
  expect_refused(with(R"({"dtype")", R"([{"dtype")"), "want an object");
  expect_refused(with(R"({"t")", R"({"__metadata__":{"a":1},"t")"), "want a text");
  expect_refused(with(R"({"t")", R"({"__metadata__":{"a":"b","a":"b"},"t")"), "'a' again");
  expect_refused(with(R"({"t")", R"({"__metadata__":{},"__metadata__":{},"t")"), "again");
  expect_refused(with(R"({"t")", R"({"__metadata__":"x","t")"), "want an object");
  expect_refused(file_of(good, 3), "within the 3 bytes");
  expect_refused(file_of(good, 5), "got 5 bytes of data, want 4");
  expect_refused(file_of("{\"a\":" + std::string(100'000, '['), 0), "want an object");
  expect_refused(file_of(std::string(100'000, '{'), 0), "not JSON");
}

TEST(SafetensorsHostile, places_of_tensors) {
  auto two = [](std::string a, std::string b, size_t data, const char* second = "u") {
    return file_of(
        fmt::format(
            R"({{"t":{{"dtype":"F16","shape":[2],"data_offsets":{}}},"{}":{{"dtype":"F16","shape":[2],"data_offsets":{}}}}})",
            a, second, b),
        data);
  };
  EXPECT_NO_THROW(open(two("[0,4]", "[4,8]", 8)));
  EXPECT_NO_THROW(open(two("[4,8]", "[0,4]", 8)));
  expect_refused(two("[0,4]", "[0,4]", 4), "want from 4 on");
  expect_refused(two("[0,4]", "[2,6]", 6), "from 2 on");
  expect_refused(two("[0,4]", "[5,9]", 9), "from 5 on");
  expect_refused(two("[1,5]", "[5,9]", 9), "from 1 on");
  expect_refused(two("[0,4]", "[4,8]", 8, "t"), "tensor 't' again");
  expect_refused(two("[0,4]", "[4,8]", 8, "\\u0074"), "tensor 't' again");
}

bool read_all(const std::string& bytes) {
  return works_or_bad_file([&] {
    auto s = open(bytes);
    u64 sum = 0;
    for (const auto& t : s.tensors())
      for (i64 i = 0; i < t.bytes; i++) sum += static_cast<u64>(t.data[i]);
    EXPECT_NE(sum, 1u);
  });
}

TEST(SafetensorsHostile, cut_at_every_byte) {
  const auto good = example().to_bytes();
  ASSERT_TRUE(read_all(good));
  for (size_t n = 0; n < good.size(); n++) EXPECT_FALSE(read_all(good.substr(0, n))) << n;
}

TEST(SafetensorsHostile, single_bytes_changed) {
  const auto good = example().to_bytes();
  u64 header = 0;
  std::memcpy(&header, good.data(), 8);
  int opened = 0, tried = 0;
  for (size_t at = 0; at < 8 + header; at++)
    for (u64 k = 0; k < 10; k++, tried++) {
      auto bad = good;
      constexpr char kChars[] = {'"', '{', '}', '0', '\0', '\\'};
      bad[at] = k < 6 ? kChars[k] : static_cast<char>(random_bits(stream_of("safetensors"), at * 16 + k));
      opened += read_all(bad);
    }
  EXPECT_GT(tried, 4000);
  EXPECT_GT(opened, tried / 100);
  EXPECT_LT(opened, tried);
}

TEST(SafetensorsHostile, files_of_other_projects) {
  NEED_SHARED(folder, "malformed");
  const i64 before = peak_bytes();
  for (const auto& e : fs::recursive_directory_iterator(folder))
    if (e.is_regular_file()) read_all(read_file(e.path().string()));
  EXPECT_LT(peak_bytes() - before, i64{64} << 20);
}

TEST(SafetensorsHostile, many_tensors_cost_memory_like_the_header) {
  std::string header = "{";
  for (int i = 0; i < 100'000; i++)
    header += fmt::format(R"({}"{}":{{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})", i == 0 ? "" : ",", i);
  const auto bytes = file_of(header + "}", 0);
  const i64 before = peak_bytes();
  EXPECT_EQ(open(bytes).tensors().size(), 100'000u);
  EXPECT_LT(peak_bytes() - before, 12 * static_cast<i64>(bytes.size()));
}

TEST(SafetensorsHostile, a_header_makes_no_more_than_its_bounds) {
  std::string tensors = "{", metadata = R"({"__metadata__":{)";
  for (int i = 0; i < 140'000; i++) {
    tensors += fmt::format(R"({}"{}":{{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})", i == 0 ? "" : ",", i);
    metadata += fmt::format(R"({}"{}":"")", i == 0 ? "" : ",", i);
  }
  expect_refused(file_of(tensors + "}", 0), "more than 131072 tensors");
  expect_refused(file_of(metadata + "}}", 0), "more than 65536 entries");
  expect_refused(file_of("{\"" + std::string(3'000'000, 'a') + "\":1}", 0), "a text of more than 1048576 bytes");
  expect_refused(file_of("{\"t\":" + std::string(3'000'000, '1') + "}", 0), "a text of more than 1048576 bytes");
}

TEST(SafetensorsIndex, disagreements_are_refused) {
  TempFolder t;
  const auto index = t / "model.safetensors.index.json";
  example().write_folder(t.path(), 60);
  auto json = read_json(index);
  auto expect = [&](auto change, auto... parts) {
    auto j = json;
    change(j);
    write_file(index, j.dump());
    expect_bad_file([&] { Safetensors s(index); }, parts...);
  };
  const std::string first = json["weight_map"]["d.f64"], other = json["weight_map"]["c.bf16"];
  ASSERT_NE(first, other);
  expect([](auto& j) { j["weight_map"]["new"] = "model-00009-of-00009.safetensors"; },
         "model-00009-of-00009.safetensors", "No such file");
  expect([&](auto& j) { j["weight_map"]["new"] = first; }, "no tensor 'new' in shard " + first);
  expect([&](auto& j) { j["weight_map"]["d.f64"] = other; }, "no tensor 'd.f64' in shard " + other);
  for (std::string name :
       {std::string("../x.safetensors"), std::string("/etc/x.safetensors"), std::string("a/b.safetensors"),
        std::string("..\\x.safetensors"), std::string("x.bin"), std::string(""), std::string("a\0.safetensors", 14)})
    expect([&](auto& j) { j["weight_map"]["d.f64"] = name; }, "shard of 'd.f64'", "in this folder");
  expect([](auto& j) { j["weight_map"]["d.f64"] = 3; }, "shard of 'd.f64': got number");
  expect([](auto& j) { j["weight_map"] = {1, 2}; }, "weight_map");
  expect([](auto& j) { j["weight_map"] = nlohmann::json::object(); }, "weight_map");
  expect([](auto& j) { j = {1, 2}; }, "weight_map");
  expect([](auto& j) { j.erase("weight_map"); }, "weight_map");
  write_file(index, R"({"weight_map": {"a": "x.safetensors", "a": "x.safetensors"}})");
  expect_bad_file([&] { Safetensors s(index); }, "'a' again");
  write_file(index, json.dump());
  expect_example(Safetensors(index));
}

TEST(SafetensorsIndex, a_real_index_names_its_missing_shard) {
  NEED_SHARED(path, "models/index/gemma-2-9b-it.model.safetensors.index.json");
  expect_bad_file([&] { Safetensors s(path); }, "model-00001-of-00004.safetensors", "No such file");
}

}  // namespace
}  // namespace plait::io
