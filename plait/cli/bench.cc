// plait bench: how fast, where the time goes, and how far from what the machine could do.
//
// Degrees take turns, repeat by repeat, so that a machine that changes under way changes for all; figures are medians.
// In a repeat the ranks load and write a first token (that is `first token`); then, everything prepared, a prefill and
// decode steps over its cache are timed. Shares come from the rank's own clocks, summed over ranks: kernels and
// communication by the executor, waiting by the communicators, the rest is the wall time that is left: sampling,
// filling inputs, the executor itself.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "plait/cli/common.h"
#include "plait/cli/machine.h"
#include "plait/cli/profile.h"
#include "plait/cli/table.h"
#include "plait/comm/local/measure.h"

namespace plait::cli {

namespace {

using Json = nlohmann::ordered_json;

double now_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

struct Options {
  ModelOptions model;
  std::vector<i64> degrees;
  i64 prompt_tokens = 512, gen_tokens = 64, batch = 1, repeat = 3, top = 20;
  bool comm = false, profile = false, json = false;
};

/// Seconds of one rank in a phase; as bytes between processes.
struct Split {
  double wall = 0, kernels = 0, comm = 0, wait = 0;  // comm: copying, adding, packing; without waiting
  double rest() const { return std::max(0.0, wall - kernels - comm - wait); }
};

struct Phase {
  std::vector<Split> ranks;
  std::vector<ProfileRow> profile;  // with --profile
};

struct Repeat {
  double load_s = 0, first_token_s = 0;
  Phase prefill, decode;
  double bandwidth = 0;  // bytes/s that as many cores read
  Peaks peaks;           // of as many cores; with --profile
  double latency_ns = 0;
};

struct Degree {
  i64 tp = 1;
  std::unique_ptr<serve::Engine> engine;
  i64 cores = 1;                       // that the threads of all ranks use
  i64 weight_bytes = 0, kv_bytes = 0;  // read by all ranks in a decode step
  std::vector<Repeat> repeats;
};

/// Bytes that all ranks read in a decode step: weights other than tables that are only looked up, and filled cache.
void count_bytes(Degree& d, i64 cached) {
  const serve::ServingPlan& p = d.engine->plan();
  const Graph& g = p.sharded->graph;
  std::set<ValueId> read;
  for (auto& n : g.nodes)
    if (n.op->name != "embedding") read.insert(n.in.begin(), n.in.end());
  StateShapes shapes(*p.sharded, p.executor);
  for (auto& [name, v] : g.named) {
    if (g.at(v).kind != Kind::state || read.count(v) == 0) continue;
    const bool cache = name.find("cache.") != std::string::npos;
    for (i64 r = 0; r < p.world(); r++) {
      const i64 bytes = shapes.of(name, r).bytes;
      (cache ? d.kv_bytes : d.weight_bytes) += cache ? bytes / p.context * cached : bytes;
    }
  }
}

/// Sequences that are written together: the last token of each.
class Writers {
 public:
  Writers(serve::Session& s, i64 count) : s_(s), tokens_(static_cast<size_t>(count)), stops_(tokens_.size()) {
    for (size_t q = 0; q < tokens_.size(); q++) pieces_.push_back({static_cast<i64>(q), {&tokens_[q], 1}, 1});
  }
  /// A prompt for one sequence.
  void read(i64 sequence, std::span<const i64> prompt) {
    const auto most = static_cast<size_t>(s_.plan().bounds.size.at('T'));
    for (size_t at = 0; at < prompt.size(); at += most) {
      const serve::Piece piece{sequence, prompt.subspan(at, std::min(most, prompt.size() - at)), 1};
      logits_ = s_.step({&piece, 1});
    }
    first_ = static_cast<size_t>(sequence), rows_ = 1;
  }
  /// A token of each.
  void step() {
    logits_ = s_.step(pieces_);
    first_ = 0, rows_ = tokens_.size();
  }
  /// The likeliest tokens after the last call.
  void draw() {
    const auto V = static_cast<size_t>(s_.plan().config.V);
    s_.team().split(static_cast<i64>(rows_), 1, [&](Range part) {
      kernels::SampleScratch scratch;  // greedy needs none
      for (auto i = static_cast<size_t>(part.begin); i < static_cast<size_t>(part.end); i++)
        tokens_[first_ + i] = kernels::sample(logits_.subspan(i * V, V), {}, 0, scratch);
    });
  }
  void agree() { s_.agree(tokens_, stops_); }

