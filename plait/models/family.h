// The families of models. A family is one file that registers itself here: how its config reads, its graph, and where
// its weights lie in files. It knows nothing of ranks.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "plait/graph/graph.h"
#include "plait/models/builder.h"
#include "plait/models/config.h"
#include "plait/models/weights.h"

namespace plait {

struct Family {
  std::string name;
  std::vector<std::string> model_types, architectures;  // of Hugging Face configs
  std::string gguf_architecture;                        // general.architecture
  void (*parse)(const ConfigReader&, ModelConfig&);
  /// Tokens to the residual stream after the last layer, [T D].
  ValueId (*body)(Builder&);
  /// Any rows of that [_ D] to their logits [_ V], real.
  ValueId (*head)(Builder&, ValueId x);
  std::vector<WeightRow> weights;            // every state that the graph may have, the caches aside
  std::vector<std::string> ignored_tensors;  // of files: ends of names that no graph reads and that change nothing
  std::vector<std::string> honoured = {};    // keys of configs that other families refuse
};

class FamilyRegistry {
 public:
  explicit FamilyRegistry(Family f);
};

const std::map<std::string, Family>& families();
/// Throws bad_file that lists the families.
const Family& family_of(const ModelConfig& c);

/// The graph that serves. Inputs: ids[T], position[T], sequence[T], slot[T], table[B P], rows[R] (indices into T of the
/// tokens whose logits are wanted). States: the weights and, for each layer, cache.k and cache.v [C K H], written in
/// place. The last node, `read`, gives the logits [R V] in f32 to the host.
Graph build_serving(const ModelConfig& c, const BuildOptions& o);

/// Forward and loss of whole documents. Inputs: ids[T], position[T], sequence[T], targets[T] (-1: not counted); of a
/// model with dropout number[T] (of a token in the batch of the step) and step[1] too. The last node is the loss, a sum
/// over tokens; its gradient is up to the caller.
Graph build_training(const ModelConfig& c, const BuildOptions& o);

}  // namespace plait
