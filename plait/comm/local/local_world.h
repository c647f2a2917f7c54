// Ranks of one machine. A LocalWorld knows the groups; start() maps the shared memory (region.h); then every rank, a
// thread or a forked process, joins the groups it is a member of.
//
//   LocalWorld w(4, {.deadline_s = 30});
//   i64 all = w.add_group({0, 1, 2, 3}), pair = w.add_group({0, 2});
//   w.start();                                   // before threads or forks
//   auto c = w.join(all, rank);                  // in the rank; one thread a rank uses its communicators
#pragma once
#include "plait/comm/local/region.h"

namespace plait::comm {

struct LocalOptions {
  double deadline_s = 30;          // longest wait for a peer; then the world has failed
  i64 slot_bytes = 256 * 1024;     // payload of a step; a member has kRing slots, untouched pages cost nothing
  i64 mail_bytes = 64 * 1024;      // chunk of a message, kMailRing of them an ordered pair
  double ranks_per_core = 0;       // above 1 waiting gives the core away early; 0: from the processors of this process
  std::vector<std::string> names;  // of the ranks, for messages: "tp=1"; empty: numbers alone
};

class LocalWorld {
 public:
  explicit LocalWorld(i64 world, LocalOptions options = {});

  /// A group of distinct ranks, in any order (the order of the members and so of f32 sums). Equal groups are one.
  ///   slot_bytes  of this group; 0: as the options say
  i64 add_group(std::vector<i64> ranks, i64 slot_bytes = 0);
  /// Maps the region. Groups cannot be added after.
  void start();
  bool started() const { return region_ != nullptr; }

  /// One communicator a member at a time.
  ///   errors  usage: not started, no such group, not a member
  std::unique_ptr<Communicator> join(i64 group, i64 rank) const;

  /// The rank has failed: everybody who waits, and every later call, throws Error(rank_lost) with this text. The first
  /// failure stays.
  void poison(i64 rank, std::string_view text) const;
  /// The rank returns: whoever still waits for it is told so at once.
  void leave(i64 rank) const;
  /// For messages: the rank is now in this phase (up to 16 characters), at this step of it (0: it has none).
  void set_phase(i64 rank, std::string_view phase, i64 step = 0) const;
  /// "rank 1 (tp=1)"
  std::string title(i64 rank) const;
  /// "rank 1 (tp=1), decode step 3"
  std::string place(i64 rank) const;
  /// "in decode step 3, in all_reduce 'wo' of 64 i64 (sum), operation 12 of group {0,1}", from what the rank announced
  std::string doing(i64 rank) const;
  struct Failure {
    i64 rank;
    std::string text;
  };
  std::optional<Failure> failure() const;

  i64 size() const { return world_; }
  const LocalOptions& options() const { return options_; }
  /// Bytes of the mapping (address space; memory is used where it is touched).
  i64 region_bytes() const;
  /// The last operations of a rank, one a line, oldest first.
  std::string last_operations(i64 rank) const;

 private:
  i64 world_;
  LocalOptions options_;
  std::vector<Group> groups_;
  std::shared_ptr<Region> region_;
};

}  // namespace plait::comm
