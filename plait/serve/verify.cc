#include "plait/serve/verify.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>

#include "plait/base/hash.h"
#include "plait/models/family.h"
#include "plait/tensor/copy.h"
#include "plait/tensor/element.h"

namespace plait::serve {

namespace {

/// Copies of what the oracle made: by run and logical value.
using Record = std::map<std::pair<i64, ValueId>, Tensor>;

bool is_complete(const Placement& p) {
  return std::all_of(p.begin(), p.end(), [](const AxisPlace& a) { return a.join == Joined::copy; });
}

std::string phase_of(i64 run) { return run == 0 ? "prefill" : fmt::format("decode {}", run); }

struct Verifier {
  Record record;
  std::map<std::string, std::pair<View, std::shared_ptr<Tensor>>> caches;  // of the oracle
  std::mutex lock;
  VerifyResult result;
  std::map<std::string, size_t> row_of;
  std::vector<float> oracle_margins;
  ExecutorOptions executor;
  i64 page = 16;

  VerifyRow& row(const std::string& label, const std::string& op, i64 layer) {
    auto [it, fresh] = row_of.try_emplace(label, result.rows.size());
    if (fresh) result.rows.push_back({label, op, layer, 0, 0, 0, 0, 0});
    return result.rows[it->second];
  }

  i64 first_run = -1, first_step = -1;

  void compare(i64 run, i64 step, i64 rank, const std::string& label, const std::string& op, i64 layer, const View& got,
               const View& want) {
    i64 different = 0, elements = 0;
    double max_abs = 0, max_want = 0;
    std::optional<Difference> first;
    for_each(got.box, [&](const std::vector<i64>& x) {
      const i64 a = got.at(x), b = want.at(x);
      elements++;
      const double w = number(want, b);
      max_want = std::max(max_want, std::fabs(w));
      if (same_bits(got, a, want, b)) return;
      const double g = number(got, a);
      max_abs = std::max(max_abs, std::isnan(g - w) ? INFINITY : std::fabs(g - w));
      if (different++ == 0)
        first = Difference{label, op, phase_of(run), layer, rank, fmt::format("[{}]", fmt::join(x, ", ")), g, w};
    });
    std::lock_guard guard(lock);
    VerifyRow& r = row(label, op, layer);
    r.values++;
    r.elements += elements;
    r.different += different;
    r.max_abs = std::max(r.max_abs, max_abs);
    r.max_want = std::max(r.max_want, max_want);
    if (first && (first_run < 0 || std::pair(run, step) < std::pair(first_run, first_step))) {
      first_run = run;
      first_step = step;
      result.first = first;
    }
  }

  /// The prompt, then greedy tokens; watched.
  std::vector<i64> drive(Session& s, const VerifyRequest& q, bool oracle) {
    const ShardedGraph& g = *s.executor().program().sharded;
    i64 run = 0;
    s.executor().watch([&](const Call& c, ValueId v, const View& view) {
      const ValueId logical = g.origin[static_cast<size_t>(v)];
      if (view.layout != Layout::rows || !is_complete(g.of(v)) || view.elements() == 0) return;
      const Node* n =
          g.graph.at(logical).node >= 0 ? &g.graph.nodes[static_cast<size_t>(g.graph.at(logical).node)] : nullptr;
      if (n == nullptr || !n->attrs.alias.empty()) return;  // caches are compared at the end
      if (oracle) {
        record.insert_or_assign({run, logical}, copy_of(view));
        return;
      }
      auto it = record.find({run, logical});
      PLAIT_CHECK(it != record.end(), "the oracle made no {}", g.graph.at(logical).name);
      compare(run, c.step, s.rank(), g.graph.at(logical).name + (c.kind == Call::Kind::wait ? " (resharded)" : ""),
              n->op->name, n->layer, view, it->second);
    });
    std::vector<i64> tokens;
    u64 hash = 0;
    float margin = 0;
    std::vector<float> margins;
    auto take = [&](std::span<const float> logits) {
      hash = hash_bytes(logits.data(), static_cast<i64>(logits.size_bytes()), hash);
      auto m = kernels::top_margin(logits);
      margin = m.gap;
      return m.id;
    };
    i64 next = 0;
    s.forward_all(q.prompt, [&](i64, std::span<const float> logits) { next = take(logits); });
    for (i64 t = 0; t < q.max_tokens; t++) {
      tokens.push_back(next);
      margins.push_back(margin);
      if (t + 1 == q.max_tokens) break;
      run++;
      // Both follow the oracle's tokens, so that one early difference does not hide the rest.
      const i64 follow = oracle ? next : result.oracle_tokens[static_cast<size_t>(t)];
      next = take(s.forward(std::span<const i64>(&follow, 1)));
    }
    s.executor().watch(nullptr);
    std::lock_guard guard(lock);
    if (oracle) {
      result.oracle_logits_hash = hash;
      oracle_margins = margins;
    } else if (s.rank() == 0) {
      result.logits_hash = hash;
    }
    return tokens;
  }

  void keep_states(Session& s) {
    for (auto& [name, v] : s.executor().program().sharded->graph.named) {
      if (s.executor().program().sharded->graph.at(v).kind != Kind::state || name.find("cache.") == std::string::npos)
        continue;
      const View& view = s.executor().state(name);
      auto copy = std::make_shared<Tensor>(copy_of(view));
      caches.emplace(name, std::pair{static_cast<View>(*copy), copy});
    }
  }

