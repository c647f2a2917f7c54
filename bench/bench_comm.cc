// All-reduce of the local back end against Open MPI's defaults: the same bytes, the same processors, rounds of both in
// turn, medians of the rounds. The peer is the program peer_coll_mpi beside this one, run by mpirun; without either,
// ours alone is printed.
//
//   bench_comm [rounds]
//
// Bars, 2 ranks, ours / Open MPI: 64 B 0.45 (0.65 where a flag takes 200 ns or more one way), 1 to 16 KB 0.4,
// 64 KB to 1 MB 0.5. Exit status 1 when one is missed.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <vector>

#include "plait/comm/local/measure.h"

namespace {

using plait::i64;
using plait::comm::quantile;

const std::vector<i64> kSizes{64, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20};

std::string size_name(i64 b) {
  return b < 1024        ? fmt::format("{} B", b)
         : b < (1 << 20) ? fmt::format("{} KB", b >> 10)
                         : fmt::format("{} MB", b >> 20);
}

// us by bytes; empty when there is no peer.
std::map<i64, double> run_peer(i64 ranks) {
  auto program = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "peer_coll_mpi";
  if (!std::filesystem::exists(program)) return {};
  std::string command =
      "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_NUM_THREADS=1 timeout 60 mpirun --oversubscribe "
      "--bind-to none -np " +
      fmt::to_string(ranks) + " '" + program.string() + "'";
  for (i64 b : kSizes) command += fmt::format(" {}", b);
  FILE* f = popen((command + " 2>/dev/null").c_str(), "r");
  std::map<i64, double> us;
  long bytes = 0;
  double t = 0;
  while (f != nullptr && std::fscanf(f, "%ld %lf", &bytes, &t) == 2) us[bytes] = t;
  if (f != nullptr) pclose(f);
  return us;
}

std::string load() {
  std::ifstream f("/proc/loadavg");
  std::string s;
  std::getline(f, s);
  return s.substr(0, s.find(' '));
}

double bar(i64 bytes, double ping_pong_ns) {
  if (bytes <= 64) return ping_pong_ns >= 200 ? 0.65 : 0.45;
  return bytes <= 16384 ? 0.4 : 0.5;
}

using Rows = std::map<std::string, std::map<i64, std::vector<double>>>;  // row, bytes, us of each round

Rows rounds_of(i64 ranks, i64 rounds, std::vector<double>& ping_pong) {
  Rows rows;
  for (i64 round = 0; round < rounds; round++) {
    ping_pong.push_back(plait::comm::measure_ping_pong_ns());
    for (auto& t : plait::comm::measure_collectives({.ranks = ranks, .bytes = kSizes, .batches = ranks > 2 ? 80 : 200}))
      rows[fmt::format("{} {}", t.collective, t.collective[0] == 'b' ? "" : plait::name_of(t.dtype))][t.bytes]
          .push_back(t.median_us);
    for (auto [bytes, us] : run_peer(ranks)) rows["Open MPI f32"][bytes].push_back(us);
    ping_pong.push_back(plait::comm::measure_ping_pong_ns());
    fmt::print("  round {}: ping-pong {:.0f} and {:.0f} ns one way, load {}\n", round + 1, ping_pong.end()[-2],
               ping_pong.back(), load());
    std::fflush(stdout);
  }
  return rows;
}

void print_rows(Rows& rows) {
  fmt::print("{:<24}", "us, median of rounds");
  for (i64 b : kSizes) fmt::print("{:>9}", size_name(b));
  fmt::print("\n");
  for (auto& [name, by_bytes] : rows) {
    if (by_bytes.count(0)) {
      fmt::print("{:<24}{:>9.2f}\n", name, quantile(by_bytes[0], 0.5));
      continue;
    }
    fmt::print("{:<24}", name);
    for (i64 b : kSizes) {
      auto at = by_bytes.find(b);
      fmt::print("{:>9}", at == by_bytes.end() ? "-" : fmt::format("{:.2f}", quantile(at->second, 0.5)));
    }
    fmt::print("\n");
  }
}

}  // namespace

int main(int argc, char** argv) {
  const i64 rounds = argc > 1 ? std::max(1, std::atoi(argv[1])) : 3;
  bool missed = false;
  for (i64 ranks : {2, 4}) {
    fmt::print("{} ranks on {} processors, {} rounds\n", ranks, sysconf(_SC_NPROCESSORS_ONLN), rounds);
    std::vector<double> ping_pong;
    auto rows = rounds_of(ranks, rounds, ping_pong);
    double pp = quantile(ping_pong, 0.5);
    print_rows(rows);
    auto& peer = rows["Open MPI f32"];
    if (peer.empty()) {
      fmt::print("no peer: peer_coll_mpi or mpirun is missing\n\n");
      continue;
    }
    fmt::print("{:<24}", "ours / Open MPI, f32");
    std::vector<double> ratios;
    for (i64 b : kSizes) {
      ratios.push_back(quantile(rows["all_reduce f32"][b], 0.5) / quantile(peer[b], 0.5));
      fmt::print("{:>9.2f}", ratios.back());
    }
    if (ranks == 2) {
      fmt::print("\n{:<24}", fmt::format("bar at {:.0f} ns", pp));
      for (size_t i = 0; i < kSizes.size(); i++) {
        bool over = ratios[i] > bar(kSizes[i], pp);
        missed |= over;
        fmt::print("{:>9}", fmt::format("{}{:.2f}", over ? "MISSED " : "", bar(kSizes[i], pp)));
      }
    }
    fmt::print("\n\n");
  }
  return missed ? 1 : 0;
}
