#include "plait/serve/serving_plan.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>

#include "plait/comm/local/local_world.h"
#include "plait/exec/cost.h"
#include "plait/io/load_state.h"
#include "plait/models/family.h"

namespace plait::serve {

namespace {

constexpr i64 kDefaultContext = 4096;
constexpr i64 kSlotBytes = i64{256} << 10;
constexpr i64 kMostSequences = 1024;

bool has(const std::string& s, std::string_view part) { return s.find(part) != std::string::npos; }

/// Which kind of tensor a state is; nullptr for the cache.
i64 RankMemory::*kind_of(const std::string& state) {
  if (has(state, "cache.")) return &RankMemory::kv;
  if (has(state, "norm")) return &RankMemory::norms;
  if (has(state, ".w") || has(state, "attention")) return &RankMemory::attention;
  if (state.rfind("layers.", 0) == 0) return &RankMemory::ffn;
  return &RankMemory::embedding;
}

std::string mib(i64 bytes) { return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20)); }

std::string itemised(const RankMemory& m) {
  return fmt::format(
      "weights {} (embedding {}, attention {}, FFN {}, norms {}), KV cache {}, arena {}, inputs {}, communication {}: "
      "{} in all",
      mib(m.weights()), mib(m.embedding), mib(m.attention), mib(m.ffn), mib(m.norms), mib(m.kv), mib(m.arena),
      mib(m.inputs), mib(m.comm), mib(m.total()));
}

/// A member's part of the buffers of a group, as the communicator will count it.
i64 comm_bytes(i64 members, i64 slot) {
  comm::Group g;
  for (i64 r = 0; r < members; r++) g.ranks.push_back(r);
  g.slot_bytes = slot;
  g.mail_bytes = kMailBytes;
  std::vector<comm::Group> groups{g};
  comm::Region::lay_out(members, groups);
  return comm::kRing * groups[0].slot_stride + members * groups[0].mail_stride + static_cast<i64>(sizeof(comm::Line));
}

struct Types {
  std::string name;
  BuildOptions build;
};

Types choose_types(const io::ModelFiles& files, const ModelConfig& config, const ServingOptions& o) {
  Types t;
  t.name = o.dtype;
  if (o.dtype == "auto") {
    if (files.has_weights() && files.dominant_quantization()) {
      t.name = "blocks";
    } else {
      std::string as = config.torch_dtype;
      if (as.empty() && files.has_weights()) as = files.types().front().type;
      t.name = as == "float16" || as == "bfloat16" || as == "F16" || as == "BF16" ? "bf16" : "f32";
      if (as.empty()) t.name = "bf16";  // a config alone that does not say
    }
  } else if (o.dtype != "f32" && o.dtype != "bf16") {
    fail(Code::usage, "--dtype {}: want auto, f32 or bf16", o.dtype);
  }
  t.build.compute = t.name == "f32" ? DType::f32 : DType::bf16;
  if (t.name == "blocks") {
    t.build.weight_dtype = [&files, config](const std::string& state) {
      DType d = io::file_dtype(files, config, state);
      return is_quantized(d) ? d : DType::bf16;
    };
  }
  if (o.reduce == "f32" || o.reduce == "bf16")
    t.build.sum = DType::f32;
  else if (o.reduce != "exact")
    fail(Code::usage, "--reduce {}: want exact, f32 or bf16", o.reduce);
  return t;
}

/// Leaves of the heads decide how many ranks can have work along the axes that cut them.
void check_degree(const Graph& g, const Plan& plan) {
  i64 heads = 1;
  for (auto& a : plan.axes)
    if (has(a.dims, "N") || has(a.dims, "K")) heads *= a.size;
  const char dim = plan.axes.empty() || plan.axes[0].dims.find('N') < plan.axes[0].dims.find('K') ? 'N' : 'K';
  const Leaf& n = g.dims.at(dim);
  i64 most = ceil_div(n.size, n.leaf);
  if (heads > most)
    fail(Code::usage,
         "{} ranks along the axes that cut attention heads, but the model has {} {}{}: more ranks would have no "
         "attention to do; the largest useful degree is {}",
         heads, n.size, dim == 'N' ? "query heads" : "KV heads",
         n.leaf > 1 ? fmt::format(" in groups of {}", n.leaf) : "", most);
}