  /// Caches hold for each page and KV head one stretch (keys in pages), or rows of heads: compared head by head.
  void compare_caches(Session& s, i64 positions) {
    i64 compared = 0, different = 0;
    std::optional<Difference> first;
    for (auto& [name, kept] : caches) {
      const View &got = s.executor().state(name), &want = kept.first;
      const i64 heads = got.size(1), all = want.size(1), H = got.size(2), pages = page;
      const i64 unit = got.layout == Layout::pages ? pages * H : H;  // elements of a head's stretch
      const i64 stretches = got.layout == Layout::pages ? ceil_div(positions, pages) : positions;
      for (i64 i = 0; i < stretches; i++)
        for (i64 h = 0; h < heads; h++) {
          const i64 a = (i * heads + h) * unit, b = (i * all + got.box[1].begin + h) * unit;
          compared += unit;
          for (i64 e = 0; e < unit; e++)
            if (!same_bits(got, a + e, want, b + e) && different++ == 0)
              first = Difference{name,
                                 "kv_write",
                                 "cache",
                                 -1,
                                 s.rank(),
                                 fmt::format("stretch {} head {}", i, got.box[1].begin + h),
                                 number(got, a + e),
                                 number(want, b + e)};
        }
    }
    std::lock_guard guard(lock);
    result.cache_compared += compared;
    result.cache_different += different;
    if (first && !result.first) result.first = first;
  }

  /// Parts of a weight with one box have one hash on all ranks that hold it.
  void hash_weights(Session& s,
                    std::map<std::pair<std::string, std::string>, std::vector<std::pair<i64, u64>>>& hashes) {
    StateShapes shapes(*s.executor().program().sharded, executor);
    for (auto& name : weights_of(s.executor().program().sharded->graph)) {
      const View& v = s.executor().state(name);
      u64 h = hash_bytes(v.data, shapes.of(name, s.rank()).bytes);
      std::lock_guard guard(lock);
      hashes[{name, to_string(v.box)}].emplace_back(s.rank(), h);
    }
  }
};

}  // namespace

VerifyResult verify(const io::ModelFiles& files, const ServingOptions& options, const EngineOptions& engine,
                    const VerifyRequest& request) {
  ServingOptions wide = options;
  wide.logit_rows = std::min<i64>(static_cast<i64>(request.prompt.size()), options.prefill_chunk);
  wide.prefill_chunk = std::max<i64>(1, wide.logit_rows);  // every row's logits are compared
  ServingOptions one = wide;
  one.plan = tensor_parallel(1);
  ServingPlan oracle_plan = make_serving_plan(files, one);
  ServingPlan plan = make_serving_plan(files, wide);
  if (static_cast<i64>(request.prompt.size()) + request.max_tokens > plan.context)
    fail(Code::does_not_fit, "{} prompt tokens and {} more do not fit the context of {}", request.prompt.size(),
         request.max_tokens, plan.context);
  Verifier v;
  v.page = plan.page;
  v.executor = plan.executor;
  if (options.reduce != "exact") {  // docs/numerics.md: what the trade may cost at the logits
    const bool narrow = plan.dtype != "f32" || options.reduce == "bf16";
    v.result.tolerance = plan.dtype != "f32" && plan.dtype != "bf16" ? 1e-1 : narrow ? 2e-2 : 1e-4;
  }

  Engine oracle(files, std::move(oracle_plan), engine);
  oracle.run([&](Session& s) {
    v.result.oracle_tokens = v.drive(s, request, true);
    v.keep_states(s);
  });
  const i64 positions = static_cast<i64>(request.prompt.size()) + request.max_tokens - 1;
  std::map<std::pair<std::string, std::string>, std::vector<std::pair<i64, u64>>> hashes;
  Engine many(files, std::move(plan), engine);
  many.run([&](Session& s) {
    auto tokens = v.drive(s, request, false);
    if (s.rank() == 0) v.result.tokens = tokens;
    v.compare_caches(s, positions);
    v.hash_weights(s, hashes);
  });

  VerifyResult& r = v.result;
  for (auto& [part, holders] : hashes)
    for (size_t i = 1; i < holders.size(); i++) {
      r.weights_compared++;
      if (holders[i].second == holders[0].second) continue;
      if (r.weights_different++ == 0 && !r.first)
        r.first = Difference{part.first, "weight", "weights", -1, holders[i].first, part.second, 0, 0};
    }
  for (size_t t = 0; t < r.tokens.size() && !r.first_token_apart; t++)
    if (r.tokens[t] != r.oracle_tokens[t]) {
      r.first_token_apart = static_cast<i64>(t);
      r.margin = v.oracle_margins[t];
    }
  bool within = true;
  for (auto& row : r.rows)
    within &= r.tolerance == 0 ? row.different == 0 : row.op != "read" || row.relative() <= r.tolerance;
  r.same =
      within && r.weights_different == 0 &&
      (r.tolerance > 0 || (r.cache_different == 0 && !r.first_token_apart && r.logits_hash == r.oracle_logits_hash));
  return std::move(r);
}

}  // namespace plait::serve
