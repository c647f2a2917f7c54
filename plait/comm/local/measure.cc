#include "plait/comm/local/measure.h"

#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <numeric>

#include "plait/comm/local/run_ranks.h"
#include "plait/tensor/tensor.h"

namespace plait::comm {

namespace {

i64 processors() { return std::max<i64>(1, sysconf(_SC_NPROCESSORS_ONLN)); }

i64 lost_cores() {
  rusage u{};
  getrusage(RUSAGE_THREAD, &u);
  return u.ru_nivcsw;
}

struct Samples {
  std::vector<double> us;
  i64 disturbed = 0;
};

// Batches of `inner` calls, timed by every rank; all agree which batches were disturbed.
template <class Call>
Samples time_batches(Communicator& c, i64 batches, i64 inner, bool filter, Call call) {
  Samples s;
  for (i64 i = 0; i < 3 * inner; i++) call();
  for (i64 b = 0; b < batches; b++) {
    i64 lost = lost_cores(), t = now_ns();
    for (i64 i = 0; i < inner; i++) call();
    t = now_ns() - t;
    i64 disturbed = filter && lost_cores() != lost;
    c.wait(c.start_all_reduce(&disturbed, &disturbed, 1, DType::i64, Join::max, "disturbed"));
    if (disturbed)
      s.disturbed++;
    else
      s.us.push_back(static_cast<double>(t) / static_cast<double>(inner) * 1e-3);
  }
  return s;
}

}  // namespace

double quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(q * static_cast<double>(values.size() - 1))];
}

std::vector<CollectiveTime> measure_collectives(const MeasureOptions& options) {
  LocalWorld world(options.ranks);
  std::vector<i64> members(static_cast<size_t>(options.ranks));
  std::iota(members.begin(), members.end(), i64{0});
  i64 group = world.add_group(members);
  auto cpus = options.cpus;
  if (cpus.empty())
    for (i64 p = 0; p < processors(); p++) cpus.push_back(static_cast<int>(p));
  bool filter = options.ranks <= static_cast<i64>(cpus.size());

  std::vector<CollectiveTime> table;
  auto note = [&](i64 rank, const char* name, i64 bytes, DType t, const Samples& s) {
    if (rank == 0)
      table.push_back({name, options.ranks, bytes, t, quantile(s.us, 0.5), quantile(s.us, 0.9),
                       static_cast<i64>(s.us.size()), s.disturbed});
  };
  run_ranks(world,
            [&](i64 rank) {
              auto c = world.join(group, rank);
              i64 small = filter ? 50 : 10;
              note(rank, "barrier", 0, DType::i64,
                   time_batches(*c, options.batches, small, filter, [&] { c->barrier("bench"); }));
              for (DType t : options.dtypes)
                for (i64 bytes : options.bytes) {
                  Buffer x(bytes), y(bytes);
                  i64 count = bytes / info(t).block_bytes, inner = bytes <= 16384 ? small : bytes <= 262144 ? 4 : 1;
                  note(rank, "all_reduce", bytes, t, time_batches(*c, options.batches, inner, filter, [&] {
                         c->wait(c->start_all_reduce(x.data(), x.data(), count, t, Join::sum, "bench"));
                       }));
                  if (c->staging(bytes) == nullptr) continue;
                  note(rank, "staged all_reduce", bytes, t, time_batches(*c, options.batches, inner, filter, [&] {
                         auto* in = static_cast<std::byte*>(c->staging(bytes));
                         if (in == nullptr)
                           in = x.data();
                         else
                           std::memcpy(in, x.data(), static_cast<size_t>(bytes));  // stands for the kernel's stores
                         c->wait(c->start_all_reduce(in, y.data(), count, t, Join::sum, "bench"));
                       }));
                }
            },
            {.cpus = cpus});
  return table;
}

double measure_ping_pong_ns(int cpu_a, int cpu_b) {
  struct alignas(128) Flag {
    std::atomic<i64> value{0};
  };
  Flag there, back;
  constexpr i64 kRounds = 100, kTrips = 300;
  std::vector<double> ns;
  LocalWorld world(2);
  world.add_group({0, 1});
  run_ranks(world,
            [&](i64 rank) {
              i64 k = 0;
              for (i64 round = 0; round < kRounds; round++) {
                i64 t = now_ns();
                for (i64 trip = 0; trip < kTrips; trip++) {
                  k++;
                  if (rank == 0) there.value.store(k, std::memory_order_release);
                  auto& wait_on = rank == 0 ? back : there;
                  while (wait_on.value.load(std::memory_order_acquire) != k) {}
                  if (rank == 1) back.value.store(k, std::memory_order_release);
                }
                if (rank == 0) ns.push_back(static_cast<double>(now_ns() - t) / static_cast<double>(2 * kTrips));
              }
            },
            {.cpus = {cpu_a, cpu_b}});
  return quantile(ns, 0.5);
}

}  // namespace plait::comm
