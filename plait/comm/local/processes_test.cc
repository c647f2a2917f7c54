// Ranks as processes: what they return, how they die, and that nothing of them is left.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "plait/comm/local/run_processes.h"

namespace plait::comm {
namespace {

using testing::AllOf;
using testing::HasSubstr;

double now_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

i64 reduce(Communicator& c, i64 value, const char* what) {
  c.wait(c.start_all_reduce(&value, &value, 1, DType::i64, Join::sum, what));
  return value;
}

i64 shared_files() {
  i64 n = 0;
  for (auto& e : std::filesystem::directory_iterator("/dev/shm")) n += e.exists() ? 1 : 0;
  return n;
}

i64 open_files() {
  i64 n = 0;
  for (auto& e : std::filesystem::directory_iterator("/proc/self/fd")) n += e.is_symlink() ? 1 : 0;
  return n;
}

struct Outcome {
  std::string text;
  Code code = Code::ok;
  double seconds = 0;  // from `begin`, which f may set in any process
};

// f on three processes; `died` lies in memory that they share.
Outcome of_three(const std::function<void(Communicator&, std::atomic<i64>& died_ns)>& f) {
  LocalWorld world(3, {.deadline_s = 5, .names = {"tp=0", "tp=1", "tp=2"}});
  const i64 g = world.add_group({0, 1, 2});
  Region shared(1, {});
  std::atomic<i64>& died_ns = shared.rank(0).step;
  const i64 files = shared_files(), fds = open_files();
  Outcome o;
  try {
    run_processes(world, [&](i64 rank) {
      auto c = world.join(g, rank);
      world.set_phase(rank, "load");
      reduce(*c, 1, "first");
      world.set_phase(rank, "decode", 3);
      f(*c, died_ns);
      return std::string();
    });
  } catch (const Error& e) {
    o.text = e.what();
    o.code = e.code();
  }
  o.seconds = static_cast<double>(now_ns() - died_ns.load()) * 1e-9;
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "a process is left";
  EXPECT_EQ(errno, ECHILD);
  EXPECT_EQ(shared_files(), files);
  EXPECT_EQ(open_files(), fds);
  return o;
}

TEST(Processes, ReturnWhatTheySay) {
  LocalWorld world(4);
  const i64 g = world.add_group({0, 1, 2, 3});
  const pid_t here = getpid();
  auto results = run_processes(world, [&](i64 rank) {
    auto c = world.join(g, rank);
    i64 sum = 0;
    for (i64 i = 0; i < 1000; i++) sum += reduce(*c, rank + i, "sum");
    std::string long_one(static_cast<size_t>(rank) * 100000, 'x');  // more than a pipe holds
    return fmt::format("{} {} {} ", rank, sum, getpid() == here) + long_one;
  });
  ASSERT_EQ(results.size(), 4u);
  for (i64 r = 0; r < 4; r++) {
    auto& s = results[static_cast<size_t>(r)];
    EXPECT_EQ(s.substr(0, s.find('x')), fmt::format("{} {} {} ", r, 6 * 1000 + 4 * 999 * 500, r == 0));
    EXPECT_EQ(std::count(s.begin(), s.end(), 'x'), r * 100000);
  }
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
}

TEST(Processes, OneAloneIsTheCaller) {
  LocalWorld world(1);
  const pid_t here = getpid();
  EXPECT_EQ(run_processes(world, [&](i64) { return std::string(getpid() == here ? "here" : "there"); })[0], "here");
}

TEST(Processes, KilledInACollective) {
  for (int signal : {SIGKILL, SIGSEGV, SIGABRT}) {
    auto o = of_three([&](Communicator& c, std::atomic<i64>& died) {
      if (c.rank() == 2) {
        std::thread([&] {
          std::this_thread::sleep_for(std::chrono::milliseconds(50));
          died = now_ns();
          kill(getpid(), signal);
        }).detach();
        reduce(c, 1, "wo");
      }
      if (c.rank() != 0) reduce(c, 1, "wo");
      std::this_thread::sleep_for(std::chrono::milliseconds(70));
      reduce(c, 1, "wo");
    });
    EXPECT_EQ(o.code, Code::rank_lost);
    EXPECT_THAT(o.text, AllOf(HasSubstr(fmt::format("rank 2 (tp=2) was killed by signal {} (", signal)),
                              HasSubstr("in decode step 3, in all_reduce 'wo' of 1 i64 (sum), operation 2 of group")));
    EXPECT_LT(o.seconds, 0.2);
  }
}

TEST(Processes, KilledOutsideACollective) {
  auto o = of_three([](Communicator& c, std::atomic<i64>& died) {
    if (c.rank() == 1) {
      died = now_ns();
      kill(getpid(), SIGKILL);
    }
    reduce(c, 1, "second");
  });
  EXPECT_EQ(o.code, Code::rank_lost);
  EXPECT_THAT(o.text, AllOf(HasSubstr("rank 1 (tp=1) was killed by signal 9 (Killed) in decode step 3, after"),
                            HasSubstr("all_reduce 'first'")));
  EXPECT_LT(o.seconds, 0.2);
}

TEST(Processes, ExitWithoutAWord) {
  for (int code : {3, 0}) {
    auto o = of_three([&](Communicator& c, std::atomic<i64>& died) {
      if (c.rank() == 1) {
        died = now_ns();
        _exit(code);
      }
      reduce(c, 1, "second");
    });
    EXPECT_EQ(o.code, Code::rank_lost);
    EXPECT_THAT(o.text, HasSubstr(fmt::format("rank 1 (tp=1) ended with exit code {} in decode step 3", code)));
    EXPECT_LT(o.seconds, 0.2);
  }
}

TEST(Processes, ThrowAndHang) {
  for (i64 thrower : {0, 1}) {
    auto o = of_three([&](Communicator& c, std::atomic<i64>& died) {
      if (c.rank() == thrower) {
        died = now_ns();
        fail(Code::bad_file, "the disk is gone");
      }
      if (c.rank() == 2)
        for (;;) pause();  // does not stop by itself
      reduce(c, 1, "second");
    });
    EXPECT_EQ(o.code, Code::bad_file);
    EXPECT_EQ(o.text, fmt::format("rank {0} (tp={0}), decode step 3: the disk is gone", thrower));
    EXPECT_LT(o.seconds, 0.25);
  }
}

TEST(Processes, AStuckCallerIsTold) {
  LocalWorld world(2, {.deadline_s = 5});
  const i64 g = world.add_group({0, 1});
  std::atomic<bool> go_on{false};
  std::string told;
  RunOptions options;
  options.stuck = [&](const Error& e) {
    told = e.what();
    go_on = true;
  };
  EXPECT_THROW(run_processes(
                   world,
                   [&](i64 rank) -> std::string {
                     auto c = world.join(g, rank);
                     if (rank == 1) _exit(7);
                     while (!go_on) std::this_thread::sleep_for(std::chrono::milliseconds(1));
                     return {};
                   },
                   options),
               Error);
  EXPECT_THAT(told, HasSubstr("rank 1 ended with exit code 7 before its first collective"));
}

// Rank 0 of a supervised command dies: the others end and its message comes.
TEST(Processes, TheFirstRankIsKilled) {
  for (const bool killed : {true, false}) {
    const double t = now_s();
    Supervised s = supervise([&] {
      LocalWorld world(3, {.deadline_s = 5});
      const i64 g = world.add_group({0, 1, 2});
      run_processes(world, [&](i64 rank) -> std::string {
        auto c = world.join(g, rank);
        world.set_phase(rank, "prefill");
        reduce(*c, 1, "wo");
        if (rank == 0) killed ? kill(getpid(), SIGKILL) : (_exit(4), 0);
        if (rank == 2)
          for (;;) pause();
        reduce(*c, 1, "second");
        return {};
      });
      return 0;
    });
    EXPECT_LT(now_s() - t, 0.5);
    EXPECT_EQ(s.code, 5);
    EXPECT_THAT(s.message, HasSubstr(killed ? "rank 0 was killed by signal 9 (Killed) in prefill, after all_reduce 'wo'"
                                            : "rank 0 ended with exit code 4 in prefill, after all_reduce 'wo'"));
    EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
  }
  EXPECT_EQ(supervise([] { return 3; }).code, 3);
  EXPECT_EQ(supervise([] { return 3; }).message, "");
}

}  // namespace
}  // namespace plait::comm
