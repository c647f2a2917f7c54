#include "plait/io/file_tensor.h"

#include <numeric>

#include "plait/base/random.h"
#include "plait/io/test_support.h"
#include "plait/tensor/tensor.h"

namespace plait::io {
namespace {

/// A tensor of any type over bytes of its own, `shift` bytes off alignment.
struct Example {
  std::vector<std::byte> memory;
  FileTensor t;
  std::vector<float> values;  // all of them, by the tensor room

  Example(DType dtype, std::vector<i64> shape, size_t shift = 0) {
    i64 n = std::accumulate(shape.begin(), shape.end(), i64{1}, std::multiplies<>());
    memory.resize(static_cast<size_t>(bytes_of(dtype, n)) + shift + 64);
    std::vector<std::byte> aligned(memory.size());
    values.resize(static_cast<size_t>(n));
    if (is_quantized(dtype)) {
      for (size_t i = 0; i < values.size(); i++) values[i] = static_cast<float>(normal(2, i));
      from_f32(dtype, values.data(), aligned.data(), n);
    } else {
      for (size_t i = 0; i < values.size(); i++) values[i] = static_cast<float>(normal(3, i));
      from_f32(dtype, values.data(), aligned.data(), n);
    }
    to_f32(dtype, aligned.data(), values.data(), n);
    std::memcpy(memory.data() + shift, aligned.data(), static_cast<size_t>(bytes_of(dtype, n)));
    t = {"t", dtype, std::move(shape), memory.data() + shift, bytes_of(dtype, n), nullptr};
  }
};

void check(const Example& e, const Box& box, DType to) {
  const i64 n = volume(box), block = info(to).block;
  Buffer out(n * info(to).block_bytes / block + 64);
  std::memset(out.data(), 0x5a, static_cast<size_t>(out.bytes()));
  read_slice(e.t, box, to, out.data());
  std::vector<float> got(static_cast<size_t>(n)), want;
  to_f32(to, out.data(), got.data(), n);
  View all{nullptr, DType::f32, Layout::rows, whole(e.t)};
  for_each(box, [&](const std::vector<i64>& x) { want.push_back(e.values[static_cast<size_t>(all.at(x))]); });
  if (to != e.t.dtype) {
    std::vector<std::byte> rounded(static_cast<size_t>(n * 8));
    from_f32(to, want.data(), rounded.data(), n);
    to_f32(to, rounded.data(), want.data(), n);
  }
  EXPECT_EQ(got, want) << name_of(e.t.dtype) << " to " << name_of(to) << " " << to_string(box);
  for (i64 i = bytes_of(to, n); i < out.bytes(); i++) ASSERT_EQ(out.data()[i], std::byte{0x5a}) << "wrote past the end";
}

TEST(ReadSlice, any_box_of_plain_types) {
  for (auto from : {DType::f32, DType::bf16, DType::f16, DType::f64})
    for (auto to : {DType::f32, DType::bf16, DType::f64, DType::f16})
      for (size_t shift : {0, 1}) {
        Example e(from, {3, 4, 5, 7}, shift);
        check(e, whole(e.t), to);
        for (u64 i = 0; i < 30; i++) {
          Box box;
          for (size_t d = 0; d < 4; d++) {
            auto n = static_cast<u64>(e.t.shape[d]);
            u64 r = random_bits(stream_of("box"), i * 4 + d), a = r % n, b = a + 1 + (r >> 20) % (n - a);
            box.push_back(r >> 60 < 4 ? Range{0, static_cast<i64>(n)}
                                      : Range{static_cast<i64>(a), static_cast<i64>(b)});
          }
          check(e, box, to);
        }
      }
}

TEST(ReadSlice, any_box_of_block_types) {
  for (auto from : kBlockTypes)
    for (size_t shift : {0, 1}) {
      const bool large = info(from).block == 256;
      Example e(from, {5, large ? 2304 : 2112}, shift);  // rows longer than one chunk
      for (auto to : {DType::f32, DType::bf16, DType::f64}) {
        check(e, whole(e.t), to);
        for (auto columns : {Range{0, 1}, Range{31, 33}, Range{5, 2112}, Range{1000, 2100}, Range{64, 96}})
          check(e, {{1, 4}, columns}, to);
      }
      const auto whole_blocks = large ? std::vector<Range>{{0, 2304}, {256, 512}, {1024, 2304}}
                                      : std::vector<Range>{{0, 2112}, {32, 64}, {1024, 2112}};
      for (auto columns : whole_blocks) check(e, {{2, 5}, columns}, from);
    }
}

TEST(ReadSlice, long_vectors_scalars_and_nothing) {
  Example v(DType::f16, {5000});
  check(v, {{17, 4999}}, DType::f32);
  Example s(DType::bf16, {});
  check(s, {}, DType::f32);
  char untouched = 'x';
  read_slice(v.t, {{3, 3}}, DType::f32, &untouched);
  EXPECT_EQ(untouched, 'x');
}

TEST(ReadSlice, refuses_by_name) {
  Example q(DType::q4_0, {2, 64}), i(DType::f32, {4});
  float out[256];
  expect_bad_file([&] { read_slice(q.t, {{0, 2}}, DType::f32, out); }, "'t'", "1 dims, want 2");
  expect_bad_file([&] { read_slice(q.t, {{0, 3}, {0, 64}}, DType::f32, out); }, "'t'", "dim 0", "inside its 2");
  expect_bad_file([&] { read_slice(q.t, {{0, 2}, {-1, 64}}, DType::f32, out); }, "dim 1");
  expect_bad_file([&] { read_slice(q.t, {{0, 2}, {16, 48}}, DType::q4_0, out); }, "multiples of 32");
  expect_bad_file([&] { read_slice(q.t, {{0, 2}, {0, 32}}, DType::q8_0, out); }, "converts to q8_0");
  Example k(DType::q4_k, {2, 512});
  expect_bad_file([&] { read_slice(k.t, {{0, 2}, {128, 512}}, DType::q4_k, out); }, "multiples of 256");
  i.t.dtype = DType::i32;
  expect_bad_file([&] { read_slice(i.t, {{0, 4}}, DType::f32, out); }, "got i32");
  EXPECT_NO_THROW(read_slice(i.t, {{0, 4}}, DType::i32, out));
}

/// w.reshape(heads, 2, H/2, columns).swapaxes(1, 2).reshape(rows, columns) is what the file holds.
TEST(HeadRows, follow_the_definition_of_the_conversion) {
  for (i64 head_dim : {2, 8, 64, 128}) {
    const i64 heads = 3;
    std::vector<i64> file_row_holds;  // the Hugging Face row in each row of the file
    for (i64 h = 0; h < heads; h++)
      for (i64 j = 0; j < head_dim / 2; j++)
        for (i64 s = 0; s < 2; s++) file_row_holds.push_back((h * 2 + s) * (head_dim / 2) + j);
    for (i64 r = 0; r < heads * head_dim; r++) {
      EXPECT_EQ(hf_row_of_gguf(head_dim, r), file_row_holds[static_cast<size_t>(r)]);
      EXPECT_EQ(gguf_row_of_hf(head_dim, hf_row_of_gguf(head_dim, r)), r);
    }
  }
}

TEST(ReadSlice, a_file_cut_short_meanwhile_is_refused) {
  TempFolder folder;
  write_file(folder / "w", std::string(80'000, '\1'));
  MappedFile file(folder / "w");
  const FileTensor t{"t", DType::f32, {200, 100}, file.data(), file.size(), &file};
  std::vector<float> row(100);
  read_slice(t, {{199, 200}, {0, 100}}, DType::f32, row.data());
  fs::resize_file(folder / "w", 40'000);
  expect_bad_file(
      [&] {
        read_slice(t, {{199, 200}, {0, 100}}, DType::f32, row.data());
      },
      folder / "w", "got 40000 bytes while it was read");
}

}  // namespace
}  // namespace plait::io
