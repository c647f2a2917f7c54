// plait trace: a timeline of a prefill and some decode steps on every rank, as Chrome's trace events, which Perfetto
// and chrome://tracing open.
//
// A process of the timeline is a rank (pid), a thread the one that runs its calls (tid 0; with --threads others help it
// inside a kernel). Steps hold, without gaps, what was done in them: inputs filled and calls bound, each call of the
// program, the choice of a token, the agreement on it. Times are microseconds since loading began, on the steady
// clock, which ranks share also as processes. Before the recording everything runs once, so nothing is prepared in it.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "plait/cli/common.h"
#include "plait/cli/profile.h"
#include "plait/io/output_file.h"

namespace plait::cli {

namespace {

using Json = nlohmann::ordered_json;

double now_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

struct Options {
  ModelOptions model;
  std::string out = "trace.json";
  i64 prompt_tokens = 128, gen_tokens = 8;
};

/// When the parts of a step ended.
struct Step {
  std::string name;
  size_t runs = 0;  // recorded when it ended
  double begin = 0, forward = 0, sample = 0, agree = 0;
};

/// The operands of the item's first call and the results of its last, as this rank has them: "f32 T=5 D=576, ...".
std::string shapes_of(const plait::Program& p, const Executor::Item& item, const Binding& b) {
  const ShardedGraph& s = *p.sharded;
  std::string text;
  auto add = [&](ValueId v) {
    const Value& x = s.logical(v);
    text += (text.empty() ? "" : ", ") + std::string(name_of(x.dtype));
    const Box box = b.box(s.of(v), x.dims, p.rank);
    for (size_t d = 0; d < box.size(); d++) text += fmt::format(" {}={}", x.dims[d], box[d].size());
  };
  const Call& c = p.calls[item.first];
  if (c.kind != Call::Kind::kernel) {
    add(p.step(c).source);
    return text;
  }
  for (ValueId v : p.step(c).in) add(v);
  text += " -> ";
  const std::string in = std::exchange(text, "");
  for (ValueId v : p.node(p.calls[item.first + item.count - 1]).out) add(v);
  return in + text;
}

class RankTimeline {
 public:
  RankTimeline(serve::Session& s, double origin_s) : session_(s), origin_s_(origin_s) {
    s.executor().record(&recording_);
  }
  ~RankTimeline() { session_.executor().record(nullptr); }
  RankTimeline(const RankTimeline&) = delete;
  RankTimeline& operator=(const RankTimeline&) = delete;

  i64 step(const std::string& name, std::span<const i64> tokens, kernels::SampleScratch& scratch) {
    Step st{name};
    st.begin = now_s();
    const auto logits = session_.forward(tokens);
    st.forward = now_s();
    const i64 token = kernels::sample(logits, {}, static_cast<u64>(session_.position()), scratch);
    st.sample = now_s();
    session_.agree(token, 0);
    st.agree = now_s();
    st.runs = recording_.runs.size();
    steps_.push_back(st);
    return token;
  }

  /// The events, each one's text followed by a comma and a new line.
  std::string text();

 private:
  /// A slice [begin, end) in seconds.
  void slice(const std::string& name, const char* category, double begin_s, double end_s, const Json& args) {
    const i64 begin = std::llround(1e9 * (begin_s - origin_s_)), end = std::llround(1e9 * (end_s - origin_s_));
    out_ += fmt::format(R"({{"ph":"X","pid":{},"tid":0,"ts":{}.{:03},"dur":{}.{:03},"name":{},"cat":"{}","args":{}}})",
                        session_.rank(), begin / 1000, begin % 1000, (end - begin) / 1000, (end - begin) % 1000,
                        Json(name).dump(), category, args.dump()) +
            ",\n";
  }
  void run_slices(const Recording::Run& run, size_t end, double cached, double& at_s, double last_s);

