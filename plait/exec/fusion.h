// Runs of consecutive calls that one kernel does in one go. The table is in fusion.cc.
//
// Which calls belong together is read off the Program alone: which ops, and who reads whose result. Whether there is a
// kernel for them is known when sizes and addresses are bound; where it declines, its members run one by one. Either
// way the bits are the same, so a fused kernel never shows, except where every value is watched: then nothing is fused.
#pragma once
#include <span>

#include "plait/exec/program.h"
#include "plait/kernels/kernel.h"

namespace plait {

struct Fusion {
  const char* name;
  /// The calls in order, as in a program: "q = matmul(x, _); r = rope(q, p)". A name is one value wherever it stands, _
  /// is any value. A call may leave out its last operands.
  const char* calls;
  /// Names of results that the kernel does not write: nobody else may read them.
  const char* unwritten;
  Result<kernels::Run> (*prepare)(std::span<const kernels::Args> members);
};
std::span<const Fusion> fusion_table();

/// A match: `count` calls of the program from `first` on.
struct Window {
  const Fusion* fusion = nullptr;
  i64 first = 0, count = 0;
  i64 end() const { return first + count; }
};

/// All matches, from the front, the first of the table that fits; they do not overlap.
std::vector<Window> find_fusions(const Program& p);

}  // namespace plait
