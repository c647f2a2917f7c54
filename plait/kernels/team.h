// A rank's threads: the caller and its helpers, meeting by spin-then-sleep. A kernel splits its rows or panels over the
// team; since no result depends on the split, the number of threads never changes a bit.
#pragma once
#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "plait/base/base.h"
#include "plait/tensor/range.h"

namespace plait::kernels {

class Team {
 public:
  /// `threads` >= 1, the caller (who builds the team) counts as one. cpus: one for each thread to be pinned to, the
  /// caller's first, or empty. Helpers flush denormals; the caller does it for itself.
  ///   errors  usage: fewer threads than one, another number of cpus than of threads, a cpu that is not ours
  explicit Team(i64 threads, std::vector<int> cpus = {});
  ~Team();
  i64 size() const { return size_; }

  /// f(thread, threads) on every thread, the caller included; returns when all are done, and then throws what a thread
  /// threw first. No allocation. Calls do not nest.
  template <class F>
  void run(F&& f) {
    if (size_ == 1) {
      f(i64{0}, i64{1});
      return;
    }
    call_ = [](void* p, i64 thread, i64 threads) { (*static_cast<std::remove_reference_t<F>*>(p))(thread, threads); };
    argument_ = &f;
    release_and_join();
  }

  /// f(Range) over [0, n) in contiguous parts of multiples of `grain`, one a thread.
  template <class F>
  void split(i64 n, i64 grain, F&& f) {
    i64 blocks = ceil_div(n, grain);
    if (size_ == 1 || blocks <= 1) {
      if (n > 0) f(Range{0, n});
      return;
    }
    run([&](i64 thread, i64 threads) {
      Range r{blocks * thread / threads * grain, std::min(n, blocks * (thread + 1) / threads * grain)};
      if (!r.empty()) f(r);
    });
  }

 private:
  void release_and_join();
  void work(i64 thread);
  void call(i64 thread) noexcept;
  void stop_helpers();
  i64 size_;
  void (*call_)(void*, i64, i64) = nullptr;
  void* argument_ = nullptr;
  alignas(64) std::atomic<std::uint32_t> epoch_{0};
  std::atomic<std::uint32_t> sleepers_{0};
  alignas(64) std::atomic<std::uint32_t> pending_{0};
  std::atomic<std::uint32_t> caller_sleeps_{0};
  std::atomic<bool> stop_{false};
  std::mutex error_lock_;
  std::exception_ptr error_;
  std::vector<std::thread> threads_;
};

}  // namespace plait::kernels
