// Which instruction set this process uses. All of them give the same bits; the choice is for speed and for tests.
#include <xmmintrin.h>

#include <cstdlib>
#include <iterator>

#include "plait/kernels/kernel.h"

namespace plait::kernels {

namespace {

constexpr const char* kNames[] = {"portable", "avx2", "avx512", "avx512bf16"};

Isa chosen_isa() {
  Isa best = detected_isa();
  const char* wanted = std::getenv("PLAIT_ISA");
  if (wanted == nullptr || *wanted == 0) return best;
  for (size_t i = 0; i < std::size(kNames); i++) {
    if (std::string_view(wanted) != kNames[i]) continue;
    if (i > static_cast<size_t>(best))
      fail(Code::usage, "[PLAIT_ISA] got {}, want at most {}: this processor has no more", wanted, name_of(best));
    return static_cast<Isa>(i);
  }
  fail(Code::usage, "[PLAIT_ISA] got {}, want portable, avx2, avx512 or avx512bf16", wanted);
}

}  // namespace

const char* name_of(Isa isa) { return kNames[static_cast<size_t>(isa)]; }

Isa detected_isa() {
  __builtin_cpu_init();
  bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                __builtin_cpu_supports("avx512vnni");
  if (avx512 && __builtin_cpu_supports("avx512bf16")) return Isa::avx512_bf16;
  if (avx512) return Isa::avx512;
  return avx2 ? Isa::avx2 : Isa::portable;
}

Isa isa() {
  static const Isa chosen = chosen_isa();
  return chosen;
}

void flush_denormals() { _mm_setcsr(_mm_getcsr() | 0x8040u); }

}  // namespace plait::kernels
