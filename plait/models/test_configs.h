// The small models of tests: 9 query heads on 3 KV heads, an odd vocabulary, tied embeddings; a GPT-2 with biases.
// Their sizes are those of the reference numbers (scripts/oracles).
#pragma once
#include "plait/models/config.h"

namespace plait {

inline ModelConfig small_llama(i64 layers = 2) {
  ModelConfig c;
  c.family = "llama";
  c.D = 72, c.N = 9, c.K = 3, c.H = 8, c.F = 208, c.V = 257, c.layers = layers, c.max_positions = 64;
  c.tied = true;
  return c;
}

inline ModelConfig small_gpt2() {
  ModelConfig c;
  c.family = "gpt2";
  c.D = 40, c.N = 5, c.K = 5, c.H = 8, c.F = 160, c.V = 97, c.layers = 2, c.max_positions = 64;
  c.tied = c.attention_bias = true;
  return c;
}

/// The second layer attends to all positions.
inline ModelConfig small_gemma3() {
  ModelConfig c;
  c.family = "gemma3";
  c.D = 48, c.N = 4, c.K = 1, c.H = 16, c.F = 208, c.V = 257, c.layers = 3, c.max_positions = 64;
  c.eps = 1e-6, c.rope_base = 1e6, c.tied = true;
  c.local = {true, false, true};
  c.window = 5;
  return c;
}

}  // namespace plait
