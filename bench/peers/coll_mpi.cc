// The peer of bench_comm: all-reduce of f32, in place, over MPI, with the defaults of the library. Rank r runs on
// processor r % processors. Prints one line a size: bytes, median us. Arguments: sizes in bytes.
#include <mpi.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  long processors = std::max(1l, sysconf(_SC_NPROCESSORS_ONLN));
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<size_t>(rank % processors), &set);
  sched_setaffinity(0, sizeof set, &set);
  for (int a = 1; a < argc; a++) {
    long bytes = std::atol(argv[a]);
    int inner = bytes <= 16384 ? 20 : bytes <= 262144 ? 4 : 1, batches = ranks > processors ? 80 : 200;
    std::vector<float> x(static_cast<size_t>(bytes / 4));
    std::vector<double> us;
    auto call = [&] {
      MPI_Allreduce(MPI_IN_PLACE, x.data(), static_cast<int>(bytes / 4), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    };
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < 3 * inner; i++) call();
    for (int b = 0; b < batches; b++) {
      double t = MPI_Wtime();
      for (int i = 0; i < inner; i++) call();
      us.push_back((MPI_Wtime() - t) / inner * 1e6);
    }
    std::sort(us.begin(), us.end());
    if (rank == 0) std::printf("%ld %.4f\n", bytes, us[us.size() / 2]);
  }
  MPI_Finalize();
}
