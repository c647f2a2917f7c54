#include "plait/kernels/panels.h"

#include <gtest/gtest.h>

#include "plait/base/random.h"
#include "plait/tensor/tensor.h"

namespace plait::kernels {
namespace {

constexpr DType kTypes[] = {DType::f32,  DType::bf16, DType::q4_0, DType::q4_1, DType::q5_0, DType::q5_1,
                            DType::q8_0, DType::q2_k, DType::q3_k, DType::q4_k, DType::q5_k, DType::q6_k};

std::vector<std::byte> random_bytes(i64 bytes, u64 seed) {
  std::vector<std::byte> v(static_cast<size_t>(bytes));
  for (size_t i = 0; i < v.size(); i++) v[i] = static_cast<std::byte>(random_bits(seed, i) >> 13);
  return v;
}

TEST(Panels, BytesAreThoseOfTheFile) {
  for (DType t : kTypes) EXPECT_EQ(panel_bytes(t, 48, 768), bytes_of(t, 768) * 48) << name_of(t);
  EXPECT_EQ(panel_bytes(DType::f32, 17, 3), 2 * 16 * 3 * 4);
  EXPECT_EQ(panel_bytes(DType::bf16, 1, 3), 16 * 4 * 2);  // the pair that is not whole
  EXPECT_EQ(panel_bytes(DType::q8_0, 1, 32), 16 * 34);
}

TEST(Panels, UnpackGivesTheRowsBack) {
  for (DType t : kTypes)
    for (i64 n : {1, 16, 17, 257})
      for (i64 k : {32, 64, 96, 576, 256, 512, 1280}) {
        if (k % info(t).block != 0) continue;
        const i64 row_bytes = bytes_of(t, k), stride = row_bytes + 10;
        auto rows = random_bytes(n * stride, 7);
        Buffer packed(panel_bytes(t, n, k));
        const i64 half = panels_of(n) / 2;
        pack_panels(t, rows.data(), stride, n, k, {half, panels_of(n)}, packed.data());
        pack_panels(t, rows.data(), stride, n, k, {0, half}, packed.data());
        std::vector<std::byte> row(static_cast<size_t>(row_bytes));
        for (i64 r = 0; r < n; r++) {
          unpack_row(t, packed.data(), n, k, r, row.data());
          ASSERT_EQ(std::memcmp(row.data(), rows.data() + r * stride, row.size()), 0) << name_of(t) << " row " << r;
        }
      }
}

TEST(Panels, OddLengths) {
  for (DType t : {DType::f32, DType::bf16}) {
    const i64 n = 5, k = 7, row_bytes = bytes_of(t, k);
    auto rows = random_bytes(n * row_bytes, 3);
    Buffer packed(panel_bytes(t, n, k));
    pack_panels(t, rows.data(), row_bytes, n, k, {0, 1}, packed.data());
    std::vector<std::byte> row(static_cast<size_t>(row_bytes));
    for (i64 r = 0; r < n; r++) {
      unpack_row(t, packed.data(), n, k, r, row.data());
      EXPECT_EQ(std::memcmp(row.data(), rows.data() + r * row_bytes, row.size()), 0);
    }
    for (i64 c = 0; c < kPanel; c++) {  // padding is zero
      if (t == DType::bf16) {
        bf16 partner;
        std::memcpy(&partner, packed.data() + 3 * 64 + 4 * c + 2, 2);
        EXPECT_EQ(partner.bits, 0);
      }
      if (c < n) continue;
      std::uint32_t word;
      std::memcpy(&word, packed.data() + 4 * c, 4);
      EXPECT_EQ(word, 0u);
    }
  }
}

TEST(Panels, LookupIsTheBlocksValue) {
  for (DType t : kTypes) {
    const i64 n = 33, k = info(t).block == 256 ? 768 : 160, row_bytes = bytes_of(t, k);
    auto rows = random_bytes(n * row_bytes, 11);
    Buffer packed(panel_bytes(t, n, k));
    pack_panels(t, rows.data(), row_bytes, n, k, {0, panels_of(n)}, packed.data());
    std::vector<float> want(static_cast<size_t>(k)), got(want);
    for (i64 r = 0; r < n; r++) {
      to_f32(t, rows.data() + r * row_bytes, want.data(), k);
      panel_row(t, packed.data(), n, k, r, got.data());
      ASSERT_EQ(std::memcmp(want.data(), got.data(), want.size() * 4), 0) << name_of(t) << " row " << r;
    }
  }
}

}  // namespace
}  // namespace plait::kernels