/// Lays the model and works out what its ranks need, up to the first that needs more than `cap`. false: one does.
bool lay(ServingPlan& p, const BuildOptions& base, i64 context, i64 cap = std::numeric_limits<i64>::max()) {
  BuildOptions build = base;
  p.context = round_up(context, build.page);
  p.page = build.page;
  build.sequences = p.options.sequences;
  build.slots = checked_mul(p.context, build.sequences, "slots of the KV cache");
  if (build.slots > std::numeric_limits<std::int32_t>::max())
    fail(Code::usage, "{} sequences of {} positions: want fewer than 2^31 positions in all", build.sequences,
         p.context);
  build.pages = p.context / build.page;
  Graph g = build_serving(p.config, build);
  check_degree(g, p.options.plan);
  for (auto& [dim, leaf] : p.options.plan.leaves)
    if (g.dims.count(dim) == 0 || g.dims.at(dim).leaf != leaf)
      fail(Code::usage,
           "the plan was made for leaves of {} in dim {}, this model has {}: sums would not have the same bits", leaf,
           dim, g.dims.count(dim) == 0 ? 0 : g.dims.at(dim).leaf);
  for (char dim : std::string("NKFV")) p.options.plan.leaves[dim] = g.dims.at(dim).leaf;
  PropagateOptions how;
  how.strict = p.options.strict;
  p.sharded = std::make_shared<ShardedGraph>(propagate(std::move(g), p.options.plan, how));
  p.bounds.size = {{'T', std::max(std::min(p.options.prefill_chunk, p.context), build.sequences)},
                   {'R', std::max(p.options.logit_rows, build.sequences)}};
  p.executor.reference = p.options.reference;
  p.executor.fuse = p.options.fuse;
  p.executor.sum_wire = p.options.reduce == "bf16" ? DType::bf16 : p.sharded->graph.sum;

  const ShardedGraph& s = *p.sharded;
  Sizes sizes = bound_sizes(s.graph, p.bounds);
  Binding binding(s.plan, sizes);
  StateShapes shapes(s, p.executor);
  const i64 slot = slot_bytes(s, p.bounds, p.executor.sum_wire);
  std::map<std::vector<i64>, i64> arenas;  // ranks whose parts are of the same sizes have the same arena
  p.memory.assign(static_cast<size_t>(s.plan.world()), {});
  for (i64 r = 0; r < s.plan.world(); r++) {
    RankMemory& m = p.memory[static_cast<size_t>(r)];
    auto bytes = value_bytes(s, binding, r);
    for (auto& [name, v] : s.graph.named) {
      if (s.graph.at(v).kind == Kind::state)
        m.*kind_of(name) += shapes.of(name, r).bytes;
      else
        m.inputs += bytes[static_cast<size_t>(v)];
    }
    auto [it, fresh] = arenas.try_emplace(std::move(bytes), 0);
    if (fresh) it->second = plan_arena(partition(p.sharded, r), std::span(&p.bounds, 1)).bytes;
    m.arena = it->second;
    if (s.plan.world() > 1) {
      for (auto& along : communicating_axes(s))
        m.comm += comm_bytes(static_cast<i64>(s.plan.mesh().group(r, along).size()), slot);
    }
    if (m.total() > cap) return false;
  }
  return true;
}

/// The smallest number of equal ranks, `first` at least, of which none needs more than the cap; nothing: no number.
/// Layers are alike, so one of them, quickly laid, rules out most numbers.
std::optional<i64> smallest_degree(ServingPlan p, const BuildOptions& build, i64 first) {
  const i64 cap = p.options.max_rank_memory, layers = p.config.layers;
  if (p.options.plan.axes.size() != 1 || !p.options.plan.axes[0].weights.empty()) p.options.plan = tensor_parallel(1);
  ServingPlan one = p;
  one.config.layers = 1;
  try {
    for (i64 n = first; n <= p.config.N; n++) {
      one.options.plan.axes[0].size = p.options.plan.axes[0].size = n;
      lay(one, build, p.context);
      i64 least = 0;
      for (auto& m : one.memory) least = std::max(least, m.embedding + layers * (m.attention + m.ffn + m.kv));
      if (least <= cap && lay(p, build, p.context, cap)) return n;
    }
  } catch (const Error&) {}  // more ranks than can be used
  return {};
}

}  // namespace

i64 slot_bytes(const ShardedGraph& s, const Symbols& bounds, DType sum_wire) {
  Sizes sizes = bound_sizes(s.graph, bounds);
  Binding b(s.plan, sizes);
  i64 most = 64;
  for (auto& st : s.steps) {
    if (st.node >= 0) continue;
    const Value& x = s.logical(st.source);
    most = std::max(most,
                    volume(b.box(s.of(st.source), x.dims, 0)) * bytes_of(x.type == Type::sum ? sum_wire : x.dtype, 1));
  }
  return std::min(round_up(most, 4096), kSlotBytes);
}

