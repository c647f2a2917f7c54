// plait doctor: what this machine has, what it can do at most, and what is off.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "plait/cli/common.h"
#include "plait/cli/machine.h"

namespace plait::cli {

namespace {

using Json = nlohmann::ordered_json;

constexpr i64 kReadBytes = i64{512} << 20;  // of all processors together
constexpr i64 kMostPairs = 12;

struct Measured {
  double one_core = 0, all_cores = 0;  // bytes/s
  Peaks one, all;
  std::optional<Latency> latency;
};

Measured measure(const Machine& m) {
  Measured r;
  const i64 bytes = std::min(kReadBytes, m.available_bytes / 8);
  const std::vector<int> first{m.cpus[0]};
  r.one_core = read_bandwidth(first, bytes);
  r.all_cores = m.cpus.size() > 1 ? read_bandwidth(m.cpus, bytes / static_cast<i64>(m.cpus.size())) : r.one_core;
  r.one = peaks(first);
  r.all = m.cpus.size() > 1 ? peaks(m.cpus) : r.one;
  r.latency = core_latency(m.cpus, kMostPairs);
  return r;
}

template <class T>
Json or_null(const std::optional<T>& v) {
  return v ? Json(*v) : Json();
}

Json json_of(const Machine& m, const Measured& r) {
  Json features;
  for (auto& f : m.features) features[f.name] = f.there;
  Json j;
  j["schema_version"] = 1;
  j["processor"] = {
      {"name", m.processor},    {"virtual_machine", m.virtual_machine}, {"cores", m.cores},
      {"allowed_cpus", m.cpus}, {"cpu_quota", or_null(m.cpu_quota)},    {"largest_cache_bytes", m.cache_bytes},
      {"features", features}};
  j["isa"] = {{"taken", m.isa}, {"detected", m.detected_isa}, {"PLAIT_ISA", m.isa_wanted}};
  j["memory"] = {{"total_bytes", m.memory_bytes},
                 {"available_bytes", m.available_bytes},
                 {"limit_bytes", or_null(m.memory_limit)},
                 {"huge_pages", m.huge_pages},
                 {"shared_huge_pages", m.shared_huge_pages}};
  j["read_bytes_per_s"] = {{"one_core", r.one_core}, {"all_cores", r.all_cores}};
  j["f32_flops"] = {{"one_core", r.one.f32_flops}, {"all_cores", r.all.f32_flops}};
  j["bf16_flops"] = {{"one_core", r.one.bf16_flops}, {"all_cores", r.all.bf16_flops}};
  j["int8_flops"] = {{"one_core", r.one.int8_flops}, {"all_cores", r.all.int8_flops}};
  if (r.latency)
    j["latency_ns"] = {{"least", r.latency->least_ns},
                       {"median", r.latency->median_ns},
                       {"most", r.latency->most_ns},
                       {"pairs", r.latency->pairs}};
  else
    j["latency_ns"] = nullptr;
  j["regime"] = r.latency ? Json(r.latency->regime()) : Json();
  j["limits"] = {{"locked_bytes", or_null(m.locked_limit)},
                 {"shared_memory_bytes", or_null(m.shared_memory_bytes)},
                 {"shared_memory_free_bytes", or_null(m.shared_memory_free)}};
  j["governor"] = m.governor.empty() ? Json() : Json(m.governor);
  j["load"] = m.load;
  j["mpi"] = m.mpi.empty() ? Json() : Json(m.mpi);
  j["advice"] = advice(m);
  return j;
}

std::string or_words(const std::string& s, const char* words) { return s.empty() ? words : s; }

std::string text_of(const Machine& m, const Measured& r) {
  std::string there, missing, s;
  for (auto& f : m.features) (f.there ? there : missing) += std::string(" ") + f.name;
  auto line = [&](const char* name, const std::string& value) { s += fmt::format("{:<16}{}\n", name, value); };
  auto pair = [](double one, double all, const char* unit) {
    if (one <= 0) return std::string("no such instruction");
    return fmt::format("{:.1f} {} on 1 core, {:.1f} on all ({:.2f}x)", one / 1e9, unit, all / 1e9, all / one);
  };
  line("processor", m.processor + (m.virtual_machine ? ", virtual machine" : ""));
  line("features", or_words(there.empty() ? "" : there.substr(1), "none of those that kernels use"));
  if (!missing.empty()) line("not there", missing.substr(1));
  line("kernels", m.isa + (m.isa_wanted.empty() ? "" : fmt::format(" (PLAIT_ISA={})", m.isa_wanted)));
  line("cores", fmt::format("{} of {} allowed{}", m.cpus.size(), m.cores,
                            m.cpu_quota ? fmt::format(", control group: {:.2g} at once", *m.cpu_quota) : ""));
  line("memory",
       fmt::format("{}, available {}, control group: {}", human_bytes(m.memory_bytes), human_bytes(m.available_bytes),
                   m.memory_limit ? human_bytes(*m.memory_limit) : std::string("no limit")));
  line("huge pages", fmt::format("{}, of shared memory {}", or_words(m.huge_pages, "unknown"),
                                 or_words(m.shared_huge_pages, "unknown")));
  line("largest cache", human_bytes(m.cache_bytes));
  line("read", pair(r.one_core, r.all_cores, "GB/s"));
  line("f32 peak", pair(r.one.f32_flops, r.all.f32_flops, "Gflop/s"));
  line("bf16 peak", pair(r.one.bf16_flops, r.all.bf16_flops, "Gflop/s"));
  line("int8 peak", pair(r.one.int8_flops, r.all.int8_flops, "Gflop/s"));
  if (r.latency)
    line("core to core", fmt::format("{:.0f} ns one way ({:.0f} to {:.0f} of {} pairs): {}", r.latency->median_ns,
                                     r.latency->least_ns, r.latency->most_ns, r.latency->pairs, r.latency->regime()));
  line("governor", or_words(m.governor, "the system does not say"));
  line("limits", fmt::format("locked memory {}, /dev/shm {}",
                             m.locked_limit ? human_bytes(*m.locked_limit) : std::string("no limit"),
                             m.shared_memory_bytes ? fmt::format("{} ({} free)", human_bytes(*m.shared_memory_bytes),
                                                                 human_bytes(*m.shared_memory_free))
                                                   : std::string("absent")));
  line("MPI", or_words(m.mpi, "not found; one machine needs none"));
  for (auto& a : advice(m)) s += "* " + a + "\n";
  return s;
}

int doctor(bool json) {
  const Machine m = inspect_machine();
  const Measured r = measure(m);
  const std::string s = json ? json_of(m, r).dump(2) + "\n" : text_of(m, r);
  std::fwrite(s.data(), 1, s.size(), stdout);
  return 0;
}

}  // namespace

void add_doctor(Program& p) {
  auto json = std::make_shared<bool>(false);
  OptionList options = p.parser.command("doctor", "This machine: processor, bandwidth, latency, limits, what is off");
  options.flag("--json", *json, "One JSON object");
  options.footer(
      "Takes about two seconds. NEAR: a cache line goes from core to core in less than 200 ns; FAR: in more.\n\n"
      "Examples:\n"
      "  plait doctor\n"
      "  PLAIT_ISA=avx2 plait doctor --json");
  options.chosen([&p, json] { p.chosen = [json] { return doctor(*json); }; });
}

}  // namespace plait::cli
