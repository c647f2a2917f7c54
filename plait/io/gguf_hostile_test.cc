// GGUF files that lie: each ends in bad_file with the place named, or in a file that can be read to its last byte.
#include <nlohmann/json.hpp>

#include "plait/base/random.h"
#include "plait/io/gguf.h"
#include "plait/io/gguf_config.h"
#include "plait/io/gguf_writer.h"
#include "plait/io/test_support.h"

namespace plait::io {
namespace {

/// A file by hand, field by field.
class Bytes {
 public:
  explicit Bytes(std::uint32_t version = 3) { raw("GGUF").u32(version); }
  Bytes& raw(std::string_view s) {
    bytes_ += s;
    return *this;
  }
  Bytes& u8(std::uint8_t v) { return put(v); }
  Bytes& u32(std::uint32_t v) { return put(v); }
  Bytes& u64(plait::u64 v) { return put(v); }
  Bytes& text(std::string_view s) { return u64(s.size()).raw(s); }
  Bytes& counts(plait::u64 tensors, plait::u64 keys) { return u64(tensors).u64(keys); }
  Bytes& tensor(std::string_view name, std::vector<plait::u64> dims, std::uint32_t type, plait::u64 offset) {
    text(name).u32(static_cast<std::uint32_t>(dims.size()));
    for (auto d : dims) u64(d);
    return u32(type).u64(offset);
  }
  Bytes& data(size_t n) {
    bytes_.resize((bytes_.size() + 31) / 32 * 32 + n, '\1');
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  template <class T>
  Bytes& put(T v) {
    bytes_.append(reinterpret_cast<const char*>(&v), sizeof v);
    return *this;
  }
  std::string bytes_;
};

GgufFile open(const std::string& bytes) { return GgufFile(MappedFile::of_bytes("x.gguf", bytes)); }

template <class... P>
void expect_refused(const Bytes& b, P... parts) {
  expect_bad_file([&] { open(b.bytes()); }, "[x.gguf]", parts...);
}

u64 sum_of(const std::byte* p, i64 n) {
  u64 s = 0;
  for (i64 i = 0; i < n; i++) s += static_cast<u64>(p[i]);
  return s;
}

/// Reads every value and tensor; true when the file could be opened.
bool read_all(const std::string& bytes) {
  return works_or_bad_file([&] {
    GgufFile f = open(bytes);
    u64 sum = 0;
    for (auto key : f.keys()) {
      const auto& v = *f.find(key);
      sum += sum_of(v.data, v.bytes);
      works_or_bad_file([&] { f.texts(key); });
      works_or_bad_file([&] { f.integers(key); });
      works_or_bad_file([&] { f.numbers(key); });
      works_or_bad_file([&] { f.flags(key); });
      works_or_bad_file([&] { f.text(key); });
      works_or_bad_file([&] { f.integer(key); });
      works_or_bad_file([&] { f.number(key); });
    }
    for (const auto& t : f.tensors()) {
      works_or_bad_file([&] { f.tensor(t.name); });
      sum += sum_of(t.data, t.bytes);
    }
    works_or_bad_file([&] { config_of(f); });
    EXPECT_NE(sum, 1u);  // keeps the reads
  });
}

TEST(GgufHostile, head) {
  expect_bad_file([] { open(""); }, "magic at offset 0", "the file's end");
  expect_bad_file([] { open("GGU"); }, "want 4 bytes");
  expect_bad_file([] { open("GGML\3\0\0\0"); }, "magic at offset 0", "'GGML'", "'GGUF'");
  expect_bad_file([] { open("GGUF"); }, "version at offset 4");
  for (std::uint32_t v : {0u, 1u, 4u, 99u, 0xffffffffu})
    expect_refused(Bytes(v).counts(0, 0), fmt::format("version at offset 4: got {}", v));
  expect_refused(Bytes(0x03000000u).counts(0, 0), "big-endian");
  EXPECT_NO_THROW(open(Bytes(2).counts(0, 0).bytes()));
}

TEST(GgufHostile, counts_beyond_the_file) {
  expect_refused(Bytes().counts(1, 0), "number of tensors at offset 8: got 1, want at most 0 in the 8 bytes left");
  expect_refused(Bytes().counts(0, 1), "number of keys at offset 16: got 1, want at most 0 in the 0 bytes left");
  for (u64 n : {u64{100}, u64{1} << 31, u64{1} << 60, u64{1} << 63, ~u64{0} - 100}) {
    expect_refused(Bytes().counts(n, 0), "number of tensors at offset 8");
    expect_refused(Bytes().counts(0, n), "number of keys at offset 16");
    expect_refused(Bytes().counts(0, 1).u64(n).raw("12345678"), "key at offset 24");
    expect_refused(Bytes().counts(0, 1).text("k").u32(8).u64(n), "value of 'k' at offset 37");
    expect_refused(Bytes().counts(0, 1).text("k").u32(9).u32(4).u64(n), "value of 'k'");
    expect_refused(Bytes().counts(0, 1).text("k").u32(9).u32(8).u64(n), "value of 'k'");
    expect_refused(Bytes().counts(0, 1).text("k").u32(9).u32(0).u64(n), "value of 'k'");
    expect_refused(Bytes().counts(1, 0).u64(n + 100).raw(std::string(40, 'x')), "tensor name at offset 24");
  }
}

TEST(GgufHostile, keys_and_values) {
  expect_refused(Bytes().counts(0, 1).text("").u32(0).u8(1), "key at offset 24", "1 to 1024 bytes");
  expect_refused(Bytes().counts(0, 1).text(std::string(2000, 'k')).u32(0).u8(1), "(2000 bytes)");
  expect_refused(Bytes().counts(0, 1).text(std::string_view("a\0b", 3)).u32(0).u8(1), "a\\x00b");
  expect_refused(Bytes().counts(0, 2).text("k").u32(0).u8(1).text("k").u32(0).u8(2), "'k' again");
  expect_refused(Bytes().counts(0, 1).text("k").u32(13).u64(0), "got 13, want a value type");
  expect_refused(Bytes().counts(0, 1).text("k").u32(7).u8(2), "got 2, want a boolean");
  expect_refused(Bytes().counts(0, 1).text("k").u32(9).u32(7).u64(2).u8(1).u8(3), "got 3, want a boolean");
  expect_refused(Bytes().counts(0, 1).text("k").u32(9).u32(77).u64(0), "got 77, want a value type");
  Bytes nested;
  nested.counts(0, 1).text("k").u32(9);
  for (int i = 0; i < 100'000; i++) nested.u32(9).u64(1);
  expect_refused(nested, "deeper arrays");
  Bytes two;  // two levels are legal; nothing reads them as a flat array
  two.counts(0, 1).text("k").u32(9).u32(9).u64(2).u32(0).u64(2).u8(1).u8(2).u32(8).u64(1).text("x");
  auto f = open(two.bytes());
  EXPECT_EQ(f.find("k")->count, 2);
  expect_bad_file([&] { f.integers("k"); }, "array of 2 array");
}

TEST(GgufHostile, alignment) {
  auto with = [](std::uint32_t a) { return Bytes().counts(0, 1).text("general.alignment").u32(4).u32(a); };
  for (std::uint32_t a : {0u, 1u, 4u, 13u, 33u, 0x80000000u, 0xffffffffu})
    expect_refused(with(a), "general.alignment", fmt::format("got {}", a));
  EXPECT_EQ(open(with(64).bytes()).alignment(), 64);
  expect_refused(Bytes().counts(0, 1).text("general.alignment").u32(10).u64(32), "got u64", "a u32");
  expect_refused(Bytes().counts(0, 1).text("general.alignment").u32(8).text("32"), "got text");
}

TEST(GgufHostile, tensors) {
  auto one = [](std::vector<u64> dims, std::uint32_t type, u64 offset, size_t data) {
    return Bytes().counts(1, 0).tensor("t", std::move(dims), type, offset).data(data);
  };
  EXPECT_NO_THROW(open(one({4, 2}, 0, 0, 32).bytes()));
  EXPECT_NO_THROW(open(one({4, 2}, 0, 32, 64).bytes()));
  expect_refused(one({1, 1, 1, 1, 1}, 0, 0, 4), "tensor 't'", "5 dims");
  expect_refused(Bytes().counts(1, 0).text("t").u32(0xffffffff).data(64), "4294967295 dims");
  expect_refused(one({0}, 0, 0, 4), "a dim of 0");
  expect_refused(one({u64{1} << 63}, 0, 0, 4), "a dim of -9223372036854775808");
  expect_refused(one({u64{1} << 32, u64{1} << 32}, 0, 0, 4), "elements", "64 bits");
  expect_refused(one({u64{1} << 61}, 0, 0, 4), "bytes", "64 bits");
  expect_refused(one({u64{1} << 40}, 0, 0, 4), "both within the 4 bytes");
  expect_refused(one({4}, 0, 0, 15), "data offset 0 and 16 bytes");
  expect_refused(one({4}, 0, 8, 64), "data offset 8", "a multiple of 32");
  expect_refused(one({4}, 0, 96, 64), "data offset 96");
  expect_refused(one({4}, 0, u64{1} << 62, 64), "data offset 4611686018427387904");
  expect_refused(one({4}, 0, ~u64{0} - 31, 64), "data offset -32");
  expect_refused(one({16, 2}, 2, 0, 64), "rows of 16 elements of Q4_0", "a multiple of 32");
  expect_refused(one({128}, 12, 0, 64), "rows of 128 elements of Q4_K", "a multiple of 256");
  expect_refused(one({32}, 6, 0, 21), "data offset 0 and 22 bytes");
  for (auto [id, bytes] : {std::pair{10, 84}, {11, 110}, {12, 144}, {13, 176}, {14, 210}}) {
    expect_refused(one({640, 3}, static_cast<std::uint32_t>(id), 0, 4096), "rows of 640 elements", "a multiple of 256");
    expect_refused(one({256, 2}, static_cast<std::uint32_t>(id), 0, 2 * bytes - 1),
                   fmt::format("data offset 0 and {} bytes", 2 * bytes));
    expect_refused(one({256, u64{1} << 56}, static_cast<std::uint32_t>(id), 0, 64), "elements", "64 bits");
    EXPECT_NO_THROW(open(one({256, 2}, static_cast<std::uint32_t>(id), 0, 2 * bytes).bytes()).tensor("t"));
  }
  expect_refused(Bytes().counts(1, 0).tensor("t", {4}, 0, 0), "the file's end");
  expect_refused(Bytes().counts(1, 0).tensor("", {4}, 0, 0).data(32), "tensor name");
  expect_refused(Bytes().counts(2, 0).tensor("t", {4}, 0, 0).tensor("t", {4}, 0, 32).data(64), "'t' again");
  expect_refused(Bytes().counts(2, 0).tensor("a", {16}, 0, 0).tensor("b", {4}, 0, 32).data(64),
                 "the bytes of tensor 'a'");
  expect_refused(Bytes().counts(2, 0).tensor("a", {4}, 0, 0).tensor("b", {4}, 0, 0).data(64), "the bytes of tensor");
  EXPECT_NO_THROW(open(Bytes().counts(2, 0).tensor("a", {8}, 0, 32).tensor("b", {8}, 0, 0).data(64).bytes()));
}

TEST(GgufHostile, a_type_that_is_not_read_is_refused_when_asked_for) {
  auto f = open(Bytes()
                    .counts(3, 0)
                    .tensor("k", {256}, 23, 0)
                    .tensor("new", {64}, 99, 160)
                    .tensor("f", {8}, 0, 160)
                    .data(192)
                    .bytes());
  EXPECT_EQ(f.tensors().size(), 3u);
  EXPECT_EQ(f.tensors()[0].bytes, 136);
  expect_bad_file([&] { f.tensor("k"); }, "x.gguf", "tensor 'k'", "IQ4_XS", "want F32");
  expect_bad_file([&] { f.tensor("new"); }, "tensor 'new'", "99");
  EXPECT_EQ(f.tensor("f").bytes, 32);
}

std::string good_file() {
  static const std::array<std::byte, 700> data{};
  GgufWriter w;
  w.set_text("general.architecture", "llama");
  w.set_u32("llama.block_count", 2);
  w.set_f32("llama.rope.freq_base", 1e4f);
  w.set_flag("tokenizer.ggml.add_bos_token", true);
  std::vector<std::string_view> texts = {"<s>", "a", "bc"};
  w.set_texts("tokenizer.ggml.tokens", texts);
  w.set_f32s("tokenizer.ggml.scores", std::vector<float>{0, -1, -2});
  w.set_i32s("tokenizer.ggml.token_type", std::vector<std::int32_t>{3, 1, 1});
  w.add("token_embd.weight", DType::q8_0, {3, 64}, data.data());
  w.add("output_norm.weight", DType::f32, {64}, data.data());
  w.add("blk.0.attn_q.weight", DType::q4_1, {2, 64}, data.data());
  w.add("blk.0.ffn_down.weight", DType::q6_k, {3, 256}, data.data());
  return w.to_bytes();
}

TEST(GgufHostile, cut_at_every_byte) {
  const auto good = good_file();
  ASSERT_TRUE(read_all(good));
  const i64 need = static_cast<i64>(good.size()) - 10;  // 630 bytes of the last tensor are padded to 640
  for (size_t n = 0; n < good.size(); n++) EXPECT_EQ(read_all(good.substr(0, n)), static_cast<i64>(n) >= need) << n;
}

TEST(GgufHostile, single_bytes_changed) {
  const auto good = good_file();
  const auto head = good.find("blk.0.ffn_down.weight") + 60;
  int opened = 0, tried = 0;
  for (size_t at = 0; at < head; at++)
    for (u64 k = 0; k < 12; k++, tried++) {
      auto bad = good;
      constexpr std::uint8_t kValues[] = {0x00, 0x01, 0x7f, 0x80, 0xff};
      auto& b = reinterpret_cast<std::uint8_t&>(bad[at]);
      b = k < 5 ? kValues[k] : static_cast<std::uint8_t>(random_bits(stream_of("gguf"), at * 16 + k));
      opened += read_all(bad);
    }
  EXPECT_GT(tried, 5000);
  EXPECT_GT(opened, tried / 100);
  EXPECT_LT(opened, tried);
}

TEST(GgufHostile, several_words_changed) {
  const auto good = good_file();
  const auto head = good.find("blk.0.ffn_down.weight") + 60;
  constexpr u64 kWords[] = {0,          1,          2,          31,           32,           255,
                            0x7fffffff, 0x80000000, 0xffffffff, u64{1} << 62, u64{1} << 63, ~u64{0}};
  for (u64 i = 0; i < 4000; i++) {
    auto bad = good;
    for (u64 k = 0; k < 1 + i % 4; k++) {
      u64 r = random_bits(stream_of("words"), i * 8 + k);
      auto width = (r & 1) != 0 ? 4u : 8u;
      std::memcpy(bad.data() + (r >> 8) % (head - 8), &kWords[(r >> 40) % std::size(kWords)], width);
    }
    read_all(bad);
  }
}

TEST(GgufHostile, fuzz_inputs_of_another_project) {
  NEED_SHARED(folder, "malformed");
  const i64 before = peak_bytes();
  int tried = 0;
  for (const auto& e : fs::recursive_directory_iterator(folder)) {
    if (!e.is_regular_file()) continue;
    SCOPED_TRACE(e.path().string());
    read_all(read_file(e.path().string()));
    works_or_bad_file([&] { GgufFile(e.path().string()); });
    tried++;
  }
  EXPECT_GT(tried, 20);
  EXPECT_LT(peak_bytes() - before, i64{64} << 20);
}

TEST(GgufHostile, messages_show_no_raw_bytes) {
  Bytes b;
  b.counts(0, 1).text("\x1b[31mred\xff\n").u32(0).u8(1);
  auto bytes = b.bytes();
  auto f = open(bytes);
  try {
    f.text(f.keys()[0]);
    FAIL();
  } catch (const Error& e) { EXPECT_THAT(e.what(), testing::HasSubstr("\\x1b[31mred\\xff\\x0a")); }
}

}  // namespace
}  // namespace plait::io
