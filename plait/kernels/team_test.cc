#include "plait/kernels/team.h"

#include <gtest/gtest.h>
#include <xmmintrin.h>

#include <chrono>

#include "plait/kernels/kernel.h"

namespace plait::kernels {
namespace {

TEST(Team, RunsEveryThreadOnceAndJoins) {
  for (i64 threads : {1, 2, 3, 7}) {
    Team team(threads);
    std::vector<i64> seen(static_cast<size_t>(threads));
    for (int round = 0; round < 500; round++) team.run([&](i64 t, i64 n) { seen[static_cast<size_t>(t)] += n; });
    for (i64 s : seen) EXPECT_EQ(s, 500 * threads);
  }
}

TEST(Team, SplitCoversEveryElementOnce) {
  Team team(3);
  for (i64 n : {0, 1, 15, 16, 17, 100, 1000}) {
    std::vector<int> hits(static_cast<size_t>(n));
    team.split(n, 16, [&](Range r) {
      EXPECT_EQ(r.begin % 16, 0);
      for (i64 i = r.begin; i < r.end; i++) hits[static_cast<size_t>(i)]++;
    });
    for (int h : hits) EXPECT_EQ(h, 1);
  }
}

TEST(Team, SleepersWake) {
  Team team(4);
  std::atomic<int> calls{0};
  for (int i = 0; i < 5; i++) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // longer than anybody spins
    team.run([&](i64 t, i64) {
      if (t == 3) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      calls++;
    });
  }
  EXPECT_EQ(calls, 20);
}

TEST(Team, ThrowsWhatAThreadThrew) {
  Team team(3);
  EXPECT_THROW(team.run([](i64 t, i64) {
    if (t == 2) fail(Code::usage, "thread {}", t);
  }),
               Error);
  int calls = 0;
  team.run([&](i64 t, i64) {
    if (t == 0) calls++;
  });
  EXPECT_EQ(calls, 1);
}

TEST(Team, HelpersFlushDenormals) {
  Team team(2);
  unsigned csr = 0;
  team.run([&](i64 t, i64) {
    if (t == 1) csr = _mm_getcsr();
  });
  EXPECT_EQ(csr & 0x8040u, 0x8040u);
}

TEST(Team, RefusesWrongArguments) {
  EXPECT_THROW(Team(0), Error);
  EXPECT_THROW(Team(2, {0}), Error);
  EXPECT_THROW(Team(2, {0, 100000}), Error);
  cpu_set_t before;
  sched_getaffinity(0, sizeof before, &before);
  { Team pinned(1, {0}); }
  sched_setaffinity(0, sizeof before, &before);
}

}  // namespace
}  // namespace plait::kernels
