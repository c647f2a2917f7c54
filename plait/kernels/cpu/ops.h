// The ops of this folder besides products, for one instruction set (which the processor must have); table.cc lists
// them for the chosen one. Each declines with a reason what it does not compute.
#pragma once
#include "plait/kernels/kernel.h"

namespace plait::kernels {

/// add, bias, finish, cast, gelu, gelu_mul, scale, silu_mul, read (named by Args::op).
Result<Run> prepare_elementwise(const Args& a, Isa isa);
/// rms_norm, layer_norm.
Result<Run> prepare_norm(const Args& a, Isa isa);
Result<Run> prepare_head_norm(const Args& a, Isa isa);
Result<Run> prepare_rope(const Args& a, Isa isa);
Result<Run> prepare_embedding(const Args& a, Isa isa);
Result<Run> prepare_take_rows(const Args& a, Isa isa);
Result<Run> prepare_kv_write(const Args& a, Isa isa);
Result<Run> prepare_attention_paged(const Args& a, Isa isa);

}  // namespace plait::kernels
