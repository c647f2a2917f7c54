// Random mixed operations on overlapping groups with random delays; more ranks than cores; memory; counters.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <numeric>
#include <thread>

#include "plait/base/random.h"
#include "plait/comm/local/run_ranks.h"

namespace plait::comm {
namespace {

double now_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

i64 below(u64 seed, u64 k, i64 n) { return static_cast<i64>(random_bits(seed, k) % static_cast<u64>(n)); }

void delay(u64 seed, u64 k) {
  i64 d = below(seed, k, 40);
  if (d == 0) std::this_thread::sleep_for(std::chrono::microseconds(below(seed, k + 1, 3000)));
  if (d < 4) std::this_thread::yield();
  double until = now_s() + static_cast<double>(d < 10 ? below(seed, k + 2, 50) : 0) * 1e-6;
  while (now_s() < until) {}
}

// Element i of rank r's contribution to operation k.
i64 element(i64 k, i64 r, i64 i) { return static_cast<i64>(mix64(static_cast<u64>(k * 1000003 + r * 7919 + i))); }

struct Running {
  Request request;
  std::vector<i64> out, want;
};

// One random operation, the same on every member because it is a function of (seed, k). `ranks`: members.
Running start_random(Communicator& c, u64 seed, i64 k, std::vector<std::vector<i64>>& keep) {
  const i64 n = c.size(), me = c.rank();
  const i64 sizes[] = {0, 1, 7, 64, 576, 3000, 9000};
  u64 s = mix64(seed + static_cast<u64>(k));
  i64 kind = below(s, 0, 5), count = sizes[below(s, 1, 7)];
  std::vector<i64> counts;
  for (i64 r = 0; r < n; r++) counts.push_back(below(s, static_cast<u64>(10 + r), count / n + 1));
  Running run;
  auto sum = [&](i64 i) {
    u64 t = 0;
    for (i64 r = 0; r < n; r++) t += static_cast<u64>(element(k, r, i));
    return static_cast<i64>(t);
  };
  keep.emplace_back();
  auto& in = keep.back();
  if (kind == 0) {
    for (i64 i = 0; i < count; i++) in.push_back(element(k, me, i));
    for (i64 i = 0; i < count; i++) run.want.push_back(sum(i));
    run.out.resize(run.want.size());
    run.request = c.start_all_reduce(in.data(), run.out.data(), count, DType::i64, Join::sum, "all_reduce");
  } else if (kind == 1) {
    i64 all = std::accumulate(counts.begin(), counts.end(), i64{0});
    i64 at = std::accumulate(counts.begin(), counts.begin() + me, i64{0});
    for (i64 i = 0; i < all; i++) in.push_back(element(k, me, i));
    for (i64 i = 0; i < counts[static_cast<size_t>(me)]; i++) run.want.push_back(sum(at + i));
    run.out.resize(run.want.size());
    run.request = c.start_reduce_scatter(in.data(), run.out.data(), counts, DType::i64, Join::sum, "scatter");
  } else if (kind == 2) {
    for (i64 i = 0; i < counts[static_cast<size_t>(me)]; i++) in.push_back(element(k, me, i));
    for (i64 r = 0; r < n; r++)
      for (i64 i = 0; i < counts[static_cast<size_t>(r)]; i++) run.want.push_back(element(k, r, i));
    run.out.resize(run.want.size());
    run.request = c.start_all_gather(in.data(), run.out.data(), counts, DType::i64, "gather");
  } else if (kind == 3) {
    auto amount = [&](i64 from, i64 to) { return below(s, static_cast<u64>(100 + from * n + to), count + 1); };
    std::vector<i64> sends, receives;
    for (i64 r = 0; r < n; r++) {
      sends.push_back(amount(me, r));
      receives.push_back(amount(r, me));
      for (i64 i = 0; i < sends.back(); i++) in.push_back(element(k, me * n + r, i));
      for (i64 i = 0; i < receives.back(); i++) run.want.push_back(element(k, r * n + me, i));
    }
    run.out.resize(run.want.size());
    run.request = c.start_all_to_all(in.data(), sends, run.out.data(), receives, DType::i64, "exchange");
  } else {
    i64 root = below(s, 2, n);
    for (i64 i = 0; i < count; i++) run.want.push_back(element(k, root, i));
    run.out = me == root ? run.want : std::vector<i64>(run.want.size());
    run.request = c.start_broadcast(run.out.data(), count, DType::i64, root, "broadcast");
  }
  return run;
}

// Rounds of: some operations started on the rank's groups, a ring of messages among them, all waited for in order.
void mixed(LocalWorld& world, const std::vector<i64>& groups, i64 rank, u64 seed, double seconds, i64 rounds) {
  std::vector<std::unique_ptr<Communicator>> mine;
  std::vector<i64> ids;
  for (i64 g : groups) try {
      mine.push_back(world.join(g, rank));
      ids.push_back(g);
    } catch (const Error&) {
      continue;  // not a member
    }
  double end = now_s() + seconds;
  for (i64 k = 0; k < rounds; k++) {
    // Rank 0 decides whether there is another round.
    i64 more = now_s() < end;
    mine[0]->wait(mine[0]->start_broadcast(&more, 1, DType::i64, 0, "more"));
    if (!more) return;
    std::vector<std::vector<i64>> keep;
    keep.reserve(100);
    for (size_t g = 0; g < mine.size(); g++) {
      auto& c = *mine[g];
      u64 s = seed * 1000 + static_cast<u64>(ids[g]);
      std::vector<Running> running;
      running.reserve(8);
      i64 flight = 1 + below(s, static_cast<u64>(5 * k), 4);
      for (i64 f = 0; f < flight; f++) {
        running.push_back(start_random(c, s, 8 * k + f, keep));
        delay(seed + static_cast<u64>(rank), static_cast<u64>(8 * k + f));
      }
      if (k % 3 == 0 && c.size() > 1) {
        i64 n = c.size(), count = below(s, static_cast<u64>(5 * k + 1), 4000);
        i64 to = (c.rank() + 1) % n, from = (c.rank() + n - 1) % n;
        Running send, receive;
        for (i64 i = 0; i < count; i++) {
          send.out.push_back(element(k, c.rank(), i));
          receive.want.push_back(element(k, from, i));
        }
        send.want = send.out;
        receive.out.resize(receive.want.size());
        running.push_back(std::move(send));
        running.back().request = c.start_send(running.back().out.data(), 8 * count, to, "ring");
        running.push_back(std::move(receive));
        running.back().request = c.start_recv(running.back().out.data(), 8 * count, from, "ring");
      }
      for (auto& r : running) {
        delay(seed + static_cast<u64>(rank) + 50, static_cast<u64>(9 * k));
        c.wait(r.request);
        if (r.out != r.want) fail(Code::differs, "seed {}, round {}, group {}, rank {}", seed, k, ids[g], rank);
      }
    }
  }
}

u64 seed_of_run() {
  const char* s = std::getenv("PLAIT_TEST_SEED");
  return s != nullptr ? std::strtoull(s, nullptr, 10) : 20250801;
}

double seconds_of_run() {
  const char* s = std::getenv("PLAIT_TEST_SECONDS");
  return s != nullptr ? std::atof(s) : 1.0;
}

// A 2 x 3 mesh: all ranks, its two axes, and every pair along them; slots smaller than most payloads.
TEST(Stress, MixedOperationsOnAMesh) {
  u64 seed = seed_of_run();
  SCOPED_TRACE(fmt::format("PLAIT_TEST_SEED={}", seed));
  for (i64 slot : {1024, 16384, 1 << 20}) {
    LocalWorld world(6, {.deadline_s = 30, .slot_bytes = slot, .mail_bytes = 512});
    std::vector<i64> groups{world.add_group({0, 1, 2, 3, 4, 5}),
                            world.add_group({0, 1, 2}),
                            world.add_group({3, 4, 5}),
                            world.add_group({0, 3}),
                            world.add_group({4, 1}),
                            world.add_group({2, 5})};
    run_ranks(world,
              [&](i64 r) { mixed(world, groups, r, seed + static_cast<u64>(slot), seconds_of_run() / 3, 1 << 20); });
  }
}

TEST(Stress, TwoRanksApart) {
  LocalWorld world(2, {.deadline_s = 30, .slot_bytes = 4096});
  i64 g = world.add_group({0, 1});
  run_ranks(world, [&](i64 r) { mixed(world, {g}, r, seed_of_run() + 5, seconds_of_run() / 2, 1 << 20); },
            {.cpus = {0, 1}});
}

// Of all threads: what others run beside does not count.
double processor_s() {
  rusage u{};
  getrusage(RUSAGE_SELF, &u);
  return static_cast<double>(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
         static_cast<double>(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

// 7 ranks on 2 cores: a rank that only spun would hold the core of the one it waits for, for milliseconds a step.
TEST(Stress, MoreRanksThanCores) {
  LocalWorld world(7);
  i64 g = world.add_group({0, 1, 2, 3, 4, 5, 6});
  const i64 kOperations = 2000;
  const double t = processor_s();
  run_ranks(world,
            [&](i64 r) {
              auto c = world.join(g, r);
              std::vector<i64> x(576);
              for (i64 k = 0; k < kOperations; k++) {
                for (auto& v : x) v = r + k;
                c->wait(c->start_all_reduce(x.data(), x.data(), 576, DType::i64, Join::sum, "crowd"));
                if (x[0] != 21 + 7 * k || x[575] != x[0]) fail(Code::differs, "operation {}", k);
              }
            },
            {.limit_s = 60, .cpus = {0, 1}});
  const double each_us = (processor_s() - t) / static_cast<double>(kOperations) * 1e6;
  RecordProperty("processor_us_an_operation", static_cast<int>(each_us));
  EXPECT_LT(each_us, 1000);
}

i64 shared_resident_bytes() {
  std::ifstream f("/proc/self/statm");
  i64 total = 0, resident = 0, shared = 0;
  f >> total >> resident >> shared;
  return shared * 4096;
}

// Memory is what is touched: small operations on a large group use little of its slots.
TEST(Stress, MemoryOfTheRegion) {
  LocalWorld world(16, {.slot_bytes = 1 << 20});
  std::vector<i64> ranks(16);
  std::iota(ranks.begin(), ranks.end(), i64{0});
  i64 all = world.add_group(ranks), pair = world.add_group({3, 9}, 4096);
  world.start();
  EXPECT_GT(world.region_bytes(), 16 * kRing * (i64{1} << 20));
  EXPECT_LT(world.region_bytes(), 16 * kRing * (i64{1} << 20) + 16 * 16 * (i64{160} << 10));
  EXPECT_GT(world.join(all, 0)->buffer_bytes(), kRing * (i64{1} << 20));
  EXPECT_LT(world.join(pair, 3)->buffer_bytes(), 80 << 10);
  i64 before = shared_resident_bytes();
  run_ranks(world, [&](i64 r) {
    auto c = world.join(all, r);
    float x[64] = {};
    for (int k = 0; k < 10; k++) c->wait(c->start_all_reduce(x, x, 64, DType::f32, Join::sum, "small"));
  });
  EXPECT_LT(shared_resident_bytes() - before, 4 << 20);
}

TEST(Stress, Counters) {
  run_ranks(2, [](Communicator& c) {
    std::vector<float> x(100000);
    c.barrier("begin");
    c.reset_counters();
    if (c.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(30));
    c.wait(c.start_all_reduce(x.data(), x.data(), 100000, DType::f32, Join::sum, "x"));
    c.wait(c.start_all_reduce(x.data(), x.data(), 25, DType::f32, Join::sum, "x"));
    auto k = c.counters();
    if (k.operations != 2 || k.bytes != 400100) fail(Code::differs, "{} operations, {} bytes", k.operations, k.bytes);
    if (c.rank() == 0 && (k.wait_s < 0.02 || k.wait_s > 1)) fail(Code::differs, "waited {} s", k.wait_s);
    if (!(k.copy_s > 1e-6 && k.copy_s < 0.5)) fail(Code::differs, "copied {} s", k.copy_s);
  });
}

}  // namespace
}  // namespace plait::comm
