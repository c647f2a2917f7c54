#include "plait/exec/fault.h"

#include <fmt/ranges.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <sstream>
#include <thread>

namespace plait {

namespace {

constexpr int kExitCode = 3;
constexpr auto kSlowCall = std::chrono::microseconds(1000), kSlowKernel = std::chrono::microseconds(100);

std::optional<i64> whole(const std::string& s) {
  if (s.empty() || s.size() > 9 || s.find_first_not_of("0123456789") != std::string::npos) return std::nullopt;
  return std::stoll(s);
}

std::string without_layer(const std::string& label) {
  return label.rfind("layers.", 0) == 0 ? label.substr(label.find('.', 7) + 1) : label;
}

}  // namespace

Fault parse_fault(const std::string& text) {
  std::vector<std::string> parts;
  std::stringstream in(text);
  for (std::string part; std::getline(in, part, ':');) parts.push_back(part);
  constexpr const char* kWant =
      "want rank:where:throw|hang|exit|kill|slow, where e.g. load, decode:3, step:2, wo, all_reduce";
  if (parts.size() < 3 || parts.size() > 5) fail(Code::usage, "--fault {}: {}", text, kWant);
  const std::pair<const char*, Fault::Kind> kinds[] = {{"throw", Fault::Kind::throws},
                                                       {"hang", Fault::Kind::hang},
                                                       {"exit", Fault::Kind::exit},
                                                       {"kill", Fault::Kind::kill},
                                                       {"slow", Fault::Kind::slow}};
  auto kind = std::find_if(std::begin(kinds), std::end(kinds), [&](auto& k) { return parts.back() == k.first; });
  const auto rank = whole(parts[0]);
  if (!rank || kind == std::end(kinds)) fail(Code::usage, "--fault {}: {}", text, kWant);
  Fault f;
  f.rank = *rank;
  f.kind = kind->second;
  size_t at = 1;
  const size_t end = parts.size() - 1;
  if (parts[at] == "load" || parts[at] == "prefill" || parts[at] == "decode" || parts[at] == "step") {
    f.phase = parts[at++];
    const bool steps = f.phase == "decode" || f.phase == "step";
    if (f.phase == "step") f.phase = "training";  // messages say "training step 2"
    if (steps && at < end)
      if (auto step = whole(parts[at])) {
        f.step = *step;
        at++;
      }
  }
  if (at < end) f.name = parts[at++];
  if (at != end || (f.phase.empty() && f.name.empty()) || (f.phase == "load" && !f.name.empty()))
    fail(Code::usage, "--fault {}: {}", text, kWant);
  return f;
}

void Fault::check(i64 ranks, bool processes, std::initializer_list<std::string_view> phases) const {
  if (rank >= ranks) fail(Code::usage, "--fault: got rank {}, there are {} ranks", rank, ranks);
  if (!phase.empty() && std::find(phases.begin(), phases.end(), phase) == phases.end())
    fail(Code::usage, "--fault: got the phase {}, here are {}", phase, fmt::join(phases, ", "));
  if (!processes && (kind == Kind::exit || kind == Kind::kill))
    fail(Code::usage, "--fault: a thread cannot exit or be killed without the others: want --ranks process");
}

FaultInjector::FaultInjector(Fault fault, std::initializer_list<const Program*> programs, std::string_view beside)
    : fault_(std::move(fault)) {
  here_ = fault_.phase.empty();
  const bool slow_phase = fault_.kind == Fault::Kind::slow && fault_.name.empty();
  bool any = fault_.name.empty() || fault_.name == beside;
  for (const Program* p : programs) {
    const ShardedGraph& s = *p->sharded;
    Sizes sizes = static_sizes(s.graph);
    Binding binding(s.plan, sizes);
    auto& hits = hits_.emplace_back();
    for (auto& c : p->calls) {
      const std::string label = p->label(c);
      bool hit = false;
      if (c.kind == Call::Kind::kernel) {
        hit = slow_phase || fault_.name == p->node(c).op->name || fault_.name == label ||
              fault_.name == without_layer(label);
      } else if (c.kind == Call::Kind::wait) {
        const Step& st = p->step(c);
        for (auto& k : recognise(s.of(st.source), s.of(st.value), s.logical(st.source).dims, binding))
          hit |= fault_.name == k.op;
      }
      hits.push_back(hit);
      any |= hit;
    }
  }
  if (!any) fail(Code::usage, "--fault: rank {} runs nothing named {}", fault_.rank, fault_.name);
}

void FaultInjector::enter(std::string_view phase, i64 step) {
  here_ = (fault_.phase.empty() || fault_.phase == phase) && (fault_.step == 0 || fault_.step == step);
  const bool every_kernel = fault_.kind == Fault::Kind::slow && phase != "load";
  if (here_ && fault_.name.empty() && !every_kernel)
    strike(step > 0 ? fmt::format("{} step {}", phase, step) : std::string(phase));
}

void FaultInjector::before_call(size_t program, size_t call) {
  if (!here_ || !hits_[program][call]) return;
  if (fault_.kind == Fault::Kind::slow && fault_.name.empty())
    std::this_thread::sleep_for(kSlowKernel);
  else
    strike(fault_.name);
}

void FaultInjector::before(std::string_view name) {
  if (here_ && fault_.name == name) strike(name);
}

void FaultInjector::strike(std::string_view where) {
  switch (fault_.kind) {
    case Fault::Kind::throws:
      fail(Code::rank_lost, "a fault was asked for in {}", where);
    case Fault::Kind::hang:
      for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
    case Fault::Kind::exit:
      _exit(kExitCode);
    case Fault::Kind::kill:
      kill(getpid(), SIGKILL);
      for (;;) pause();
    case Fault::Kind::slow:
      std::this_thread::sleep_for(kSlowCall);
  }
}

}  // namespace plait
