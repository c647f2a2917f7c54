// The datasheet of an op. Propagation, partitioner, planner and tests read this one record; what is not given is
// generated from the rule. An op knows nothing of ranks.
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "plait/base/base.h"

namespace plait {

class Graph;
struct Node;

/// What a value of the logical graph is. A `sum` (or `max`) is a number still to be read: made by products whose summed
/// dim has leaves, added by cotangents and accumulators, read by `finish` alone, so one rank takes the same path as
/// many.
enum class Type : std::uint8_t { num, index, sum, max };
const char* name_of(Type t);

/// The class of a sum decides its exponent: a leaf is multiplied by 2^exponent before it becomes an integer. `norm`:
/// the digits of a sum of squares, which have none (base/exact_squares.h).
enum class Class : std::uint8_t { forward, loss, dgrad, wgrad, norm };
const char* name_of(Class c);
int exponent(Class c);

/// Which element type an output has: `real` (f32, or f64 in tests) or `compute` (the dtype of operands of products).
enum class Elem : std::uint8_t { real, compute, as_first };

/// What an operand holds, for whoever makes examples: tokens' positions in their sequences, tokens' sequences, the
/// pages of each sequence, numbers above zero (counts, sums of exponentials).
enum class Role : std::uint8_t { position, sequence, page_table, positive };

using ValueId = i64;
constexpr ValueId kNone = -1;

struct Op {
  std::string name;
  std::string doc;                    // what it computes, in a line
  std::string rule;                   // empty: the node gives it, or it is made (elementwise)
  std::string whole = {};             // factors that no axis may cut (rope pairs, norm rows, the dims of a head)
  std::map<char, char> follows = {};  // factor -> the factor whose range decides its range (attention: s -> t)
  std::vector<Type> out = {Type::num};
  std::vector<Elem> elem = {Elem::real};
  bool takes_sums = false;      // may read sums: additions of cotangents, accumulators, finish
  bool element_leaves = false;  // a leaf of its sum is one element: any dim may be cut and summed (norms)
  bool elementwise = false;     // any dims: the rule is made from the operands
  bool one_owner = false;       // of the contracted factor exactly one index matters (a row of a table): join `one`
  bool all_whole = false;       // no axis may cut anything of it (what the host reads)
  double flops_per_point = 1;   // times the product of all its factors' sizes
  std::map<int, char> indexes = {};               // operand that holds indices -> the factor that they index
  std::map<int, Role> roles = {};                 // what other operands hold, where random numbers are no example
  std::vector<std::string> examples = {};         // rules of nodes of an op that has none of its own
  std::map<std::string, double> attributes = {};  // that a node must give, with examples
  /// Cotangents of the outputs (kNone: zero) -> cotangents of the operands (kNone: none).
  std::function<std::vector<ValueId>(Graph&, const Node&, const std::vector<ValueId>&)> vjp = {};
};

/// Ops register themselves at start, one file an op; the table never changes afterwards.
class Registry {
 public:
  explicit Registry(Op op);
  /// Error(bad_file) that lists near names when there is none.
  static const Op& find(const std::string& name);
  static const std::map<std::string, Op>& all();
};

}  // namespace plait
