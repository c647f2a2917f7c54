#include "plait/train/record.h"

#include <cmath>
#include <cstring>
#include <mutex>

#include "plait/base/random.h"
#include "plait/tensor/copy.h"

namespace plait::train {

namespace {

double number(const View& v, i64 i) {
  switch (v.dtype) {
    case DType::f32:
      return v.as<float>()[i];
    case DType::f64:
      return v.as<double>()[i];
    case DType::bf16:
      return static_cast<float>(v.as<bf16>()[i]);
    case DType::i64:
      return static_cast<double>(v.as<i64>()[i]);
    case DType::i128:
      return static_cast<double>(v.as<i128>()[i]);
    default:
      PLAIT_CHECK(false, "no number in {}", name_of(v.dtype));
  }
}

bool same_bits(const View& a, i64 i, const View& b, i64 k) {
  const auto w = bytes_of(a.dtype, 1);
  return std::memcmp(a.as<std::byte>() + i * w, b.as<std::byte>() + k * w, static_cast<size_t>(w)) == 0;
}

}  // namespace

Recorded record(const TrainingPlan& plan, Run run, bool gradients_of_all_steps) {
  struct Parts {
    std::string kind, name, state;
    i64 step;
    std::map<i64, Tensor> of;  // by rank
  };
  std::mutex lock;
  std::map<std::pair<i64, std::string>, Parts> gathered;  // by step and name
  Recorded out;
  out.losses.assign(static_cast<size_t>(run.steps), 0);
  out.norms = out.losses;
  auto keep = [&](RankTrainer& t, const char* kind, const std::string& name, const std::string& state, i64 step) {
    Tensor copy = copy_of(t.state(state));
    std::lock_guard guard(lock);
    Parts& p = gathered[{step, fmt::format("{} {}", kind, name)}];
    p.kind = kind, p.name = name, p.state = state, p.step = step;
    p.of.insert_or_assign(t.rank(), std::move(copy));
  };
  run.before_update = [&](RankTrainer& t, i64 step) {
    if (step < run.steps && !gradients_of_all_steps) return;
    for (auto& w : plan.weights) keep(t, "gradient", w, "acc." + w, step);
  };
  run.after_update = [&](RankTrainer& t, i64 step) {
    if (t.rank() == 0) {
      std::lock_guard guard(lock);
      out.losses[static_cast<size_t>(step) - 1] = t.loss();
      out.norms[static_cast<size_t>(step) - 1] = t.norm();
      for (const char* scalar : {"loss", "gradient_norm"})
        out.entries.push_back({scalar, scalar, step, copy_of(t.update_executor().output(scalar))});
    }
    if (step < run.steps) return;
    for (auto& w : plan.weights) {
      keep(t, "weight", w, w, step);
      for (const char* moment : {"m.", "v."})
        if (plan.update->graph.named.count(moment + w) > 0) keep(t, "moment", moment + w, moment + w, step);
    }
  };
  train(plan, run);

  Symbols none;
  none.size['T'] = 0;
  const ShardedGraph& g = *plan.update;
  for (auto& [key, p] : gathered) {
    const ValueId v = g.graph.named.at(p.state);
    Tensor whole = join_parts(g, v, none, [&](i64 rank) -> const View* {
      auto it = p.of.find(rank);
      return it == p.of.end() ? nullptr : &it->second;
    });
    bool complete = true;
    for (auto& a : g.of(v)) complete &= a.join == Joined::copy;
    for (auto& [rank, part] : p.of) {
      if (!complete || part.elements() == 0) continue;
      out.copies++;
      for_each(part.box, [&, r = rank](const std::vector<i64>& x) {
        if (out.bad_copy.empty() && !same_bits(part, part.at(x), whole, whole.at(x)))
          out.bad_copy = fmt::format("{} of {} after step {}: rank {} holds another value at [{}]", p.kind, p.name,
                                     p.step, r, fmt::join(x, ", "));
      });
    }
    out.entries.push_back({p.kind, p.name, p.step, std::move(whole)});
  }
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