  serve::Session& session_;
  double origin_s_;
  Recording recording_;
  std::vector<Step> steps_;
  std::string out_;
};

void RankTimeline::run_slices(const Recording::Run& run, size_t end, double cached, double& at_s, double last_s) {
  Executor& e = session_.executor();
  const plait::Program& p = e.program();
  e.bind(run.symbols);
  const auto items = e.items();
  const Sizes sizes = bound_sizes(p.sharded->graph, run.symbols);
  const Binding b(p.sharded->plan, sizes);
  const auto tokens = static_cast<double>(run.symbols.size.at('T'));
  const Attended attended{tokens * cached + tokens * (tokens + 1) / 2, cached + tokens};
  for (size_t i = run.first; i < end; i++) {
    const CallEvent& event = recording_.events[i];
    const Executor::Item& item = items[event.item];
    const Call& call = p.calls[item.first];
    // Ticks and the clock may differ by their rounding: what follows begins no sooner than what was before has ended.
    const double begin = std::clamp(event.begin_s, at_s, last_s), finish = std::clamp(event.end_s, begin, last_s);
    if (i == run.first) slice("inputs, binding", "rest", at_s, begin, Json::object());
    at_s = finish;
    const bool kernel = call.kind == Call::Kind::kernel;
    if (kernel && item.kernel.empty()) continue;
    const CallKey key = key_of(p, item);
    const Work work = e.work(item, attended);
    Json args = {{"of", p.label(call)}, {"shape", shapes_of(p, item, b)}};
    if (kernel) {
      args["kernel"] = item.kernel;
      if (!key.type.empty()) args["weights"] = key.type;
      args["bytes"] = work.bytes();
      args["flops"] = work.flops();
    } else if (call.kind == Call::Kind::start) {
      args["bytes"] = work.bytes();
    } else {
      args["wait_us"] = 1e6 * event.wait_s;
    }
    const char* what = kernel ? "" : call.kind == Call::Kind::start ? " start" : " wait";
    slice(key.name + what, kernel ? "kernel" : "communication", begin, finish, args);
  }
}

std::string RankTimeline::text() {
  double cached = 0;
  size_t run = 0;
  for (const Step& st : steps_) {
    slice(st.name, "step", st.begin, st.agree, {{"cached", cached}});
    double at_s = st.begin;
    for (; run < st.runs; run++) {
      const bool last = run + 1 == recording_.runs.size();
      run_slices(recording_.runs[run], last ? recording_.events.size() : recording_.runs[run + 1].first, cached, at_s,
                 st.forward);
      cached += static_cast<double>(recording_.runs[run].symbols.size.at('T'));
    }
    slice("logits to the host", "rest", at_s, st.forward, Json::object());
    slice("sample", "kernel", st.forward, st.sample, Json::object());
    slice("token agreement", "communication", st.sample, st.agree, Json::object());
  }
  return std::move(out_);
}

int trace(const Options& o) {
  for (auto [name, value] : {std::pair{"--prompt-tokens", o.prompt_tokens}, {"--gen-tokens", o.gen_tokens}})
    if (value < 1 || value > 100'000) fail(Code::usage, "{} {}: want 1 to 100000", name, value);
  io::ModelFiles files(o.model.model);
  serve::Engine engine(files, serving_plan(files, o.model), engine_options(o.model));
  const serve::ServingPlan& plan = engine.plan();
  if (o.prompt_tokens + o.gen_tokens > plan.context)
    fail(Code::does_not_fit, "{} prompt tokens and {} more do not fit the context of {}: see --max-model-len",
         o.prompt_tokens, o.gen_tokens, plan.context);
  io::OutputFile file(o.out);  // what cannot be written is told before the work
  std::vector<i64> prompt;
  for (i64 i = 0; i < o.prompt_tokens; i++) prompt.push_back((i * 7919 + 11) % plan.config.V);
  const double origin_s = now_s();
  auto ranks = engine.collect([&](serve::Session& s) {
    kernels::SampleScratch scratch;
    i64 token = kernels::sample(s.forward(prompt), {}, static_cast<u64>(s.position()), scratch);
    s.forward({&token, 1});  // both kinds of step are prepared
    s.reset();
    s.agree(token, 0);  // the ranks begin together
    RankTimeline timeline(s, origin_s);
    token = timeline.step(fmt::format("prefill of {} tokens", o.prompt_tokens), prompt, scratch);
    for (i64 i = 0; i < o.gen_tokens; i++)
      token = timeline.step(fmt::format("decode step {}", i + 1), {&token, 1}, scratch);
    return timeline.text();
  });
  std::string text = "{\"displayTimeUnit\":\"ns\",\n\"otherData\":" +
                     Json{{"model", o.model.model},
                          {"weights", plan.dtype},
                          {"plan", plan.options.plan.text()},
                          {"threads of a rank", engine.threads()}}
                         .dump() +
                     ",\n\"traceEvents\":[\n";
  for (i64 r = 0; r < plan.world(); r++) {
    const std::string name = fmt::format("rank {}", plan.options.plan.mesh().describe(r));
    text += Json{{"ph", "M"}, {"pid", r}, {"name", "process_name"}, {"args", {{"name", name}}}}.dump() + ",\n";
    text += Json{{"ph", "M"}, {"pid", r}, {"tid", 0}, {"name", "thread_name"}, {"args", {{"name", "calls"}}}}.dump() +
            ",\n";
    text += ranks[static_cast<size_t>(r)];
  }
  text.resize(text.size() - 2);  // the last comma
  text += "\n]}\n";
  file.write(text.data(), static_cast<i64>(text.size()));
  file.commit();
  std::fprintf(stderr, "plait: wrote %s: %lld rank%s, a prefill and %lld decode steps; ui.perfetto.dev opens it\n",
               o.out.c_str(), static_cast<long long>(plan.world()), plan.world() == 1 ? "" : "s",
               static_cast<long long>(o.gen_tokens));
  return 0;
}

}  // namespace

void add_trace(Program& p) {
  auto o = std::make_shared<Options>();
  OptionList options = p.parser.command("trace", "A timeline of steps on every rank, for Perfetto");
  add_layout_options(options, o->model);
  add_run_options(options, o->model);
  options.group("Measuring");
  options.add("--prompt-tokens", o->prompt_tokens, "Tokens of the prefill");
  options.add("--gen-tokens", o->gen_tokens, "Decode steps");
  options.group("Output");
  options.add("-o,--output", o->out, "The file to write, Chrome's trace events as JSON");
  options.footer(
      "A process of the timeline is a rank. Open the file with Perfetto or chrome://tracing.\n\n"
      "Examples:\n  plait trace SmolLM2-135M-Instruct.Q4_1 -tp 2 -t 1 -o trace.json");
  options.chosen([&p, o] {
    p.chosen = [o] { return trace(*o); };
    p.processes = o->model.ranks == "process";
  });
}

}  // namespace plait::cli
