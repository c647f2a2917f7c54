// Memory as the system sees it, by replacing the allocator of this program: no allocation in a decode step, and as many
// bytes as the serving plan says.
#include <execinfo.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

#include "plait/serve/test_models.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define PLAIT_OWN_ALLOCATOR 0
#else
#define PLAIT_OWN_ALLOCATOR 1
#endif

namespace {

std::atomic<bool> watching{false};
std::atomic<long> allocations{0};
std::atomic<long> mapped{0};  // bytes of live mappings without a file, made by mmap and not yet unmapped
void* first_stack[24];
std::atomic<int> first_depth{0};

[[maybe_unused]] void count_allocation() {
  if (!watching.load(std::memory_order_relaxed)) return;
  if (allocations.fetch_add(1) == 0) {
    watching = false;  // backtrace may allocate
    first_depth = backtrace(first_stack, 24);
    watching = true;
  }
}

}  // namespace

#if PLAIT_OWN_ALLOCATOR
extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);

void* malloc(size_t n) {
  count_allocation();
  return __libc_malloc(n);
}
void* calloc(size_t n, size_t size) {
  count_allocation();
  return __libc_calloc(n, size);
}
void* realloc(void* p, size_t n) {
  count_allocation();
  return __libc_realloc(p, n);
}
void* memalign(size_t alignment, size_t n) {
  count_allocation();
  return __libc_memalign(alignment, n);
}
void* aligned_alloc(size_t alignment, size_t n) {
  count_allocation();
  return __libc_memalign(alignment, n);
}
int posix_memalign(void** p, size_t alignment, size_t n) {
  count_allocation();
  *p = __libc_memalign(alignment, n);
  return *p == nullptr ? ENOMEM : 0;
}
void* mmap(void* at, size_t n, int protection, int flags, int fd, off_t offset) noexcept {
  count_allocation();
  void* p = reinterpret_cast<void*>(syscall(SYS_mmap, at, n, protection, flags, fd, offset));
  if (p != MAP_FAILED && (flags & MAP_ANONYMOUS) != 0) mapped += static_cast<long>(n);
  return p;
}
int munmap(void* p, size_t n) noexcept {
  const int r = static_cast<int>(syscall(SYS_munmap, p, n));
  if (r == 0) mapped -= static_cast<long>(n);
  return r;
}
}
#endif

