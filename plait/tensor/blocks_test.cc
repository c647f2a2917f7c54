// Quantized blocks against gguf-py and ggml (scripts/oracles/block_types.py wrote tests/data/block_types.json).
#include "plait/tensor/blocks.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "plait/base/random.h"

namespace plait {
namespace {

const nlohmann::json& oracle() {
  static const nlohmann::json j = nlohmann::json::parse(std::ifstream("tests/data/block_types.json"));
  return j;
}

std::vector<std::uint8_t> from_hex(const std::string& s) {
  std::vector<std::uint8_t> v(s.size() / 2);
  for (size_t i = 0; i < v.size(); i++) v[i] = static_cast<std::uint8_t>(std::stoi(s.substr(2 * i, 2), nullptr, 16));
  return v;
}

std::vector<float> floats(const std::string& s) {
  auto bytes = from_hex(s);
  std::vector<float> v(bytes.size() / 4);
  std::memcpy(v.data(), bytes.data(), bytes.size());
  return v;
}

TEST(Blocks, ValuesAreThoseOfGgufPy) {
  for (DType t : kBlockTypes) {
    const auto& of_type = oracle().at("read").at(name_of(t));
    auto bytes = from_hex(of_type.at("bytes"));
    auto want = floats(of_type.at("values"));
    const auto n = static_cast<i64>(want.size());
    ASSERT_EQ(bytes_of(t, n), static_cast<i64>(bytes.size())) << name_of(t);
    std::vector<float> got(want.size());
    to_f32(t, bytes.data(), got.data(), n);
    EXPECT_EQ(std::memcmp(got.data(), want.data(), want.size() * 4), 0) << name_of(t);
  }
}

TEST(Blocks, TypesOf32AreMadeAsGgmlMakesThem) {
  const auto x = floats(oracle().at("x"));
  for (auto& [name, hex] : oracle().at("make").items()) {
    const DType t = *dtype_named(name);
    std::vector<std::uint8_t> got(static_cast<size_t>(bytes_of(t, static_cast<i64>(x.size()))));
    from_f32(t, x.data(), got.data(), static_cast<i64>(x.size()));
    EXPECT_EQ(got, from_hex(hex)) << name;
  }
}

double rms_error(DType t, const std::vector<float>& x) {
  const auto n = static_cast<i64>(x.size());
  std::vector<std::byte> stored(static_cast<size_t>(bytes_of(t, n)));
  std::vector<float> back(x.size());
  from_f32(t, x.data(), stored.data(), n);
  to_f32(t, stored.data(), back.data(), n);
  double sum = 0;
  for (size_t i = 0; i < x.size(); i++) sum += std::pow(static_cast<double>(back[i]) - static_cast<double>(x[i]), 2);
  return std::sqrt(sum / static_cast<double>(n));
}

TEST(Blocks, ErrorsAreWithinTwoPercentOfGgmls) {
  std::vector<float> x(25600), cubes(x);
  for (size_t i = 0; i < x.size(); i++) {
    x[i] = static_cast<float>(0.05 * normal(stream_of("block types"), i));
    cubes[i] = x[i] * x[i] * x[i];
  }
  for (DType t : kBlockTypes) {
    const auto want = oracle().at("rms").at(name_of(t)).get<std::vector<double>>();
    EXPECT_LT(rms_error(t, x), 1.02 * want[0]) << name_of(t);
    EXPECT_LT(rms_error(t, cubes), 1.02 * want[1]) << name_of(t);
  }
}

TEST(Blocks, MadeOfExactValuesTheyGiveThemBack) {
  for (DType t : kBlockTypes) {
    std::vector<float> zeros(256, 0.0f), back(256, 1.0f), one(256, 0.0f);
    std::vector<std::byte> stored(static_cast<size_t>(bytes_of(t, 256)));
    from_f32(t, zeros.data(), stored.data(), 256);
    to_f32(t, stored.data(), back.data(), 256);
    for (float v : back) ASSERT_EQ(v, 0.0f) << name_of(t);
    one[37] = -1;  // a single number
    from_f32(t, one.data(), stored.data(), 256);
    to_f32(t, stored.data(), back.data(), 256);
    for (size_t i = 0; i < 256; i++) ASSERT_NEAR(back[i], one[i], 2e-3) << name_of(t) << ' ' << i;
  }
}

TEST(Blocks, WhatIsNotFiniteReadsBackAsNan) {
  for (DType t : kBlockTypes)
    for (float bad : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
      std::vector<float> x(512, 0.25f), back(512);
      x[256] = bad;
      std::vector<std::byte> stored(static_cast<size_t>(bytes_of(t, 512)));
      from_f32(t, x.data(), stored.data(), 512);
      to_f32(t, stored.data(), back.data(), 512);
      EXPECT_TRUE(std::isnan(back[256])) << name_of(t);
      EXPECT_NEAR(back[0], 0.25f, 0.01f) << name_of(t);
    }
}

TEST(Blocks, NumbersAtTheEndsOfF32) {
  for (DType t : kBlockTypes)
    for (float scale : {1e-44f, 1e-38f, 1e-9f, 3e38f}) {  // beyond f16: no undefined arithmetic, zeros or not finite
      std::vector<float> x(256), back(256);
      for (size_t i = 0; i < 256; i++) x[i] = scale * static_cast<float>(2 * uniform(1, i) - 1);
      std::vector<std::byte> stored(static_cast<size_t>(bytes_of(t, 256)));
      from_f32(t, x.data(), stored.data(), 256);
      to_f32(t, stored.data(), back.data(), 256);
      for (float v : back) ASSERT_TRUE(scale > 1 || std::fabs(v) < 1e-7f) << name_of(t) << ' ' << v;
    }
}

}  // namespace
}  // namespace plait
