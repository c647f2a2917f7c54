// The table of functions.h for the vectors V.
#pragma once
#include "plait/kernels/cpu/attention_rows.h"
#include "plait/kernels/cpu/functions.h"
#include "plait/kernels/cpu/norm_rows.h"
#include "plait/kernels/cpu/rope_rows.h"

namespace plait::kernels {

template <class V>
constexpr Functions functions_of() {
  using E = ElementwiseRows<V>;
  using N = NormRows<V>;
  using A = AttentionRows<V, float>;
  using B = AttentionRows<V, bf16>;
  return {
      .map = {{E::template copy<float>, E::template copy<bf16>},
              {E::template add<float>, E::template add<bf16>},
              {E::template silu_mul<float>, E::template silu_mul<bf16>},
              {E::template gelu<float>, E::template gelu<bf16>},
              {E::template finish<float>, E::template finish<bf16>},
              {E::template gelu_mul<float>, E::template gelu_mul<bf16>},
              {E::template scale<float>, E::template scale<bf16>}},
      .rms_norm = {N::template rms<float>, N::template rms<bf16>},
      .layer_norm = {N::template layer<float>, N::template layer<bf16>},
      .sum_rms_norm = {N::template sum_norm<float, false>, N::template sum_norm<bf16, false>},
      .sum_layer_norm = {N::template sum_norm<float, true>, N::template sum_norm<bf16, true>},
      .normed_sum_rms_norm = {N::template normed_sum<float>, N::template normed_sum<bf16>},
      .rope = {RopeRows<V>::template rope<float>, RopeRows<V>::template rope<bf16>},
      .attention_block = {A::block, B::block},
      .attention_join = {A::join, B::join},
      .largest = E::largest,
      .exp_from = E::exp_from,
  };
}

extern const Functions kFunctionsAvx2, kFunctionsAvx512, kFunctionsAvx512Bf16;

}  // namespace plait::kernels
