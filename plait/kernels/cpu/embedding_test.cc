#include "plait/kernels/cpu/test_support.h"
#include "plait/kernels/panels.h"

namespace plait::kernels {
namespace {

using Embedding = test::Kernels;

TEST_F(Embedding, TakesRowsOfEveryTypeAndLayout) {
  i64 words = 37;
  Range held{100, 100 + words};
  std::vector<i64> wanted = {100, 136, 117, 99, 137, -1, -2147483648, 2147483647, 110, 127};
  Tensor ids = test::indices({4, 14}, wanted);
  std::vector<DType> types{DType::f32, DType::bf16};
  types.insert(types.end(), std::begin(kBlockTypes), std::end(kBlockTypes));
  for (DType t : types) {
    const i64 d = std::max<i64>(64, info(t).block);
    Tensor rows(t, {held, {0, d}});
    for (i64 i = 0; i < rows.buffer.bytes(); i++)
      rows.as<std::uint8_t>()[i] =
          static_cast<std::uint8_t>(random_bits(5, static_cast<u64>(i)) & 0x3f);  // small scales
    Tensor packed(t, rows.box, Layout::panels);
    packed.buffer = Buffer(panel_bytes(t, words, d));
    packed.data = packed.buffer.data();
    pack_panels(t, rows.as<std::byte>(), bytes_of(t, d), words, d, {0, panels_of(words)}, packed.as<std::byte>());
    for (View table : {View(rows), View(packed)}) {
      Tensor y(DType::f32, {{4, 14}, {0, d}});
      Args a = test::args_of("embedding", "t, v d -> t d", {ids, table}, {y});
      a.ranges["v"] = {105, 137};  // a part of what is held
      test::expect_same_everywhere(prepare_embedding, a, table.layout == Layout::rows && !is_quantized(t));
      for (size_t i = 0; i < wanted.size(); i++) {
        std::vector<float> want(static_cast<size_t>(d), 0.0f);
        if (wanted[i] >= 105 && wanted[i] < 137)
          to_f32(t, rows.as<std::byte>() + (wanted[i] - 100) * bytes_of(t, d), want.data(), d);
        EXPECT_EQ(std::memcmp(y.as<float>() + static_cast<i64>(i) * d, want.data(), static_cast<size_t>(d) * 4), 0)
            << name_of(t) << " " << wanted[i];
      }
    }
  }
}

TEST_F(Embedding, TakeRowsKeepsBitsAndZeroesOthers) {
  for (DType t : {DType::f32, DType::bf16}) {
    Tensor x = test::random_tensor(t, {{10, 20}, {0, 9}}, 1), y(t, {{0, 4}, {0, 9}});
    Tensor rows = test::indices({0, 4}, {19, 9, 12, 11});
    Args a = test::args_of("take_rows", "t d, r -> r d", {x, rows}, {y});
    a.ranges["t"] = {12, 20};
    test::expect_same_everywhere(prepare_take_rows, a);
    for (i64 i = 0; i < 9; i++) {
      EXPECT_EQ(test::at(y, i), test::at(x, 9 * 9 + i));
      EXPECT_EQ(test::at(y, 9 + i), 0);
      EXPECT_EQ(test::at(y, 18 + i), test::at(x, 2 * 9 + i));
      EXPECT_EQ(test::at(y, 27 + i), 0);
    }
  }
}

}  // namespace
}  // namespace plait::kernels
