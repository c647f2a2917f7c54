// The logical graph: a model as if for one device. Values have named dims and a type, nodes are ops with attributes.
//
// Shape letters: T tokens, R rows whose logits are wanted, D model, N query heads, K KV heads, H head, F ffn, V vocab,
// E experts, C cache slots, B sequences, P pages of a sequence, W learned positions, Q digits of an exact sum of
// squares, 1 a scalar's only dim.
#pragma once
#include <set>
#include <string>
#include <vector>

#include "plait/graph/op.h"
#include "plait/graph/rule.h"
#include "plait/tensor/dtype.h"

namespace plait {

enum class Kind : std::uint8_t { temp, input, state };

struct Value {
  std::string name;  // of a state or an input; a temporary's label
  std::string dims;  // one letter a dim
  Type type = Type::num;
  DType dtype = DType::f32;  // sums: i64, i128 in f64 runs, f32 where sums are not exact
  Class cls = Class::forward;
  Kind kind = Kind::temp;
  i64 node = -1;  // that makes it
};

/// What a node has besides its operands.
struct Attrs {
  std::string rule = {};                 // of ops without one of their own (matmul)
  std::string dims = {};                 // names of dims that only outputs have
  Class cls = Class::forward;            // of sums it makes
  std::map<std::string, double> x = {};  // numbers: eps, base, scale ...
  std::string alias = {};                // the state that output 0 overwrites in place
  std::string label = {};
  std::optional<Elem> elem = {};  // of output 0, where it is not the datasheet's
};

struct Node {
  const Op* op = nullptr;
  Rule rule;
  std::vector<ValueId> in, out;
  Attrs attrs;
  i64 layer = -1;         // -1: of no layer; the pipeline axis cuts them
  bool backward = false;  // added by grad: shares no reshard with the forward
};

/// Size and leaf of a dim.
struct Leaf {
  i64 size = 0;  // 0: a symbol that is bound later (T, R)
  i64 leaf = 0;  // elements of a leaf; 0: sums over this dim are not cut into leaves
};

class Graph {
 public:
  std::string name;
  std::vector<Value> values;
  std::vector<Node> nodes;
  std::map<char, Leaf> dims;             // of the model; leaves belong to it, never to a layout
  std::map<std::string, ValueId> named;  // states and inputs
  i64 layer = -1;                        // of the nodes being added
  bool backward = false;
  i64 layers = 0;
  DType real = DType::f32, compute = DType::f32, sum = DType::i64;

  ValueId state(const std::string& name, const std::string& dims, Type t = Type::num, Class c = Class::forward);
  ValueId state(const std::string& name, const std::string& dims, DType dtype);
  ValueId input(const std::string& name, const std::string& dims, Type t = Type::index);
  std::vector<ValueId> apply(const std::string& op, std::vector<ValueId> in, Attrs a = {});
  ValueId one(const std::string& op, std::vector<ValueId> in, Attrs a = {}) {
    return apply(op, std::move(in), std::move(a))[0];
  }
  /// The number of a sum: a `finish` node, made once a value; numbers are themselves.
  ValueId num(ValueId v);
  /// The number as an operand of products: a `cast` to the compute dtype, made once a value; itself where there is
  /// nothing to round.
  ValueId operand(ValueId v);
  /// Adds contributions, sums first, so that one finish serves them all.
  ValueId add_all(std::vector<ValueId> vs, i64 at_layer = -1);

  const Value& at(ValueId v) const { return values[static_cast<size_t>(v)]; }
  i64 size(char dim) const;
  bool has_leaves(char dim) const;

  /// Sums only into ops that take them; no state read after its in-place write, one write of it, same dims and type;
  /// one dim a factor; use after definition. Throws Error(bad_file) that names the node.
  void verify() const;
  /// The text form; `parse` of it gives the same graph.
  std::string text() const;
  static Graph parse(std::string_view text);

 private:
  ValueId add_value(Value v);
  std::map<ValueId, ValueId> finished_, operands_;
};

/// Reverse mode: adds the backward nodes of d(loss) = 1 and returns the cotangent of each named num state. Gradients
/// are written on whole tensors in terms of ops; a contribution lies in the layer of the use that made it.
std::map<std::string, ValueId> grad(Graph& g, ValueId loss);

}  // namespace plait
