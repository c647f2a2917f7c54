// What the families write their graphs with: states of the right type, products, attention over a cache or over the
// tokens themselves, and the leaf table of a model.
#pragma once
#include <functional>
#include <map>
#include <string>

#include "plait/graph/graph.h"
#include "plait/models/config.h"

namespace plait {

struct BuildOptions {
  DType compute = DType::f32;  // operands of products, KV cache
  DType real = DType::f32;     // residual, norms, softmax, logits; f64 in tests
  DType sum = DType::i64;      // i128 with f64, f32 where sums are not exact
  /// How the matrix of that name is stored; not called for norms and biases, which are real. Unset: `compute`.
  std::function<DType(const std::string& state)> weight_dtype = {};
  i64 page = 16;                    // cached positions of a page
  i64 slots = 4096;                 // of the cache, in all: C
  i64 sequences = 1;                // B
  i64 pages = 256;                  // of a sequence: P
  std::map<char, i64> leaves = {};  // leaf sizes other than the model's own
  i64 seed = 0;                     // of dropout
};

/// Leaf sizes (docs/numerics.md): a function of the model and of how its weights are stored.
std::map<char, Leaf> leaf_table(const ModelConfig& c, const BuildOptions& o);

class Builder {
 public:
  Graph& g;
  const ModelConfig& c;
  const BuildOptions& o;
  const bool cached;
  ValueId ids, position, sequence;

  Builder(Graph& graph, const ModelConfig& config, const BuildOptions& options, bool with_cache);

  /// A weight of the layer that is being built (or of none: "embedding"), with the dims that the family's table gives.
  /// Matrices are stored as the options say, vectors in `real`.
  ValueId weight(const std::string& name);
  /// The weight as products read it: in training a master weight is cast to the compute dtype first.
  ValueId operand(const std::string& name);
  /// Of activations that the backward reads again: training keeps them in the compute dtype.
  Elem kept() const { return cached ? Elem::real : Elem::compute; }
  /// x times the weight of that name, which is also the label; a sum where the model cuts the summed dim.
  ValueId product(const std::string& name, ValueId x, const std::string& rule, Elem elem = Elem::real);
  /// x + the weight "NAME.bias"; a sum is finished first. Labelled so too, unless a label is given.
  ValueId biased(const std::string& name, ValueId x, const std::string& rule, Elem elem = Elem::real,
                 const std::string& label = {});
  /// x + y in `real`.
  ValueId residual(const std::string& label, ValueId x, ValueId y);
  /// q [T N H], k and v [T K H] -> [T N H]; the cache of this layer is written first, if there is one.
  /// window: a token sees so many last positions; 0: all.
  ValueId attention(ValueId q, ValueId k, ValueId v, i64 window = 0);
  /// x with dropout of rate p, in a training graph; x itself where p is 0 or the graph serves.
  ValueId dropout(const std::string& label, ValueId x, double p);
  /// Layer l begins; names are of this layer until `end_layers`.
  void begin_layer(i64 l);
  void end_layers() { prefix_.clear(); }
  /// "layers.3." + name
  std::string full(const std::string& name) const { return prefix_ + name; }

 private:
  /// Attributes of the next site of dropout, and its two last operands: token numbers and step.
  std::map<std::string, double> next_site(double p);

  std::string prefix_;
  ValueId slot_ = kNone, table_ = kNone, number_ = kNone, step_ = kNone;
  i64 sites_ = 0;
};

}  // namespace plait
