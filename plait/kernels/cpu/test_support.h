// What the tests of this folder share: calls of an op on tensors, and every instruction set that this machine has.
#pragma once
#include <gtest/gtest.h>

#include "plait/base/random.h"
#include "plait/kernels/cpu/ops.h"
#include "plait/kernels/reference/reference.h"

namespace plait::kernels::test {

inline std::vector<Isa> all_isas() {
  std::vector<Isa> v;
  for (int i = 0; i <= static_cast<int>(detected_isa()); i++) v.push_back(static_cast<Isa>(i));
  return v;
}

/// "t n h, n h -> t n h"
inline std::vector<Term> terms_of(std::string_view side) {
  std::vector<Term> terms(1);
  std::string word;
  for (char c : side) {
    if (c != ' ' && c != ',') {
      word += c;
      continue;
    }
    if (!word.empty()) terms.back().push_back(std::exchange(word, ""));
    if (c == ',') terms.emplace_back();
  }
  if (!word.empty()) terms.back().push_back(word);
  return terms;
}

/// A call over the whole of output 0 (and of the operands' other dims); narrow a.ranges for less.
inline Args args_of(std::string op, std::string_view rule, std::vector<View> in, std::vector<View> out) {
  Args a;
  a.op = std::move(op);
  auto arrow = rule.find("->");
  a.in_terms = terms_of(rule.substr(0, arrow));
  a.out_terms = terms_of(rule.substr(arrow + 2));
  a.in = std::move(in);
  a.out = std::move(out);
  for (size_t i = 0; i < a.in.size(); i++)
    for (size_t d = 0; d < a.in_terms[i].size(); d++) a.ranges[a.in_terms[i][d]] = a.in[i].box.at(d);
  for (size_t d = 0; d < a.out_terms[0].size(); d++) a.ranges[a.out_terms[0][d]] = a.out[0].box.at(d);
  return a;
}

/// Numbers of mean 0 in about [-4 scale, 4 scale], by element and seed.
inline Tensor random_tensor(DType t, Box box, u64 seed, float scale = 1) {
  Tensor x(t, std::move(box));
  for (i64 i = 0; i < x.elements(); i++) {
    auto v = static_cast<float>(normal(seed, static_cast<u64>(i))) * scale;
    if (t == DType::f32)
      x.as<float>()[i] = v;
    else
      x.as<bf16>()[i] = bf16(v);
  }
  return x;
}

inline Tensor indices(Range r, const std::vector<i64>& values) {
  Tensor x(DType::i32, {r});
  for (size_t i = 0; i < values.size(); i++) x.as<std::int32_t>()[i] = static_cast<std::int32_t>(values[i]);
  return x;
}

inline float at(const View& v, i64 i) {
  return v.dtype == DType::f32 ? v.as<float>()[i] : static_cast<float>(v.as<bf16>()[i]);
}

using Prepare = Result<Run> (*)(const Args&, Isa);

inline Run prepared(Prepare p, const Args& a, Isa isa) {
  auto r = p(a, isa);
  if (!r) throw std::runtime_error(r.why());
  return std::move(*r);
}

/// The bytes of output 0 after a run on cleared memory.
inline std::vector<std::byte> bytes_after(const Run& run, const Args& a, i64 threads = 1) {
  Team team(threads);
  Context c{team};
  const View& out = a.out[0];
  auto n = static_cast<size_t>(bytes_of(out.dtype, out.elements()));
  std::memset(out.data, 0x5a, n);
  run(c);
  auto* p = out.as<std::byte>();
  return {p, p + n};
}

/// Every instruction set and 1 to 3 threads give the same bytes, the reference too unless it is told off; they are left
/// in output 0.
inline void expect_same_everywhere(Prepare p, const Args& a, bool with_reference = true) {
  auto want = bytes_after(prepared(p, a, Isa::portable), a);
  if (with_reference) {
    auto kernels = reference_kernels(a.op, DType::f32);
    ASSERT_FALSE(kernels.empty());
    auto run = kernels[0].prepare(a);
    ASSERT_TRUE(run) << run.why();
    EXPECT_TRUE(bytes_after(*run, a) == want) << a.op << ": the reference differs";
  }
  for (Isa isa : all_isas())
    for (i64 threads : {1, 2, 3})
      EXPECT_TRUE(bytes_after(prepared(p, a, isa), a, threads) == want)
          << a.op << " " << name_of(isa) << " " << threads;
}

/// Threads that run kernels flush denormals; so do tests, while they run.
class Kernels : public ::testing::Test {
 protected:
  Kernels() : before_(__builtin_ia32_stmxcsr()) { flush_denormals(); }
  ~Kernels() override { __builtin_ia32_ldmxcsr(before_); }

 private:
  unsigned before_;
};

}  // namespace plait::kernels::test
