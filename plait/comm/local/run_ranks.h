// Ranks as threads of this process.
#pragma once
#include <exception>
#include <functional>

#include "plait/comm/local/local_world.h"

namespace plait::comm {

struct RunOptions {
  double limit_s = 0;     // of the whole run; 0: none. A rank that is over it is told at its next call of a collective
  std::vector<int> cpus;  // rank r is pinned to cpus[r % size]; empty: not pinned
  /// Called with the error when, grace_s after a failure, a rank still has not come back; it ends the process. Null:
  /// the rank is waited for.
  std::function<void(const Error&)> stuck;
  double grace_s = 0.1;
};

/// f(rank) on a thread for every rank of the world, which is started if it is not; returns when all have returned.
///   errors  an exception of a rank fails the world, so that the others stop at their waits; thrown is the first one,
///           with its code and the rank's name ("rank 2: ..."); Error(rank_lost) naming the ranks that were over the
///           limit. A rank that neither returns nor calls a collective is waited for.
void run_ranks(LocalWorld& world, const std::function<void(i64 rank)>& f, const RunOptions& options = {});

/// The same over one group of `n` ranks in a world of its own.
void run_ranks(i64 n, const std::function<void(Communicator&)>& f, const RunOptions& options = {.limit_s = 60});

/// What an exception says, and the code of an Error (rank_lost for others).
std::string text_of(const std::exception_ptr& e);
Code code_of(const std::exception_ptr& e);

}  // namespace plait::comm
