// Kernels of several calls in a row. Each computes what its members compute one after the other, bit for bit; what the
// table of plait/exec/fusion.cc says is not written stays unwritten. Each declines with a reason what it does not
// compute: the members then run by themselves.
#pragma once
#include "plait/kernels/cpu/rows.h"

namespace plait::kernels {

/// Some matmuls of one operand, then any number of bias, head_rms_norm, rope and kv_write: one meeting of the team for
/// all products, which prepare the rows of their operand (blocks of int8, say) once, and one for the rest, row by row.
Result<Run> prepare_products(std::span<const Args> members, Isa isa);

/// matmul, matmul (of one operand), silu_mul or gelu_mul, or matmul, bias, gelu: one meeting; the activation follows
/// each strip of columns on the thread that made it.
Result<Run> prepare_activation(std::span<const Args> members, Isa isa);

/// [finish] [bias] add [rms_norm | layer_norm], or finish rms_norm add [rms_norm]: one pass over a row (two with a norm
/// before the addition) makes the new residual and what the norm needs. What is before the addition is not written.
Result<Run> prepare_sum_norm(std::span<const Args> members, Isa isa);

Result<RowWork> rows_of_rope(const Args& a, Isa isa);
Result<RowWork> rows_of_head_norm(const Args& a, Isa isa);
Result<RowWork> rows_of_kv_write(const Args& a);

}  // namespace plait::kernels
