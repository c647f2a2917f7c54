// The contract between the executor and the kernels.
//
// A kernel of an op is prepared once, when sizes and addresses are bound, and then run many times. Preparing may
// allocate and decline (with a reason: the executor tries the op's list in order, the reference is last); running may
// not allocate, and reads ids, positions and tables at that moment. A kernel knows tensors, never the graph or a rank.
#pragma once
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "plait/kernels/team.h"
#include "plait/tensor/tensor.h"

namespace plait::kernels {

/// A term of an op's rule: for each dim of an operand the factors it is made of ("t (k g) h" -> {"t", "kg", "h"}).
using Term = std::vector<std::string>;

/// One call of an op on this rank's boxes. Boxes and ranges are in global indices; operands may hold more than is
/// needed. `ranges` says which part of each factor group to compute.
struct Args {
  std::string op;
  std::vector<View> in, out;
  std::vector<Term> in_terms, out_terms;
  std::string contracted;                   // factors that no output has, in order of appearance
  std::map<std::string, Range> ranges;      // by factor group
  std::map<char, std::vector<i64>> leaves;  // by factor: leaf edges of its dim (0 ... size), where it has any
  i64 model_leaves = 1;                     // leaves of the summed dim in the whole model (overflow test)
  int exponent = 0;                         // of a sum that is made or read
  i64 group = 1;                            // query heads of a KV head
  std::map<std::string, double> attrs;      // eps, base, scale, page ...

  Range range(const std::string& g) const;
  double attr(const std::string& name) const;
  double attr(const std::string& name, double otherwise) const;
  /// Leaves of factor f that lie in its range (the group that holds it is named by g); a cut leaf is our bug.
  std::vector<Range> leaves_in(char f, const std::string& g) const;
};

/// What a kernel runs with: a team of threads, a sticky flag, and memory that is a kernel's only while it runs.
struct Context {
  Team& team;
  bool overflow = false;  // a leaf was not finite, or so large that its sum might wrap
  Buffer memory = {};

  /// At least so many bytes, aligned to 64; what was in them is lost. Allocates only where a call needs more than all
  /// calls before it.
  std::byte* scratch(i64 bytes) {
    if (memory.bytes() < bytes) memory = Buffer(bytes);
    return memory.data();
  }
};

using Run = std::function<void(Context&)>;

struct Kernel {
  const char* op;
  const char* name;
  Result<Run> (*prepare)(const Args&);
};

/// The kernels of an op in order of preference, for real type f32 and its storage types; filled at start.
/// The visible table is in kernels/cpu/table.cc; references in kernels/reference/.
std::span<const Kernel> cpu_kernels(std::string_view op);

/// Instruction sets, best first; `PLAIT_ISA=portable|avx2|avx512|avx512bf16` lowers the choice (read once at start).
enum class Isa : std::uint8_t { portable, avx2, avx512, avx512_bf16 };
Isa detected_isa();
Isa isa();
const char* name_of(Isa isa);

/// Flush-to-zero and denormals-are-zero for this thread: every thread that runs kernels calls it once.
void flush_denormals();

}  // namespace plait::kernels
