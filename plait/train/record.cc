#include "plait/train/record.h"

#include <cmath>
#include <cstring>

#include "plait/base/random.h"
#include "plait/tensor/element.h"

namespace plait::train {

namespace {

/// What every rank keeps of a step, in this order; `state` empty: what the host reads of the update.
struct Kept {
  std::string kind, name, state;
};

std::vector<Kept> kept_before_update(const TrainingPlan& plan, bool gradients) {
  std::vector<Kept> all;
  for (auto& w : plan.weights)
    if (gradients) all.push_back({"gradient", w, "acc." + w});
  return all;
}

std::vector<Kept> kept_after_update(const TrainingPlan& plan, bool last) {
  std::vector<Kept> all{{"loss", "loss", ""}, {"gradient_norm", "gradient_norm", ""}};
  if (!last) return all;
  for (auto& w : plan.weights) {
    all.push_back({"weight", w, w});
    for (const char* moment : {"m.", "v."})
      if (plan.update->graph.named.count(moment + w) > 0) all.push_back({"moment", moment + w, moment + w});
  }
  return all;
}

/// The value of the update graph.
ValueId value_of(const Graph& g, const Kept& k) {
  if (!k.state.empty()) return g.named.at(k.state);
  for (auto& n : g.nodes)
    if (n.attrs.label == k.name) return n.out[0];
  PLAIT_CHECK(false, "no {} in graph {}", k.name, g.name);
}

}  // namespace

Recorded record(const TrainingPlan& plan, Run run, bool gradients_of_all_steps) {
  const ShardedGraph& g = *plan.update;
  const auto ranks = static_cast<size_t>(g.plan.world());
  // A rank appends the bytes of its parts; they are taken apart in the same order.
  std::vector<std::string> parts(ranks);
  auto keep = [&](RankTrainer& t, const std::vector<Kept>& what) {
    for (auto& k : what) {
      const View v = k.state.empty() ? t.update_executor().output(k.name) : t.state(k.state);
      if (v.elements() == 0) continue;
      parts[static_cast<size_t>(t.rank())].append(v.as<char>(), static_cast<size_t>(bytes_of(v.dtype, v.elements())));
    }
  };
  auto gradients = [&](i64 step) { return step == run.steps || gradients_of_all_steps; };
  run.before_update = [&](RankTrainer& t, i64 step) { keep(t, kept_before_update(plan, gradients(step))); };
  run.after_update = [&](RankTrainer& t, i64 step) { keep(t, kept_after_update(plan, step == run.steps)); };
  run.result = [&, result = run.result](RankTrainer& t) {
    return std::move(parts[static_cast<size_t>(t.rank())]) + (result ? result(t) : std::string());
  };
  const std::vector<std::string> bytes = train(plan, run);

  Recorded out;
  Symbols none;
  none.size['T'] = 0;
  Sizes sizes = bound_sizes(g.graph, none);
  const Binding binding(g.plan, sizes);
  std::vector<size_t> at(ranks, 0);
  auto take = [&](const Kept& k, i64 step) {
    const ValueId v = value_of(g.graph, k);
    const Value& x = g.logical(v);
    std::vector<Tensor> of;
    for (size_t r = 0; r < ranks; r++) {
      const auto rank = static_cast<i64>(r);
      const Tensor& t = of.emplace_back(x.dtype, binding.box(g.of(v), x.dims, rank));
      const auto n = static_cast<size_t>(bytes_of(t.dtype, t.elements()));
      PLAIT_CHECK(at[r] + n <= bytes[r].size(), "rank {} kept {} bytes, too few", rank, bytes[r].size());
      if (n > 0) std::memcpy(t.data, bytes[r].data() + at[r], n);
      at[r] += n;
    }
    Tensor whole = join_parts(g, v, none, [&](i64 rank) { return &of[static_cast<size_t>(rank)]; });
    bool complete = true;
    for (auto& a : g.of(v)) complete &= a.join == Joined::copy;
    for (size_t r = 0; r < ranks && complete; r++) {
      const View& part = of[r];
      if (part.elements() == 0) continue;
      out.copies++;
      for_each(part.box, [&](const std::vector<i64>& i) {
        if (out.bad_copy.empty() && !same_bits(part, part.at(i), whole, whole.at(i)))
          out.bad_copy = fmt::format("{} of {} after step {}: rank {} holds another value at [{}]", k.kind, k.name,
                                     step, r, fmt::join(i, ", "));
      });
    }
    out.entries.push_back({k.kind, k.name, step, std::move(whole)});
  };
  for (i64 step = 1; step <= run.steps; step++) {
    for (auto& k : kept_before_update(plan, gradients(step))) take(k, step);
    for (auto& k : kept_after_update(plan, step == run.steps)) {
      take(k, step);
      if (k.state.empty()) (k.kind == "loss" ? out.losses : out.norms).push_back(number(out.entries.back().whole, 0));
    }
  }
  for (size_t r = 0; r < ranks; r++) out.results.push_back(bytes[r].substr(at[r]));
  return out;
}

std::vector<Comparison> compare(const Recorded& got, const Recorded& oracle) {
  PLAIT_CHECK(got.entries.size() == oracle.entries.size(), "recordings of {} and {} values", got.entries.size(),
              oracle.entries.size());
  std::vector<Comparison> all;
  for (size_t i = 0; i < got.entries.size(); i++) {
    auto &a = got.entries[i], &b = oracle.entries[i];
    PLAIT_CHECK(a.kind == b.kind && a.name == b.name && a.step == b.step && a.whole.box == b.whole.box,
                "recordings of {} and {}", a.name, b.name);
    Comparison c{a.kind, a.name, a.step, a.whole.elements(), 0, 0, 0, {}, 0, 0};
    for_each(a.whole.box, [&](const std::vector<i64>& x) {
      const i64 k = a.whole.at(x);
      const double w = number(b.whole, k);
      c.max_want = std::max(c.max_want, std::fabs(w));
      if (same_bits(a.whole, k, b.whole, k)) return;
      const double g = number(a.whole, k);
      c.max_abs = std::max(c.max_abs, std::isnan(g - w) ? INFINITY : std::fabs(g - w));
      if (c.different++ == 0) c.where = fmt::format("[{}]", fmt::join(x, ", ")), c.got = g, c.want = w;
    });
    all.push_back(std::move(c));
  }
  return all;
}

std::vector<Batch> random_batches(i64 vocabulary, i64 step, i64 documents, i64 micro_batches) {
  PLAIT_CHECK(documents >= micro_batches && micro_batches >= 1, "{} documents for {} micro-batches", documents,
              micro_batches);
  std::vector<Batch> out(static_cast<size_t>(micro_batches));
  for (i64 d = 0; d < documents; d++) {
    const u64 stream = stream_of("data") + static_cast<u64>(step * 100 + d);
    const i64 n = 3 + static_cast<i64>(random_bits(stream, 1000) % 18);
    std::vector<std::int32_t> ids, targets;
    for (i64 i = 0; i <= n; i++)
      ids.push_back(static_cast<std::int32_t>(random_bits(stream, static_cast<u64>(i)) % static_cast<u64>(vocabulary)));
    for (i64 i = 0; i < n; i++) targets.push_back(i % 7 == 3 ? -1 : ids[static_cast<size_t>(i) + 1]);
    ids.pop_back();
    out[static_cast<size_t>(d * micro_batches / documents)].add_document(ids, targets);
  }
  return out;
}

}  // namespace plait::train