 private:
  serve::Session& s_;
  std::vector<i64> tokens_, stops_;
  std::vector<serve::Piece> pieces_;
  std::span<const float> logits_;
  size_t first_ = 0, rows_ = 0;
};

/// Runs f, `calls` times, each a call of `w`, and says where this rank's time went.
///   profile  receives the steps; may be null
template <class F>
Split timed(serve::Session& s, Writers& w, i64 calls, PhaseProfile* profile, F f) {
  w.agree();  // the ranks begin together
  s.reset_profile();
  const double begin = now_s();
  double agree_s = 0;
  for (i64 i = 0; i < calls; i++) {
    const double t0 = profile != nullptr ? now_s() : 0;
    f();
    const double t1 = profile != nullptr ? now_s() : 0, waited = profile != nullptr ? s.report().wait_s : 0;
    w.draw();
    const double t2 = now_s();
    w.agree();
    const double t3 = now_s();
    agree_s += t3 - t2;
    if (profile != nullptr) profile->end_step(t3 - t0, t2 - t1, t3 - t2, s.report().wait_s - waited);
  }
  Split out;
  out.wall = now_s() - begin;
  out.kernels = s.executor().profile().kernel_s;
  out.wait = s.report().wait_s;
  out.comm = std::max(0.0, s.executor().profile().comm_s + agree_s - out.wait);
  return out;
}

Repeat run_once(const Options& o, Degree& d) {
  Repeat r;
  std::vector<i64> prompt;
  for (i64 i = 0; i < o.prompt_tokens; i++) prompt.push_back((i * 7919 + 11) % d.engine->plan().config.V);
  const double begin = now_s();
  auto returned = d.engine->collect([&](serve::Session& s) {
    Writers w(s, o.batch);
    w.read(0, prompt);
    w.draw();
    w.agree();
    if (s.rank() == 0) r.first_token_s = now_s() - begin;
    for (i64 q = 1; q < o.batch; q++) w.read(q, std::span(prompt).first(1));
    w.step();  // a step is prepared
    s.reset();
    Json j;
    auto phase = [&](i64 calls, i64 cached, i64 sequences, auto f) {
      std::optional<PhaseProfile> profile;
      if (o.profile) profile.emplace(s, cached, sequences);
      const Split split = timed(s, w, calls, profile ? &*profile : nullptr, f);
      j.push_back({split.wall, split.kernels, split.comm, split.wait, profile ? profile->text() : ""});
    };
    phase(1, 0, 1, [&] { w.read(0, prompt); });
    for (i64 q = 1; q < o.batch; q++) {
      w.read(q, prompt);
      w.draw();
    }
    phase(o.gen_tokens, o.prompt_tokens, o.batch, [&] { w.step(); });
    return j.dump();
  });
  for (size_t p = 0; p < 2; p++) {
    Phase& phase = p == 0 ? r.prefill : r.decode;
    std::vector<std::string> profiles;
    for (auto& text : returned) {
      const Json j = Json::parse(text).at(p);
      phase.ranks.push_back({j.at(0), j.at(1), j.at(2), j.at(3)});
      profiles.push_back(j.at(4));
    }
    if (o.profile) phase.profile = profile_rows(profiles);
  }
  for (auto& report : d.engine->reports()) r.load_s = std::max(r.load_s, report.load_s);
  return r;
}

template <class F>
double median_of(const Degree& d, F f) {
  std::vector<double> v;
  for (auto& r : d.repeats) v.push_back(f(r));
  return comm::quantile(v, 0.5);
}

double wall_of(const Phase& p) {
  double w = 0;
  for (auto& s : p.ranks) w = std::max(w, s.wall);
  return w;
}

struct Shares {
  double kernels = 0, comm = 0, wait = 0, rest = 0;
};

/// Medians of the ranks' summed seconds, as shares of the summed wall time.
Shares shares_of(const Degree& d, Phase Repeat::*phase) {
  auto share = [&](auto part) {
    return median_of(d, [&](const Repeat& r) {
      double sum = 0, wall = 0;
      for (auto& s : (r.*phase).ranks) {
        sum += part(s);
        wall += s.wall;
      }
      return sum / wall;
    });
  };
  return {share([](const Split& s) { return s.kernels; }), share([](const Split& s) { return s.comm; }),
          share([](const Split& s) { return s.wait; }), share([](const Split& s) { return s.rest(); })};
}

struct Figures {
  double load_s, first_token_s, prefill_s, decode_s;  // decode: a step
  double prefill_rate, decode_rate;                   // tokens/s
  Shares prefill, decode;
  double weight_rate, bandwidth;                          // bytes/s
  std::vector<double> prefill_kernel_s, decode_kernel_s;  // by rank; decode: a step
  double prefill_limit, decode_limit;                     // speed-up over one core that balance allows
};

constexpr double kStraggles = 1.5;

struct Straggler {
  i64 rank = 0;
  double times = 0;  // the median of the other ranks' kernels
};

/// The rank whose kernels take much longer than those of the others, where there is one.
std::optional<Straggler> straggler_of(const std::vector<double>& kernel_s) {
  if (kernel_s.size() < 2) return std::nullopt;
  const auto slowest = std::max_element(kernel_s.begin(), kernel_s.end());
  std::vector<double> others(kernel_s.begin(), slowest);
  others.insert(others.end(), slowest + 1, kernel_s.end());
  const double times = *slowest / comm::quantile(others, 0.5);
  if (!(times > kStraggles)) return std::nullopt;
  return Straggler{slowest - kernel_s.begin(), times};
}

Figures figures_of(const Options& o, const Degree& d) {
  Figures f;
  f.load_s = median_of(d, [](const Repeat& r) { return r.load_s; });
  f.first_token_s = median_of(d, [](const Repeat& r) { return r.first_token_s; });
  f.prefill_s = median_of(d, [](const Repeat& r) { return wall_of(r.prefill); });
  f.decode_s = median_of(d, [](const Repeat& r) { return wall_of(r.decode); }) / static_cast<double>(o.gen_tokens);
  f.prefill_rate = static_cast<double>(o.prompt_tokens) / f.prefill_s;
  f.decode_rate = static_cast<double>(o.batch) / f.decode_s;
  f.prefill = shares_of(d, &Repeat::prefill);
  f.decode = shares_of(d, &Repeat::decode);
  f.weight_rate = static_cast<double>(d.weight_bytes) / f.decode_s;
  f.bandwidth = median_of(d, [](const Repeat& r) { return r.bandwidth; });
  for (size_t r = 0; r < d.repeats[0].decode.ranks.size(); r++) {
    f.prefill_kernel_s.push_back(median_of(d, [&](const Repeat& x) { return x.prefill.ranks[r].kernels; }));
    f.decode_kernel_s.push_back(median_of(d, [&](const Repeat& x) { return x.decode.ranks[r].kernels; }) /
                                static_cast<double>(o.gen_tokens));
  }
  // Threads of a rank share its work evenly; where threads outnumber cores, the cores are the limit.
  const serve::ServingPlan& p = d.engine->plan();
  auto limit = [&](i64 tokens, i64 cached) {
    const double by_ranks =
        serve::balance(p, tokens, cached).speed_up * static_cast<double>(d.cores) / static_cast<double>(p.world());
    const bool crowded = p.world() * d.engine->threads() > d.cores;
    return crowded ? static_cast<double>(d.cores) : by_ranks;
  };
  f.prefill_limit = limit(o.prompt_tokens, (o.prompt_tokens + 1) / 2);
  f.decode_limit = limit(o.batch, o.prompt_tokens + o.gen_tokens / 2);
  return f;
}

std::vector<ProfileRow> profile_of(const Degree& d, Phase Repeat::*phase) {
  std::vector<std::vector<ProfileRow>> repeats;
  for (auto& r : d.repeats) repeats.push_back((r.*phase).profile);
  return median_rows(repeats);
}

/// What one of the ranks can do, as measured between the repeats.
RankLimits limits_of(const Degree& d) {
  const auto ranks = static_cast<double>(d.engine->plan().world());
  auto peak = [&](double Peaks::*p) { return median_of(d, [&](const Repeat& r) { return r.peaks.*p; }) / ranks; };
  return {median_of(d, [](const Repeat& r) { return r.bandwidth; }) / ranks,
          {peak(&Peaks::f32_flops), peak(&Peaks::bf16_flops), peak(&Peaks::int8_flops)}};
}

Json json_of(const Shares& s) {
  return {{"kernels", s.kernels}, {"communication", s.comm}, {"waiting", s.wait}, {"rest", s.rest}};
}

Json json_of(const Options& o, const std::vector<Degree>& degrees, const std::vector<Figures>& figures,
             const std::optional<Latency>& latency) {
  Json j;
  j["schema_version"] = 1;
  j["model"] = o.model.model;
  j["dtype"] = degrees[0].engine->plan().dtype;
  j["reduce"] = o.model.serving.reduce;
  j["prompt_tokens"] = o.prompt_tokens;
  j["gen_tokens"] = o.gen_tokens;
  j["batch"] = o.batch;
  j["repeat"] = o.repeat;
  j["latency_ns"] = latency ? Json(latency->median_ns) : Json();
  j["regime"] = latency ? Json(latency->regime()) : Json();
  j["degrees"] = Json::array();
  for (size_t i = 0; i < degrees.size(); i++) {
    const Degree& d = degrees[i];
    const Figures& f = figures[i];
    Json row = {{"ranks", d.engine->plan().world()},
                {"threads", d.engine->threads()},
                {"cores", d.cores},
                {"load_s", f.load_s},
                {"first_token_s", f.first_token_s},
                {"prefill_tokens_per_s", f.prefill_rate},
                {"decode_tokens_per_s", f.decode_rate},
                {"shares", {{"prefill", json_of(f.prefill)}, {"decode", json_of(f.decode)}}},
                {"weight_bytes_per_step", d.weight_bytes},
                {"kv_bytes_per_step", d.kv_bytes},
                {"weight_bytes_per_s", f.weight_rate},
                {"read_bytes_per_s", f.bandwidth},
                {"bandwidth_share", f.weight_rate / f.bandwidth},
                {"speed_up",
                 {{"prefill", f.prefill_rate / figures[0].prefill_rate},
                  {"prefill_limit", f.prefill_limit / figures[0].prefill_limit},
                  {"decode", f.decode_rate / figures[0].decode_rate},
                  {"decode_limit", f.decode_limit / figures[0].decode_limit}}},
                {"kernel_s", {{"prefill", f.prefill_kernel_s}, {"decode_step", f.decode_kernel_s}}}};
    const auto straggler = straggler_of(f.decode_kernel_s);
    row["straggler"] = straggler ? Json{{"rank", straggler->rank}, {"times_the_others", straggler->times}} : Json();
    if (o.profile) {
      const RankLimits l = limits_of(d);
      row["profile"] = {{"rank_limits",
                         {{"read_bytes_per_s", l.bytes_per_s},
                          {"f32_flops", l.peaks.f32_flops},
                          {"bf16_flops", l.peaks.bf16_flops},
                          {"int8_flops", l.peaks.int8_flops}}},
                        {"prefill", profile_json(profile_of(d, &Repeat::prefill), l)},
                        {"decode", profile_json(profile_of(d, &Repeat::decode), l)}};
    }
    j["degrees"].push_back(row);
  }
  return j;
}

std::string percent(double x) { return fmt::format("{:.1f} %", 100 * x); }

std::string shares_text(const std::vector<Degree>& degrees, const std::vector<Figures>& figures, bool decode) {
  Table t("rrrrrrl", {"ranks", decode ? "step" : "prefill", "kernels", "communication", "waiting", "rest",
                      "kernels of each rank"});
  for (size_t i = 0; i < degrees.size(); i++) {
    const Figures& f = figures[i];
    const Shares& s = decode ? f.decode : f.prefill;
    std::string by_rank;
    for (double k : decode ? f.decode_kernel_s : f.prefill_kernel_s)
      by_rank += fmt::format("{}{:.2f}", by_rank.empty() ? "" : " ", 1e3 * k);
    t.row({std::to_string(degrees[i].engine->plan().world()),
           fmt::format("{:.2f} ms", 1e3 * (decode ? f.decode_s : f.prefill_s)), percent(s.kernels), percent(s.comm),
           percent(s.wait), percent(s.rest), by_rank + " ms"});
  }
  return t.text(2);
}

std::string profiles_text(const Options& o, const Degree& d) {
  const i64 world = d.engine->plan().world();
  const RankLimits l = limits_of(d);
  const std::string who = world == 1 ? "1 rank" : fmt::format("mean of {} ranks", world);
  std::string s;
  for (auto& [title, phase] : {std::pair{"decode step", &Repeat::decode}, {"prefill", &Repeat::prefill}})
    s += fmt::format("\nKernels of a {}, {}\n", title, who) + profile_text(profile_of(d, phase), l, world, o.top);
  return s +
         fmt::format("  limits of a rank: {:.1f} GB/s; f32 {:.0f}, bf16 {:.0f}, int8 {:.0f} GF/s; caches are faster\n",
                     l.bytes_per_s / 1e9, l.peaks.f32_flops / 1e9, l.peaks.bf16_flops / 1e9, l.peaks.int8_flops / 1e9);
}

std::string text_of(const Options& o, const std::vector<Degree>& degrees, const std::vector<Figures>& figures,
                    const std::optional<Latency>& latency) {
  const serve::ServingPlan& p = degrees[0].engine->plan();
  const std::string together = o.batch > 1 ? fmt::format(" of {} sequences together", o.batch) : "";
  std::string s =
      fmt::format("{}, weights {}, sums {}: prefill of {} tokens, {} decode steps{}, medians of {}\n", o.model.model,
                  p.dtype, o.model.serving.reduce, o.prompt_tokens, o.gen_tokens, together, o.repeat);
  if (latency) s += fmt::format("core to core {:.0f} ns one way: {}\n", latency->median_ns, latency->regime());
  Table speed("rrrrrrrr", {"ranks", "threads", "load", "first token", "prefill", "limit", "decode", "limit"});
  Table bytes("rrrrrr", {"ranks", "cores", "weights a step", "read at", "these cores read", "share"});
  for (size_t i = 0; i < degrees.size(); i++) {
    const Degree& d = degrees[i];
    const Figures& f = figures[i];
    const std::string world = std::to_string(d.engine->plan().world());
    auto rate = [&](double now, double first) {
      return i == 0 ? fmt::format("{:.1f} tokens/s", now) : fmt::format("{:.1f} tokens/s = {:.2f}x", now, now / first);
    };
    speed.row({world, std::to_string(d.engine->threads()), fmt::format("{:.2f} s", f.load_s),
               fmt::format("{:.2f} s", f.first_token_s), rate(f.prefill_rate, figures[0].prefill_rate),
               fmt::format("{:.2f}x", f.prefill_limit / figures[0].prefill_limit),
               rate(f.decode_rate, figures[0].decode_rate),
               fmt::format("{:.2f}x", f.decode_limit / figures[0].decode_limit)});
    bytes.row({world, std::to_string(d.cores), human_bytes(d.weight_bytes),
               fmt::format("{:.1f} GB/s", f.weight_rate / 1e9), fmt::format("{:.1f} GB/s", f.bandwidth / 1e9),
               percent(f.weight_rate / f.bandwidth)});
  }
  s += "\nSpeed (limit: what the balance between ranks allows, against the first line)\n" + speed.text(2);
  s += "\nWhere a decode step goes\n" + shares_text(degrees, figures, true);
  s += "\nWhere a prefill goes\n" + shares_text(degrees, figures, false);
  for (size_t i = 0; i < degrees.size(); i++)
    if (const auto slow = straggler_of(figures[i].decode_kernel_s))
      s += fmt::format("\nOf {} ranks, rank {} is a straggler: its kernels of a decode step take {:.1f}x the others'\n",
                       degrees[i].engine->plan().world(), slow->rank, slow->times);
  s += "\nMemory in a decode step, against what as many cores read just then\n" + bytes.text(2);
  for (auto& d : degrees)
    if (o.profile) s += profiles_text(o, d);
  return s;
}

void print(const std::string& s) { std::fwrite(s.data(), 1, s.size(), stdout); }

void check(const Options& o) {
  auto within = [](const char* name, i64 v, i64 most) {
    if (v < 1 || v > most) fail(Code::usage, "{} {}: want 1 to {}", name, v, most);
  };
  within("--prompt-tokens", o.prompt_tokens, i64{1} << 24);
  within("--gen-tokens", o.gen_tokens, i64{1} << 24);
  within("--batch", o.batch, 1024);
  within("--repeat", o.repeat, 1000);
  within("--top", o.top, 10000);
  for (i64 tp : o.degrees) within("--tensor-parallel-size", tp, 4096);
}

int bench_comm(const Options& o, const std::vector<i64>& degrees) {
  const auto cpus = serve::allowed_cpus();
  const auto before = core_latency(cpus, 1);
  Json j = {{"schema_version", 1}, {"collectives", Json::array()}};
  Table t("lrlrrrr", {"collective", "ranks", "type", "bytes", "median us", "90 % us", "disturbed"});
  for (i64 ranks : degrees) {
    if (ranks < 2) fail(Code::usage, "--comm -tp {}: want 2 ranks or more", ranks);
    comm::MeasureOptions m;
    m.ranks = ranks;
    m.cpus = cpus;
    for (auto& c : comm::measure_collectives(m)) {
      j["collectives"].push_back({{"op", c.collective},
                                  {"ranks", c.ranks},
                                  {"dtype", name_of(c.dtype)},
                                  {"bytes", c.bytes},
                                  {"median_us", c.median_us},
                                  {"p90_us", c.p90_us},
                                  {"samples", c.samples},
                                  {"disturbed", c.disturbed}});
      t.row({c.collective, std::to_string(c.ranks), c.bytes > 0 ? name_of(c.dtype) : "", std::to_string(c.bytes),
             fmt::format("{:.2f}", c.median_us), fmt::format("{:.2f}", c.p90_us),
             fmt::format("{} of {}", c.disturbed, c.samples + c.disturbed)});
    }
  }
  const auto after = core_latency(cpus, 1);
  if (before && after) {
    j["latency_ns"] = {before->median_ns, after->median_ns};
    j["regime"] = {before->regime(), after->regime()};
  }
  if (o.json) {
    print(j.dump(2) + "\n");
    return 0;
  }
  if (before && after)
    print(fmt::format("core to core {:.0f} ns one way before ({}), {:.0f} after ({})\n", before->median_ns,
                      before->regime(), after->median_ns, after->regime()));
  print(t.text());
  return 0;
}

int bench(const Options& o) {
  check(o);
  std::vector<i64> tps = o.degrees;
  if (o.comm) {
    if (!o.model.model.empty() || o.profile)
      fail(Code::usage, "--comm measures collectives by themselves: leave out MODEL and --profile");
    return bench_comm(o, tps.empty() ? std::vector<i64>{2} : tps);
  }
  if (o.model.model.empty()) fail(Code::usage, "want a MODEL, or --comm for collectives alone");
  const bool own_layout = !o.model.plan_file.empty() || !o.model.tensor_split.empty();
  if (tps.empty()) tps = own_layout ? std::vector<i64>{1} : std::vector<i64>{1, 2};
  if (own_layout && tps.size() > 1)
    fail(Code::usage, "--plan and --tensor-split say one layout: leave out the list of -tp");

  io::ModelFiles files(o.model.model);
  const auto cpus = serve::allowed_cpus();
  std::vector<Degree> degrees;
  for (i64 tp : tps) {
    ModelOptions m = o.model;
    m.tp = tp;
    m.serving.sequences = o.batch;
    Degree d;
    d.tp = tp;
    serve::EngineOptions e = engine_options(m);
    serve::ServingPlan plan = serving_plan(files, m);
    if (e.fault && e.fault->rank >= plan.world() && tps.size() > 1) e.fault.reset();
    d.engine = std::make_unique<serve::Engine>(files, std::move(plan), e);
    if (o.prompt_tokens + o.gen_tokens > d.engine->plan().context)
      fail(Code::does_not_fit, "{} prompt tokens and {} more do not fit the context of {}: see --max-model-len",
           o.prompt_tokens, o.gen_tokens, d.engine->plan().context);
    d.cores = std::min<i64>(static_cast<i64>(cpus.size()), d.engine->plan().world() * d.engine->threads());
    count_bytes(d, o.prompt_tokens + o.gen_tokens / 2);
    degrees.push_back(std::move(d));
  }
  std::vector<double> ns;
  for (i64 r = 0; r < o.repeat; r++)
    for (auto& d : degrees) {
      d.repeats.push_back(run_once(o, d));
      const std::vector<int> used(cpus.begin(), cpus.begin() + d.cores);
      d.repeats.back().bandwidth = read_bandwidth(used, d.weight_bytes / d.cores);
      if (o.profile) d.repeats.back().peaks = peaks(used);
      if (auto l = core_latency(cpus, 1)) ns.push_back(l->median_ns);
    }
  std::optional<Latency> latency;
  if (!ns.empty())
    latency = Latency{*std::min_element(ns.begin(), ns.end()), comm::quantile(ns, 0.5),
                      *std::max_element(ns.begin(), ns.end()), 1};
  std::vector<Figures> figures;
  for (auto& d : degrees) figures.push_back(figures_of(o, d));
  print(o.json ? json_of(o, degrees, figures, latency).dump(2) + "\n" : text_of(o, degrees, figures, latency));
  return 0;
}

}  // namespace

void add_bench(Program& p) {
  auto o = std::make_shared<Options>();
  OptionList options = p.parser.command("bench", "Tokens/s, where the time goes, and what the machine allows");
  options.add("MODEL", o->model.model, "Hugging Face folder, config.json, GGUF file, or a name in the cache");
  options.group("Layout");
  options.list("--tensor-parallel-size,--tp", o->degrees,
               "Degrees to compare, the first is the base (also -tp); default 1,2; with --comm 2");
  add_plan_options(options, o->model);
  add_run_options(options, o->model);
  options.group("Measuring");
  options.add("--prompt-tokens", o->prompt_tokens, "Tokens of the prefill");
  options.add("--gen-tokens", o->gen_tokens, "Decode steps");
  options.add("--batch", o->batch, "Sequences that are written together; decode counts the tokens of all");
  options.add("--repeat", o->repeat, "Rounds; figures are medians of them");
  options.flag("--comm", o->comm, "Collectives by size instead of a model");
  options.group("Output");
  options.flag("--profile", o->profile, "Also each kind of kernel: time, bytes, flops, share of the limit");
  options.add("--top", o->top, "Rows of a printed profile");
  options.flag("--json", o->json, "One JSON object");
  options.footer(
      "Examples:\n"
      "  plait bench SmolLM2-135M-Instruct.Q4_1 -tp 1,2 -t 1 --dtype bf16\n"
      "  plait bench --comm -tp 2,4");
  options.chosen([&p, o] {
    p.chosen = [o] { return bench(*o); };
    p.processes = o->model.ranks == "process";
  });
}

}  // namespace plait::cli