namespace plait::serve {
namespace {

#define NEED_OWN_ALLOCATOR() \
  if (!PLAIT_OWN_ALLOCATOR) GTEST_SKIP() << "the sanitizer's allocator is in place"

std::string first_allocation() {
  std::string s;
  char** names = backtrace_symbols(first_stack, first_depth);
  for (int i = 0; i < first_depth && names != nullptr; i++) s += std::string("\n  ") + names[i];
  std::free(static_cast<void*>(names));
  return s;
}

struct Case {
  std::string plan, dtype;
  i64 threads = 1;
  kernels::SamplingOptions sampling = {};
};

/// Decode steps that cross the end of a block of 128 cached positions, after a prompt and two steps of warm-up.
void expect_no_allocation(const io::ModelFiles& files, const Case& c, i64 prompt) {
  ServingOptions o;
  o.plan = plan_named(c.plan);
  o.dtype = c.dtype;
  Engine engine(files, make_serving_plan(files, o), {.threads = c.threads});
  void* warm[4];
  backtrace(warm, 4);  // its first call loads a library
  const std::string what = fmt::format("{} plan {} {} x {} threads temperature {}", files.path(), c.plan, c.dtype,
                                       c.threads, c.sampling.temperature);
  engine.run([&](Session& s) {
    kernels::SampleScratch scratch;
    std::vector<i64> tokens(static_cast<size_t>(prompt), 5);
    std::span<const float> logits = s.forward(tokens);
    i64 token = 0;
    auto step = [&] {
      token = kernels::sample(logits, c.sampling, static_cast<u64>(s.position()), scratch);
      s.agree(token, 0);
      logits = s.forward(std::span<const i64>(&token, 1));
    };
    step();
    step();
    s.agree(0, 0);
    if (s.rank() == 0) {
      allocations = 0;
      watching = true;
    }
    s.agree(0, 0);
    for (i64 i = 0; i < 10; i++) step();
    s.agree(0, 0);
    if (s.rank() == 0) watching = false;
    s.agree(0, 0);
  });
  EXPECT_EQ(allocations, 0) << what << first_allocation();
}

TEST(Allocations, none_in_a_decode_step_of_small_models) {
  NEED_OWN_ALLOCATOR();
  io::TempFolder t;
  const kernels::SamplingOptions drawn{.temperature = 0.8f, .top_k = 40, .top_p = 0.9f, .min_p = 0.02f, .seed = 3};
  for (std::string name : {"llama_small.json", "gpt2_small.json"}) {
    RandomModel m(reference(name).at("config"));
    write_hf(m, t / name);
    io::ModelFiles files(t / name);
    for (auto& c : {Case{"1", "f32"}, Case{"2", "f32", 2, drawn}, Case{"3", "bf16"}, Case{"2s", "bf16", 2},
                    Case{"2x2", "f32", 1, drawn}})
      expect_no_allocation(files, c, m.W > 64 ? 120 : 40);
  }
}

TEST(Allocations, none_in_a_decode_step_of_smollm2) {
  NEED_OWN_ALLOCATOR();
  NEED_SMOLLM2(path);
  io::ModelFiles files(path);
  for (auto& c : {Case{"1", "auto", 2}, Case{"2", "bf16"}, Case{"3,1", "auto"}}) expect_no_allocation(files, c, 120);
}

/// The plan's bytes of every rank against those that the run has mapped, all ranks together, and its own report.
void expect_planned_bytes(const io::ModelFiles& files, const std::string& plan, const std::string& dtype, i64 context) {
  ServingOptions o;
  o.plan = plan_named(plan);
  o.dtype = dtype;
  o.context = context;
  const ServingPlan p = make_serving_plan(files, o);
  i64 planned = 0;
  for (auto& m : p.memory) planned += m.total();
  Engine engine(files, p, {.threads = 1});
  const i64 before = mapped;
  i64 during = 0;
  engine.run([&](Session& s) {
    std::vector<i64> tokens(30, 5);
    s.forward(tokens);
    s.forward(std::span<const i64>(tokens).first(1));
    s.agree(0, 0);
    if (s.rank() == 0) during = mapped;
    s.agree(0, 0);
  });
  const double used = static_cast<double>(during - before);
  EXPECT_NEAR(used / static_cast<double>(planned), 1, 0.01)
      << plan << " " << dtype << ": mapped " << during - before << ", planned " << planned;
  EXPECT_EQ(mapped, before) << "given back";
  for (size_t r = 0; r < p.memory.size(); r++) {
    const RankMemory &a = p.memory[r], &b = engine.reports()[r].memory;
    EXPECT_EQ(a.weights(), b.weights());
    EXPECT_EQ(a.kv, b.kv);
    EXPECT_EQ(a.arena, b.arena);
    EXPECT_NEAR(static_cast<double>(b.total()) / static_cast<double>(a.total()), 1, 0.01) << plan << " rank " << r;
  }
}

TEST(Allocations, as_many_bytes_as_planned) {
  NEED_OWN_ALLOCATOR();
  NEED_SMOLLM2(path);
  io::ModelFiles files(path);
  for (std::string plan : {"1", "2", "7", "3,1", "2x2", "2s"}) expect_planned_bytes(files, plan, "auto", 512);
  expect_planned_bytes(files, "3", "bf16", 0);
  expect_planned_bytes(files, "2", "f32", 2048);
}

}  // namespace
}  // namespace plait::serve
