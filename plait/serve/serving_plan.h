// What a model needs to be served under a plan, worked out before any weight is read: the sharded graph, sizes at the
// bounds, memory of every rank. `explain` prints it, the engine runs it, so both say the same.
#pragma once
#include "plait/exec/executor.h"
#include "plait/io/model_files.h"
#include "plait/models/config.h"

namespace plait::serve {

struct ServingOptions {
  Plan plan = tensor_parallel(1);
  std::string dtype = "auto";    // auto | f32 | bf16
  std::string reduce = "exact";  // exact | f32 | bf16
  i64 context = 0;               // positions of a sequence; 0: min(the model's, 4096), less where a cap asks for it
  i64 max_rank_memory = 0;       // bytes; 0: no cap
  i64 prefill_chunk = 512;       // tokens of one run
  i64 logit_rows = 1;            // rows whose logits are wanted of one run, at least one a sequence
  i64 sequences = 1;             // that are kept together, each with a context of its own
  bool reference = false;        // reference kernels in row-major memory
  bool fuse = true;              // fused kernels (exec/fusion.h); the bits are the same
  bool strict = false;
};

struct RankMemory {
  i64 embedding = 0, attention = 0, ffn = 0, norms = 0;  // weights, by kind of tensor
  i64 kv = 0, arena = 0, inputs = 0, comm = 0;
  i64 weights() const { return embedding + attention + ffn + norms; }
  i64 total() const { return weights() + kv + arena + inputs + comm; }
};

struct ServingPlan {
  ServingOptions options;
  ModelConfig config;
  std::string dtype;  // what `auto` came to
  std::shared_ptr<const ShardedGraph> sharded;
  Symbols bounds;
  ExecutorOptions executor;
  i64 context = 0, page = 16;
  bool context_shrunk = false;
  std::vector<RankMemory> memory;  // by rank

  i64 world() const { return static_cast<i64>(memory.size()); }
  i64 sequences() const { return options.sequences; }
};

/// errors  usage: more ranks than can be used (says the largest useful degree), a plan that cuts a sum inside a leaf,
///         flags that contradict; does_not_fit: max_rank_memory, itemised, with the smallest degree that fits
ServingPlan make_serving_plan(const io::ModelFiles& files, const ServingOptions& options);

/// Chunk of messages between two ranks; serving sends none.
inline constexpr i64 kMailBytes = 4096;

/// Bytes that a rank puts into each slot of its communicators: the largest payload, at most 256 KiB.
i64 slot_bytes(const ShardedGraph& s, const Symbols& bounds, DType sum_wire);

/// A collective of one run as `explain` lists it; equal ones of all layers are counted together.
struct CollectiveRow {
  std::string op, axis, cause;  // cause: "attention.out", "embedding", "logits" ...
  i64 per_layer = 0, count = 0;
  i64 bytes = 0;  // payload a rank (the largest), in its width on the wire
};
std::vector<CollectiveRow> collectives(const ServingPlan& p, i64 tokens);

/// Work of a rank as a share of the mean: flops of its products for one token.
struct Balance {
  std::vector<double> flops;  // by rank
  double speed_up = 1;        // that the slowest rank allows against one rank
};
Balance balance(const ServingPlan& p, i64 tokens, i64 cached);

}  // namespace plait::serve
