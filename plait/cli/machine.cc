#include "plait/cli/machine.h"

#include <cpuid.h>
#include <immintrin.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "plait/comm/local/measure.h"
#include "plait/kernels/kernel.h"
#include "plait/serve/engine.h"

namespace plait::cli {

namespace {

double now_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

/// The first line of a file; nothing when there is none.
std::optional<std::string> line_of(const std::string& path) {
  std::ifstream in(path);
  std::string s;
  if (!std::getline(in, s)) return {};
  return s;
}

std::optional<double> number_of(const std::string& text) {
  char* end = nullptr;
  double v = std::strtod(text.c_str(), &end);
  if (end == text.c_str()) return {};
  return v;
}

/// "always [madvise] never" -> "madvise"
std::string chosen(const std::string& path) {
  std::string s = line_of(path).value_or("");
  size_t b = s.find('['), e = s.find(']');
  return b == std::string::npos || e == std::string::npos ? s : s.substr(b + 1, e - b - 1);
}

/// kB of a line of /proc/meminfo, as bytes.
i64 meminfo(const std::string& key) {
  std::ifstream in("/proc/meminfo");
  for (std::string s; std::getline(in, s);)
    if (s.rfind(key + ":", 0) == 0) return static_cast<i64>(number_of(s.substr(key.size() + 1)).value_or(0)) * 1024;
  return 0;
}

/// Folders of this process' control group (version 2), from its own up to the root; then that of version 1.
std::vector<std::string> control_groups(const char* controller) {
  std::vector<std::string> folders;
  std::ifstream in("/proc/self/cgroup");
  for (std::string s; std::getline(in, s);) {
    const size_t a = s.find(':'), b = s.find(':', a + 1);
    if (b == std::string::npos) continue;
    const std::string kinds = s.substr(a + 1, b - a - 1);
    const bool first = ("," + kinds + ",").find("," + std::string(controller) + ",") != std::string::npos;
    if (!kinds.empty() && !first) continue;
    const std::string root = first ? std::string("/sys/fs/cgroup/") + controller : "/sys/fs/cgroup";
    for (std::string path = s.substr(b + 1);; path.erase(path.rfind('/'))) {
      while (!path.empty() && path.back() == '/') path.pop_back();
      folders.push_back(root + path);
      if (path.empty()) break;
    }
  }
  return folders;
}

std::optional<i64> memory_limit(i64 memory) {
  std::optional<i64> least;
  for (auto& folder : control_groups("memory"))
    for (const char* file : {"/memory.max", "/memory.limit_in_bytes"})
      if (auto s = line_of(folder + file))
        if (auto v = number_of(*s); v && *v < static_cast<double>(memory))
          least = std::min(least.value_or(memory), static_cast<i64>(*v));
  return least;
}

std::optional<double> cpu_quota() {
  std::optional<double> least;
  auto take = [&](std::optional<double> quota, std::optional<double> period) {
    if (quota && period && *quota > 0 && *period > 0) least = std::min(least.value_or(1e9), *quota / *period);
  };
  for (auto& folder : control_groups("cpu")) {
    if (auto s = line_of(folder + "/cpu.max"))
      if (size_t space = s->find(' '); space != std::string::npos && s->rfind("max", 0) != 0)
        take(number_of(*s), number_of(s->substr(space)));
    auto quota = line_of(folder + "/cpu.cfs_quota_us"), period = line_of(folder + "/cpu.cfs_period_us");
    if (quota && period) take(number_of(*quota), number_of(*period));
  }
  return least;
}

std::string find_program(const std::string& name) {
  const char* path = std::getenv("PATH");
  std::stringstream in(path != nullptr ? path : "");
  for (std::string folder; std::getline(in, folder, ':');)
    if (!folder.empty() && access((folder + "/" + name).c_str(), X_OK) == 0) return folder + "/" + name;
  return "";
}

void inspect_processor(Machine& m) {
  std::ifstream in("/proc/cpuinfo");
  std::string flags;
  for (std::string s; std::getline(in, s);) {
    const size_t colon = s.find(": ");
    if (colon == std::string::npos) continue;
    if (m.processor.empty() && s.rfind("model name", 0) == 0) m.processor = s.substr(colon + 2);
    if (flags.empty() && s.rfind("flags", 0) == 0) flags = " " + s.substr(colon + 2) + " ";
  }
  auto has = [&](const char* flag) { return flags.find(" " + std::string(flag) + " ") != std::string::npos; };
  for (const char* f : {"avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512_vnni",
                        "avx512_bf16", "avx512_fp16", "amx_bf16", "amx_int8"})
    m.features.push_back({f, has(f)});
  m.virtual_machine = has("hypervisor");
  for (int i = 0; i < 8; i++) {
    const std::string folder = fmt::format("/sys/devices/system/cpu/cpu0/cache/index{}", i);
    if (auto size = line_of(folder + "/size"))
      m.cache_bytes = std::max(
          m.cache_bytes, static_cast<i64>(number_of(*size).value_or(0)) * (size->back() == 'M' ? i64{1} << 20 : 1024));
  }
  m.isa = kernels::name_of(kernels::isa());
  m.detected_isa = kernels::name_of(kernels::detected_isa());
  if (const char* wanted = std::getenv("PLAIT_ISA")) m.isa_wanted = wanted;
}

}  // namespace

Machine inspect_machine() {
  Machine m;
  inspect_processor(m);
  m.cores = sysconf(_SC_NPROCESSORS_ONLN);
  m.cpus = serve::allowed_cpus();
  m.cpu_quota = cpu_quota();
  m.memory_bytes = meminfo("MemTotal");
  m.available_bytes = meminfo("MemAvailable");
  m.memory_limit = memory_limit(m.memory_bytes);
  m.huge_pages = chosen("/sys/kernel/mm/transparent_hugepage/enabled");
  m.shared_huge_pages = chosen("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
  m.governor = line_of("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").value_or("");
  rlimit locked{};
  if (getrlimit(RLIMIT_MEMLOCK, &locked) == 0 && locked.rlim_cur != RLIM_INFINITY)
    m.locked_limit = static_cast<i64>(locked.rlim_cur);
  struct statvfs shm {};
  if (statvfs("/dev/shm", &shm) == 0) {
    m.shared_memory_bytes = static_cast<i64>(shm.f_blocks) * static_cast<i64>(shm.f_frsize);
    m.shared_memory_free = static_cast<i64>(shm.f_bavail) * static_cast<i64>(shm.f_frsize);
  }
  m.load = number_of(line_of("/proc/loadavg").value_or("0")).value_or(0);
  m.mpi = find_program("mpirun");
  return m;
}

std::vector<std::string> advice(const Machine& m) {
  std::vector<std::string> a;
  const auto cores = static_cast<double>(m.cpus.size());
  if (!m.governor.empty() && m.governor != "performance")
    a.push_back(
        fmt::format("frequency governor is '{}': 'performance' keeps the clock up between steps (cpupower "
                    "frequency-set -g performance)",
                    m.governor));
  if (m.huge_pages == "never")
    a.push_back(
        "transparent huge pages are off: weights are read 5 to 10 % slower (echo madvise > "
        "/sys/kernel/mm/transparent_hugepage/enabled)");
  if (m.isa != m.detected_isa)
    a.push_back(
        fmt::format("PLAIT_ISA={} holds the kernels at {}, the processor has {}", m.isa_wanted, m.isa, m.detected_isa));
  if (m.detected_isa == "portable") a.push_back("the processor has no AVX2: kernels run several times slower");
  if (static_cast<i64>(m.cpus.size()) < m.cores)
    a.push_back(fmt::format("this process may use {} of {} cores (taskset, cpuset)", m.cpus.size(), m.cores));
  if (m.cpu_quota && *m.cpu_quota < cores)
    a.push_back(
        fmt::format("the control group may use {:.2g} cores' time, {} are visible: waiting ranks burn it; use "
                    "at most {} ranks x threads",
                    *m.cpu_quota, m.cpus.size(), std::max<i64>(1, static_cast<i64>(*m.cpu_quota))));
  if (m.load > 0.5 * cores)
    a.push_back(fmt::format("other programs run (load {:.1f} on {} cores): what is measured now is too low", m.load,
                            m.cpus.size()));
  if (m.available_bytes < i64{1} << 30)
    a.push_back(fmt::format("{} MiB of memory are free: only small models fit", m.available_bytes >> 20));
  if (m.virtual_machine && m.cpus.size() > 1)
    a.push_back(
        "a virtual machine: the distance of two cores can change within minutes; compare figures of one regime only");
  return a;
}

namespace {

struct Mapped {
  explicit Mapped(i64 n) : bytes(n) {
    void* p = mmap(nullptr, static_cast<size_t>(n), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) fail(Code::does_not_fit, "{} bytes to read for a measurement: {}", n, std::strerror(errno));
    data = static_cast<std::byte*>(p);
    madvise(p, static_cast<size_t>(n), MADV_HUGEPAGE);
  }
  ~Mapped() { munmap(data, static_cast<size_t>(bytes)); }
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;
  std::byte* data;
  i64 bytes;
};

// Readers fold all they read into a word, so that no load can be left out. n is a multiple of 512.
__attribute__((target("avx512f"))) u64 read_avx512(const std::byte* p, i64 n) {
  __m512i a[8] = {};
  for (i64 i = 0; i < n; i += 512)
#pragma GCC unroll 12
    for (int k = 0; k < 8; k++) a[k] = _mm512_xor_si512(a[k], _mm512_loadu_si512(p + i + 64 * k));
  for (int k = 1; k < 8; k++) a[0] = _mm512_xor_si512(a[0], a[k]);
  u64 words[8];
  _mm512_storeu_si512(words, a[0]);
  return words[0];
}

__attribute__((target("avx2"))) u64 read_avx2(const std::byte* p, i64 n) {
  __m256i a[8] = {};
  for (i64 i = 0; i < n; i += 256)
#pragma GCC unroll 12
    for (int k = 0; k < 8; k++)
      a[k] = _mm256_xor_si256(a[k], _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + i + 32 * k)));
  for (int k = 1; k < 8; k++) a[0] = _mm256_xor_si256(a[0], a[k]);
  return static_cast<u64>(_mm256_extract_epi64(a[0], 0));
}

u64 read_portable(const std::byte* p, i64 n) {
  u64 a[8] = {};
  for (i64 i = 0; i < n; i += 64)
#pragma GCC unroll 12
    for (int k = 0; k < 8; k++) {
      u64 x;
      std::memcpy(&x, p + i + 8 * k, 8);
      a[k] ^= x;
    }
  return a[0] ^ a[1] ^ a[2] ^ a[3] ^ a[4] ^ a[5] ^ a[6] ^ a[7];
}

// 12 chains hide the latency of a fused multiply-add on every processor with two such units.
constexpr int kChains = 12;

__attribute__((target("avx512f"))) float fma_avx512(i64 rounds) {
  __m512 a[kChains], x = _mm512_set1_ps(0.5f), y = _mm512_set1_ps(1.0f);
  for (auto& v : a) v = y;
  for (i64 i = 0; i < rounds; i++) {
#pragma GCC unroll 12
    for (auto& v : a) v = _mm512_fmadd_ps(v, x, y);
    asm volatile("" : "+v"(x));
  }
  for (auto& v : a) y = _mm512_add_ps(y, v);
  return _mm512_cvtss_f32(y);
}

__attribute__((target("avx2,fma"))) float fma_avx2(i64 rounds) {
  __m256 a[kChains], x = _mm256_set1_ps(0.5f), y = _mm256_set1_ps(1.0f);
  for (auto& v : a) v = y;
  for (i64 i = 0; i < rounds; i++) {
#pragma GCC unroll 12
    for (auto& v : a) v = _mm256_fmadd_ps(v, x, y);
    asm volatile("" : "+x"(x));
  }
  for (auto& v : a) y = _mm256_add_ps(y, v);
  return _mm256_cvtss_f32(y);
}

__attribute__((target("avx512f,avx512bf16"))) float dot_bf16(i64 rounds) {
  __m512 a[kChains], y = _mm512_setzero_ps();
  __m512i ones = _mm512_set1_epi16(0x3c00);
  for (auto& v : a) v = y;
  for (i64 i = 0; i < rounds; i++) {
#pragma GCC unroll 12
    for (auto& v : a) v = _mm512_dpbf16_ps(v, (__m512bh)ones, (__m512bh)ones);
    asm volatile("" : "+v"(ones));
  }
  for (auto& v : a) y = _mm512_add_ps(y, v);
  return _mm512_cvtss_f32(y);
}

__attribute__((target("avx512f,avx512vnni"))) float dot_int8(i64 rounds) {
  __m512i a[kChains], ones = _mm512_set1_epi8(1), y = _mm512_setzero_si512();
  for (auto& v : a) v = y;
  for (i64 i = 0; i < rounds; i++) {
#pragma GCC unroll 12
    for (auto& v : a) v = _mm512_dpbusd_epi32(v, ones, ones);
    asm volatile("" : "+v"(ones));
  }
  for (auto& v : a) y = _mm512_add_epi32(y, v);
  int out[16];
  _mm512_storeu_si512(out, y);
  return static_cast<float>(out[0]);
}

bool has_avx512() { return __builtin_cpu_supports("avx512f") != 0; }
bool has_avx2() { return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0; }
bool has_bf16() { return kernels::detected_isa() == kernels::Isa::avx512_bf16; }

/// Shortest time of `rounds` runs of f(thread) on one thread a processor, which begin together.
template <class F>
double shortest_s(kernels::Team& team, i64 rounds, F f) {
  double best = 1e9;
  for (i64 r = 0; r < rounds; r++) {
    const double t = now_s();
    team.run([&](i64 thread, i64) { f(thread); });
    best = std::min(best, now_s() - t);
  }
  return best;
}

/// f(team) on a thread of its own, so that the caller is not pinned.
template <class F>
void with_pinned_team(const std::vector<int>& cpus, F f) {
  std::exception_ptr error;
  std::thread thread([&] {
    try {
      kernels::Team team(static_cast<i64>(cpus.size()), cpus);
      f(team);
    } catch (...) { error = std::current_exception(); }
  });
  thread.join();
  if (error) std::rethrow_exception(error);
}

}  // namespace

