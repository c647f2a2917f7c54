#include "plait/train/explain.h"

#include <algorithm>
#include <set>

#include "plait/exec/buckets.h"

namespace plait::train {

namespace {

/// The node that a reshard is made for: the next step.
const Node* reader_of(const ShardedGraph& s, size_t step) {
  for (size_t i = step + 1; i < s.steps.size(); i++)
    if (s.steps[i].node >= 0) return &s.graph.nodes[static_cast<size_t>(s.steps[i].node)];
  return nullptr;
}

void add_collectives(const ShardedGraph& s, const Symbols& symbols, bool update, std::vector<TrainCollective>& rows) {
  Sizes sizes = bound_sizes(s.graph, symbols), fixed = static_sizes(s.graph);
  Binding b(s.plan, sizes), names(s.plan, fixed);
  std::map<std::string, std::set<i64>> layers;
  std::map<i64, const std::vector<i64>*> bucket_of;
  const auto buckets = find_buckets(s);
  for (auto& bucket : buckets)
    for (i64 i : bucket) bucket_of[i] = &bucket;
  for (size_t i = 0; i < s.steps.size(); i++) {
    const Step& st = s.steps[i];
    if (st.node >= 0) continue;
    auto bucket = bucket_of.find(static_cast<i64>(i));
    const bool shared = bucket != bucket_of.end();
    const std::vector<i64> members = shared ? *bucket->second : std::vector{static_cast<i64>(i)};
    if (members[0] != static_cast<i64>(i)) continue;
    const Value& x = s.logical(st.source);
    const Node* reader = reader_of(s, i);
    TrainCollective row;
    row.phase = update ? "update" : reader != nullptr && reader->backward ? "backward" : "forward";
    for (auto& k : recognise(s.of(st.source), s.of(st.value), x.dims, names)) {
      row.op += (row.op.empty() ? "" : "+") + k.op;
      for (i64 a : k.axes) row.axis += (row.axis.empty() ? "" : " ") + s.plan.axes[static_cast<size_t>(a)].name;
    }
    if (row.op == "slice" || row.op == "owner_keeps") continue;  // nothing moves
    row.cause = shared ? "acc.*" : x.name;
    row.values = static_cast<i64>(members.size());
    i64 layer = -1;
    if (auto at = x.name.find("layers."); at != std::string::npos && !shared) {
      auto end = x.name.find('.', at + 7);
      layer = std::stoll(x.name.substr(at + 7, end - at - 7));
      row.cause = x.name.substr(0, at) + "layers.*" + x.name.substr(end);
    }
    for (i64 r = 0; r < s.plan.world(); r++) {
      i64 bytes = 0;
      for (i64 k : members) {
        const ValueId source = s.steps[static_cast<size_t>(k)].source;
        bytes += bytes_of(x.dtype, volume(b.box(s.of(source), s.logical(source).dims, r)));
      }
      row.bytes = std::max(row.bytes, bytes);
    }
    auto same = std::find_if(rows.begin(), rows.end(), [&](auto& o) {
      return o.phase == row.phase && o.op == row.op && o.axis == row.axis && o.cause == row.cause;
    });
    if (same == rows.end()) {
      same = rows.insert(rows.end(), row);
      same->values = 0;
    }
    same->count++;
    same->values += row.values;
    same->bytes = std::max(same->bytes, row.bytes);
    if (layer >= 0) {
      auto& seen = layers[row.phase + row.op + row.axis + row.cause];
      seen.insert(layer);
      same->layers = static_cast<i64>(seen.size());
    }
  }
}

}  // namespace

TrainExplanation explain(const TrainingPlan& plan, i64 tokens, i64 document) {
  if (tokens < 1 || document < 1) fail(Code::usage, "a micro-batch of {} tokens in documents of {}", tokens, document);
  Batch batch;
  for (i64 at = 0; at < tokens; at += document) {
    const auto n = static_cast<size_t>(std::min(document, tokens - at));
    batch.add_document(std::vector<std::int32_t>(n, 0), std::vector<std::int32_t>(n, 0));
  }
  const Symbols symbols = plan.symbols(batch);
  Symbols none;
  none.size['T'] = 0;
  TrainExplanation e;
  const ShardedGraph &micro = *plan.micro, &update = *plan.update;
  Sizes sizes = bound_sizes(micro.graph, symbols);
  Binding b(micro.plan, sizes);
  const ExecutorOptions rows{.reference = true};
  StateShapes in_micro(micro, rows), in_update(update, rows);
  for (i64 r = 0; r < micro.plan.world(); r++) {
    TrainMemory m;
    const auto bytes = value_bytes(micro, b, r);
    for (auto& [name, v] : micro.graph.named) {
      if (micro.graph.at(v).kind == Kind::input)
        m.inputs += bytes[static_cast<size_t>(v)];
      else
        (name.rfind("acc.", 0) == 0 ? m.gradients : m.weights) += in_micro.of(name, r).bytes;
    }
    for (auto& [name, v] : update.graph.named)
      if (name.rfind("m.", 0) == 0 || name.rfind("v.", 0) == 0) m.moments += in_update.of(name, r).bytes;
    m.activations = plan_arena(partition(plan.micro, r), std::span(&symbols, 1)).bytes;
    m.update = plan_arena(partition(plan.update, r), std::span(&none, 1)).bytes;
    e.memory.push_back(m);
  }
  add_collectives(micro, symbols, false, e.collectives);
  add_collectives(update, none, true, e.collectives);
  return e;
}

}  // namespace plait::train
