#include "plait/comm/local/run_ranks.h"

#include <fmt/ranges.h>
#include <pthread.h>
#include <sched.h>

#include <condition_variable>
#include <exception>
#include <mutex>
#include <numeric>
#include <thread>

namespace plait::comm {

namespace {

void pin(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<size_t>(cpu), &set);
  if (pthread_setaffinity_np(pthread_self(), sizeof set, &set) != 0)
    fail(Code::usage, "[run_ranks] cannot pin a rank to cpu {}", cpu);
}

}  // namespace

std::string text_of(const std::exception_ptr& e) {
  try {
    std::rethrow_exception(e);
  } catch (const std::exception& x) { return x.what(); } catch (...) {
    return "an exception of unknown type";
  }
}

Code code_of(const std::exception_ptr& e) {
  try {
    std::rethrow_exception(e);
  } catch (const Error& x) { return x.code(); } catch (...) {
    return Code::rank_lost;
  }
}

namespace {

// The first failure, with the code of what its rank threw.
Error error_of(const LocalWorld& world, const std::vector<std::exception_ptr>& errors) {
  auto failure = *world.failure();
  std::exception_ptr cause;
  if (failure.rank >= 0) cause = errors[static_cast<size_t>(failure.rank)];
  return Error(cause ? code_of(cause) : Code::rank_lost,
               fmt::format("{}: {}", world.place(failure.rank), cause ? text_of(cause) : failure.text));
}

}  // namespace

void run_ranks(LocalWorld& world, const std::function<void(i64)>& f, const RunOptions& options) {
  world.start();
  const auto n = static_cast<size_t>(world.size());
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::exception_ptr> errors(n);
  std::vector<bool> returned(n);
  size_t left = n;
  bool failed = false;

  auto run = [&](size_t r) {
    auto rank = static_cast<i64>(r);
    std::exception_ptr error;
    try {
      if (!options.cpus.empty()) pin(options.cpus[r % options.cpus.size()]);
      f(rank);
      world.leave(rank);
    } catch (...) {
      error = std::current_exception();
      world.poison(rank, text_of(error));
    }
    std::lock_guard lock(mutex);
    errors[r] = error;
    returned[r] = true;
    left--;
    failed |= static_cast<bool>(error);
    changed.notify_all();
  };
  std::vector<std::thread> threads;
  try {
    for (size_t r = 0; r < n; r++) threads.emplace_back(run, r);
  } catch (const std::exception& e) {
    auto text = fmt::format("no thread for rank {} of {}: {}", threads.size(), n, e.what());
    world.poison(static_cast<i64>(threads.size()), text);
    for (auto& t : threads) t.join();
    throw Error(Code::does_not_fit, text);
  }

  std::vector<size_t> late;
  {
    std::unique_lock lock(mutex);
    auto all = [&] { return left == 0; };
    if (options.limit_s > 0 && !changed.wait_for(lock, std::chrono::duration<double>(options.limit_s), all))
      for (size_t r = 0; r < n; r++)
        if (!returned[r]) late.push_back(r);
    if (options.stuck) {
      changed.wait(lock, [&] { return all() || failed; });
      if (!changed.wait_for(lock, std::chrono::duration<double>(options.grace_s), all))
        options.stuck(error_of(world, errors));
    }
  }
  std::string over = fmt::format("rank {} did not return within {} s", fmt::join(late, ", "), options.limit_s);
  if (!late.empty()) world.poison(static_cast<i64>(late.front()), over);
  for (auto& t : threads) t.join();

  auto failure = world.failure();
  if (!failure) return;
  if (!late.empty() && over.starts_with(failure->text)) throw Error(Code::rank_lost, over);
  throw error_of(world, errors);
}

void run_ranks(i64 n, const std::function<void(Communicator&)>& f, const RunOptions& options) {
  LocalWorld world(n);
  std::vector<i64> ranks(static_cast<size_t>(n));
  std::iota(ranks.begin(), ranks.end(), i64{0});
  i64 group = world.add_group(ranks);
  run_ranks(
      world,
      [&](i64 rank) {
        auto c = world.join(group, rank);
        f(*c);
      },
      options);
}

}  // namespace plait::comm
