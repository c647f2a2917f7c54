// Ranks as processes: rank 0 stays in the calling process, the others are forked from it over the world's region. The
// mapping is anonymous, so nothing is left in the file system whoever dies.
//
// A rank that returns, throws, exits or is killed is seen at once: a monitor thread of rank 0 polls a pidfd and a pipe
// of each. If rank 0 itself dies, a watcher thread in every other rank sees that, and the rank ends; under supervise()
// it says first what rank 0 was doing. Call run_processes while the process has no other threads that hold locks: what
// they hold stays held in the forked ranks.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "plait/comm/local/run_ranks.h"

namespace plait::comm {

/// f(rank) in a process for every rank of the world, which is started if it is not; what each f returned, by rank. All
/// processes have ended and are reaped at the return. Forked ranks end by _exit: no destructors of the caller's, no
/// flushing of its streams.
///   errors  as run_ranks; Error(rank_lost) "rank 1 (tp=1) was killed by signal 9 (Killed) in decode step 3, after
///           all_reduce 'wo' ..." for a rank that ended without a word. Ranks that do not stop within options.grace_s
///           of a failure are killed; what rank 0 is told then is options.stuck.
std::vector<std::string> run_processes(LocalWorld& world, const std::function<std::string(i64 rank)>& f,
                                       const RunOptions& options = {});

struct Supervised {
  int code = 0;         // the command's exit code; 5 where its process, which is rank 0, was lost
  std::string message;  // then: what happened, for stderr; else empty
};
/// The command in a process of its own, which becomes rank 0 of what it runs; so that its death too is reported. SIGINT
/// is passed on; a command ended by SIGINT or SIGPIPE ends this process the same way.
///   command  returns the exit code; must not throw
Supervised supervise(const std::function<int()>& command);

}  // namespace plait::comm
