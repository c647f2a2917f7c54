// A generation count releases the helpers, a count of unfinished ones joins them. Both sides spin for some microseconds
// (longer than the gap between two kernels of a decode step) and then sleep on a futex, so that more threads than
// cores, or an idle program, cost nothing. A sleeper announces itself before it looks a last time; the waker changes
// the word before it looks for sleepers (both sequentially consistent): none is missed.
#include "plait/kernels/team.h"

#include <immintrin.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <climits>

#include "plait/kernels/kernel.h"

namespace plait::kernels {

namespace {

using Word = std::atomic<std::uint32_t>;
static_assert(sizeof(Word) == 4);

constexpr auto kSpin = std::chrono::microseconds(30);
constexpr int kPausesPerLook = 32;  // between two looks at the clock

void futex_wait(Word& w, std::uint32_t seen) {
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&w), FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
}

void futex_wake(Word& w) {
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&w), FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

/// Until done(value of w); `sleepers` counts who sleeps on w.
template <class F>
void spin_then_sleep(Word& w, Word& sleepers, F done) {
  auto end = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < kPausesPerLook; i++) {
      if (done(w.load(std::memory_order_acquire))) return;
      _mm_pause();
    }
  } while (std::chrono::steady_clock::now() < end);
  sleepers.fetch_add(1);
  for (std::uint32_t v = w.load(); !done(v); v = w.load()) futex_wait(w, v);
  sleepers.fetch_sub(1);
}

void pin(pthread_t thread, int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  bool valid = cpu >= 0 && cpu < CPU_SETSIZE;
  if (valid) CPU_SET(cpu, &set);
  if (!valid || pthread_setaffinity_np(thread, sizeof set, &set) != 0)
    fail(Code::usage, "[team] got cpu {}, want one that this process may run on", cpu);
}

}  // namespace

Team::Team(i64 threads, std::vector<int> cpus) : size_(threads) {
  if (threads < 1) fail(Code::usage, "[team] got {} threads, want at least 1", threads);
  if (!cpus.empty() && static_cast<i64>(cpus.size()) != threads)
    fail(Code::usage, "[team] got {} cpus for {} threads, want one for each", cpus.size(), threads);
  if (!cpus.empty()) pin(pthread_self(), cpus[0]);
  try {
    for (i64 t = 1; t < threads; t++) {
      threads_.emplace_back([this, t] { work(t); });
      if (!cpus.empty()) pin(threads_.back().native_handle(), cpus[static_cast<size_t>(t)]);
    }
  } catch (...) {
    stop_helpers();
    throw;
  }
}

Team::~Team() { stop_helpers(); }

void Team::stop_helpers() {
  stop_.store(true);
  epoch_.fetch_add(1);
  futex_wake(epoch_);
  for (auto& t : threads_) t.join();
}

void Team::call(i64 thread) noexcept {
  try {
    call_(argument_, thread, size_);
  } catch (...) {
    std::lock_guard lock(error_lock_);
    if (!error_) error_ = std::current_exception();
  }
}

void Team::work(i64 thread) {
  flush_denormals();
  for (std::uint32_t seen = 0;;) {
    spin_then_sleep(epoch_, sleepers_, [&](std::uint32_t v) { return v != seen; });
    seen++;
    if (stop_.load(std::memory_order_acquire)) return;
    call(thread);
    if (pending_.fetch_sub(1) == 1 && caller_sleeps_.load() != 0) futex_wake(pending_);
  }
}

void Team::release_and_join() {
  pending_.store(static_cast<std::uint32_t>(size_ - 1), std::memory_order_relaxed);
  epoch_.fetch_add(1);
  if (sleepers_.load() != 0) futex_wake(epoch_);
  call(0);
  spin_then_sleep(pending_, caller_sleeps_, [](std::uint32_t v) { return v == 0; });
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

}  // namespace plait::kernels