double read_bandwidth(const std::vector<int>& cpus, i64 bytes) {
  PLAIT_CHECK(!cpus.empty(), "no processor to read with");
  constexpr i64 kPiece = i64{8} << 20;  // of a thread, some 0.5 ms: most pieces see no other program
  constexpr double kEnough_s = 0.2, kMost_s = 1;
  const i64 n = std::max(i64{1} << 16, bytes) / 512 * 512, piece = std::min(n, kPiece), pieces = n / piece;
  const i64 passes = std::max<i64>(1, kPiece / piece);
  auto* read = has_avx512() ? read_avx512 : has_avx2() ? read_avx2 : read_portable;
  std::vector<std::unique_ptr<Mapped>> memory(cpus.size());
  std::atomic<u64> sink{0};
  std::vector<double> took;
  with_pinned_team(cpus, [&](kernels::Team& team) {
    team.run([&](i64 t, i64) {
      memory[static_cast<size_t>(t)] = std::make_unique<Mapped>(n);
      std::memset(memory[static_cast<size_t>(t)]->data, static_cast<int>(t) + 1, static_cast<size_t>(n));
    });
    const double begin = now_s();
    for (i64 k = 0;; k++) {
      const double t0 = now_s();
      team.run([&](i64 t, i64) {
        u64 x = 0;
        for (i64 i = 0; i < passes; i++) x += read(memory[static_cast<size_t>(t)]->data + k % pieces * piece, piece);
        sink += x;
      });
      const double t1 = now_s();
      took.push_back(t1 - t0);
      if (t1 - begin > kMost_s || (t1 - begin > kEnough_s && k >= pieces)) break;
    }
  });
  return static_cast<double>(piece * passes * static_cast<i64>(cpus.size())) / comm::quantile(took, 0.25);
}

