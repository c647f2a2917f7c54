// A product as matmul.cc describes it from its Args, for the kernels that compute several at once (products.cc).
#pragma once
#include <atomic>
#include <memory>

#include "plait/kernels/cpu/matmul_job.h"
#include "plait/kernels/kernel.h"

namespace plait::kernels {

// From this many rows a thread upwards the team splits rows, below it panels: a thread that splits rows unpacks every
// weight for itself, which costs as much as the products of about 2 rows.
inline constexpr i64 kRowsOfThread = 64;

struct Product {
  MatmulJob job{};
  i64 rows = 0;
  std::vector<i64> edges;
  double overflow_limit = 0;  // |leaf * scale| must stay below
  MatmulProduct run = nullptr;
};

/// What a call computes, or why not. The job points into the result, which therefore stays where it is.
Result<std::shared_ptr<const Product>> describe_product(const Args& a, Isa isa, std::optional<bool> native_bf16 = {});

/// Panels that a thread takes at least: those of a tile, or one where the team would get uneven parts.
i64 panel_grain(i64 panels, i64 threads);

}  // namespace plait::kernels