ServingPlan make_serving_plan(const io::ModelFiles& files, const ServingOptions& options) {
  ServingPlan p;
  p.options = options;
  p.config = parse_config(files.config(), files.path());
  Types types = choose_types(files, p.config, options);
  p.dtype = types.name == "blocks" ? name_of(*files.dominant_quantization()) : types.name;
  if (options.reference && types.name == "blocks")
    fail(Code::usage,
         "--reference with the {} weights of {}: the reference kernels read no blocks, want --dtype f32 or bf16",
         p.dtype, files.path());
  if (options.sequences < 1 || options.sequences > kMostSequences)
    fail(Code::usage, "--max-num-seqs {}: want 1 to {}", options.sequences, kMostSequences);
  if (options.context < 0 || options.context > p.config.max_positions)
    fail(Code::usage, "--max-model-len {}: the model has {} positions", options.context, p.config.max_positions);
  i64 context = options.context > 0 ? options.context : std::min(p.config.max_positions, kDefaultContext);
  const i64 cap = options.max_rank_memory > 0 ? options.max_rank_memory : std::numeric_limits<i64>::max();
  if (lay(p, types.build, context, cap)) return p;

  // Too much: a shorter context, unless it was given; then more ranks, to say how many.
  for (i64 shorter = context / 2; options.context == 0 && shorter >= 128; shorter /= 2) {
    p.context_shrunk = true;
    if (lay(p, types.build, shorter, cap)) return p;
  }
  lay(p, types.build, p.context);  // all ranks, to name the largest
  auto worst =
      std::max_element(p.memory.begin(), p.memory.end(), [](auto& a, auto& b) { return a.total() < b.total(); });
  const auto& axes = options.plan.axes;
  const bool even = axes.size() == 1 && axes[0].weights.empty();
  const auto degree = smallest_degree(p, types.build, even ? axes[0].size + 1 : 1);
  const std::string hint = degree ? fmt::format("the smallest degree that fits is {}", *degree) : "no degree fits";
  std::string part = "the weights";
  if (worst->weights() <= cap)
    part = worst->weights() + worst->kv <= cap ? "arena, inputs and communication buffers" : "the KV cache";
  fail(Code::does_not_fit, "rank {} needs {}, the cap is {}: {} overflow it at a context of {}. {}",
       worst - p.memory.begin(), itemised(*worst), mib(cap), part, p.context, hint);
}

std::vector<CollectiveRow> collectives(const ServingPlan& p, i64 tokens) {
  const ShardedGraph& s = *p.sharded;
  Symbols symbols = p.bounds;
  symbols.size['T'] = tokens;
  symbols.size['R'] = 1;
  Sizes sizes = bound_sizes(s.graph, symbols), fixed = static_sizes(s.graph);
  Binding b(s.plan, sizes), names(s.plan, fixed);
  std::vector<CollectiveRow> rows;
  for (auto& st : s.steps) {
    if (st.node >= 0) continue;
    const Value& x = s.logical(st.source);
    CollectiveRow row;
    auto c = recognise(s.of(st.source), s.of(st.value), x.dims, names);
    for (auto& k : c) {
      row.op += (row.op.empty() ? "" : "+") + k.op;
      for (i64 a : k.axes) row.axis += (row.axis.empty() ? "" : " ") + s.plan.axes[static_cast<size_t>(a)].name;
    }
    row.cause = x.name;
    i64 layer = x.node >= 0 ? s.graph.nodes[static_cast<size_t>(x.node)].layer : -1;
    const std::string prefix = fmt::format("layers.{}.", layer);
    if (row.cause.rfind(prefix, 0) == 0) row.cause = row.cause.substr(prefix.size());
    const DType wire = x.type == Type::sum ? p.executor.sum_wire : x.dtype;
    for (i64 r = 0; r < p.world(); r++)
      row.bytes = std::max(row.bytes, bytes_of(wire, volume(b.box(s.of(st.source), x.dims, r))));
    row.count = 1;
    row.per_layer = x.name.rfind(prefix, 0) == 0 ? 1 : 0;
    auto same = std::find_if(rows.begin(), rows.end(), [&](auto& o) {
      return o.op == row.op && o.axis == row.axis && o.cause == row.cause && o.bytes == row.bytes;
    });
    if (same == rows.end())
      rows.push_back(row);
    else
      same->count++;
  }
  for (auto& r : rows)
    if (r.per_layer > 0) r.per_layer = std::max<i64>(1, r.count / std::max<i64>(1, s.graph.layers));
  return rows;
}

Balance balance(const ServingPlan& p, i64 tokens, i64 cached) {
  const ShardedGraph& s = *p.sharded;
  Symbols symbols = p.bounds;
  symbols.size['T'] = tokens;
  symbols.size['R'] = 1;
  Sizes sizes = bound_sizes(s.graph, symbols);
  Binding b(s.plan, sizes);
  // Flops of one rank's products and attention; at nullptr: of one rank that does everything.
  auto flops_of_rank = [&](const Coords* at) {
    double flops = 0;
    for (size_t i = 0; i < s.graph.nodes.size(); i++)
      if (const std::string& op = s.graph.nodes[i].op->name; op == "matmul" || op == "attention_paged")
        flops += flops_of(s, static_cast<i64>(i), b, at,
                          {static_cast<double>(tokens) * static_cast<double>(cached), static_cast<double>(cached)});
    return flops;
  };
  Balance out;
  for (i64 r = 0; r < p.world(); r++) {
    Coords at = b.mesh().coords(r);
    out.flops.push_back(flops_of_rank(&at));
  }
  out.speed_up = flops_of_rank(nullptr) / *std::max_element(out.flops.begin(), out.flops.end());
  return out;
}

}  // namespace plait::serve