Peaks peaks(const std::vector<int>& cpus) {
  constexpr i64 kSteps = 200'000;  // about 1 ms
  Peaks p;
  std::atomic<float> sink{0};
  with_pinned_team(cpus, [&](kernels::Team& team) {
    auto flops = [&](float (*f)(i64), double each) {
      const double s = shortest_s(team, 20, [&](i64) { sink = f(kSteps); });
      return static_cast<double>(cpus.size()) * static_cast<double>(kSteps * kChains) * each / s;
    };
    if (has_avx512())
      p.f32_flops = flops(fma_avx512, 32);
    else if (has_avx2())
      p.f32_flops = flops(fma_avx2, 16);
    if (has_bf16()) p.bf16_flops = flops(dot_bf16, 64);
    if (has_avx512() && __builtin_cpu_supports("avx512vnni") != 0) p.int8_flops = flops(dot_int8, 128);
  });
  return p;
}

std::optional<Latency> core_latency(const std::vector<int>& cpus, i64 most_pairs) {
  std::vector<std::pair<int, int>> pairs;
  for (size_t a = 0; a < cpus.size(); a++)
    for (size_t b = a + 1; b < cpus.size(); b++) pairs.emplace_back(cpus[a], cpus[b]);
  if (pairs.empty()) return {};
  const i64 all = static_cast<i64>(pairs.size()), n = std::min(all, most_pairs);
  std::vector<double> ns;
  for (i64 i = 0; i < n; i++) {
    auto [a, b] = pairs[static_cast<size_t>(i * all / n)];
    ns.push_back(comm::measure_ping_pong_ns(a, b));
  }
  std::sort(ns.begin(), ns.end());
  return Latency{ns.front(), ns[ns.size() / 2], ns.back(), n};
}

}  // namespace plait::cli
