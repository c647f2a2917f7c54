// Waiting of LocalCommunicator: spin, then give the core away, then sleep; and what to say when it was in vain.
//
// With a core for each rank, a rank spins for kSpinNs; sleeping costs tens of microseconds at waking. With more ranks
// than cores it yields almost at once: a spinning rank would hold the core of the one it waits for until the end of
// its time slice (a barrier then takes milliseconds).
// A publisher looks at `waiters` after its store without a fence, so it may miss a rank that is just falling asleep;
// the first sleep is therefore short, and every sleep is bounded.
#include <sched.h>

#include <algorithm>

#include "plait/comm/local/local_communicator.h"
#include "plait/comm/local/ticks.h"

namespace plait::comm {

namespace {
constexpr i64 kSpins = 400, kSpinsCrowded = 64;  // looks before the clock is read
constexpr i64 kSpinNs = 50'000, kYieldNs = 1'000'000, kYieldCrowdedNs = 500'000;
constexpr i64 kAnnounceNs = 10'000'000, kFirstSleepNs = 100'000, kLongestSleepNs = 2'000'000;
}  // namespace

template <class Ready>
void LocalCommunicator::block(std::atomic<u64>& word, std::atomic<std::uint32_t>& waiters, i64 member, const Op& op,
                              Ready ready) {
  u64 t = ticks();
  for (i64 k = crowded_ ? kSpinsCrowded : kSpins; k > 0; k--)
    if (ready()) {
      wait_ticks_ += ticks() - t;
      return;
    }
  flush_finished();
  set_state(op, OpRecord::waiting);
  const i64 begun = now_ns();
  for (i64 waited = 0;; waited = now_ns() - begun) {
    check_sound(op);
    if (mails_ > 0 && progress_mail()) continue;
    if (ready()) break;
    check_present(op, member, ready);
    if (waited > deadline_ns_) give_up(op, missing(op, waited));
    if (!crowded_ && waited < kSpinNs) {
      for (int k = 0; k < 64 && !ready(); k++) relax();
    } else if (waited < (crowded_ ? kYieldCrowdedNs : kYieldNs)) {
      sched_yield();
    } else {
      u64 seen = word.load(std::memory_order_acquire);
      waiters.store(1, std::memory_order_seq_cst);
      if (ready()) break;
      i64 longest = mails_ > 0 ? kFirstSleepNs : kLongestSleepNs;
      futex_wait(word, seen, std::min(longest, std::min(deadline_ns_, std::max(kFirstSleepNs, waited / 16))));
    }
  }
  wait_ticks_ += ticks() - t;
}

void LocalCommunicator::await_step(const Op& op, i64 step, i64 member) {
  Line& line = *peers_[size_(member)].line;
  const u64 want = static_cast<u64>(op.number(step)) + 1;
  block(line.started, line.waiters, member, op, [&] { return line.started.load(std::memory_order_acquire) >= want; });
}

void LocalCommunicator::await_slot(const Op& op, i64 step) {
  const u64 want = static_cast<u64>(std::max<i64>(0, op.number(step) + 1 - kRing));
  for (i64 m = 0; m < n_; m++) {
    if (m == me_) continue;
    Line& line = *peers_[size_(m)].line;
    block(line.started, line.waiters, m, op, [&] { return line.finished.load(std::memory_order_acquire) >= want; });
  }
  PLAIT_CHECK(may_publish(op, step), "{}: step {} of {}, {} published", place(op), step, op.steps, published_);
}

void LocalCommunicator::await_mail(Op& op) {
  progress_mail();
  while (!op.mail.finished()) {
    auto& end = mail_.peer_end(op.mail);
    u64 seen = end.count.load(std::memory_order_acquire);
    progress_mail();
    if (op.mail.finished()) break;
    block(end.count, end.waiters, op.root, op,
          [&] { return op.mail.finished() || end.count.load(std::memory_order_acquire) != seen; });
    progress_mail();
  }
  mails_--;
}

// Moves what the started messages can move: of each direction and peer the oldest unfinished one.
bool LocalCommunicator::progress_mail() {
  bool some = false;
  for (i64 id = head_; id < next_id_; id++) {
    Op& op = op_at(id);
    if (!op.is_mail() || op.mail.finished()) continue;
    bool oldest = true;
    for (i64 e = head_; e < id && oldest; e++) {
      Op& earlier = op_at(e);
      oldest = earlier.kind != op.kind || earlier.root != op.root || earlier.mail.finished();
    }
    if (!oldest) continue;
    auto moved = mail_.advance(op.mail);
    if (moved == Mail::Moved::wrong_size)
      give_up(op, fmt::format("rank {} wants {} bytes, rank {} sends {}", world_rank_, op.mail.bytes,
                              peers_[size_(op.root)].world_rank, mail_.offered_bytes(op.mail)));
    some |= moved == Mail::Moved::some;
  }
  return some;
}

void LocalCommunicator::flush_finished() {
  if (finished_told_ == finished_) return;
  finished_told_ = finished_;
  line_.finished.store(static_cast<u64>(finished_), std::memory_order_release);
  if (line_.waiters.load(std::memory_order_relaxed) != 0) wake();
}

void LocalCommunicator::check_sound(const Op& op) {
  if (!region_->failed()) return;
  auto f = region_->failure();
  throw Error(Code::rank_lost, fmt::format("{} rank {} was lost: {}", place(op), f->first, f->second));
}

template <class Ready>
void LocalCommunicator::check_present(const Op& op, i64 member, Ready ready) {
  auto& peer = peers_[size_(member)];
  if (region_->rank(peer.world_rank).presence.load(std::memory_order_acquire) != RankState::left || ready()) return;
  give_up(op, fmt::format("rank {} waits for rank {}, which has returned; {}", world_rank_, peer.world_rank,
                          doing(member)));
}

void LocalCommunicator::give_up(const Op& op, const std::string& text) {
  std::string full = fmt::format("{} {}", place(op), text);
  region_->poison(world_rank_, full);
  throw Error(Code::rank_lost, full);
}

// --- texts ---

// The operation this rank is in: "[all_reduce 'x' of 3 i64 (sum), operation 5 of group {0,1}]".
std::string LocalCommunicator::place(const Op& op) const {
  for (auto& o : region_->last_operations(world_rank_))
    if (o.sequence == op.record)
      return fmt::format("[{}, operation {} of group {}]", to_string(o), o.index, region_->group_name(group_id_));
  return fmt::format("[{}, operation {} of group {}]", name_of(op.kind), op.sequence, region_->group_name(group_id_));
}

// What a member did last, on this group and elsewhere.
std::string LocalCommunicator::doing(i64 member) const {
  i64 r = peers_[size_(member)].world_rank;
  constexpr const char* kStates[] = {"started", "waits in", "has finished"};
  auto ops = region_->last_operations(r);
  auto presence = region_->rank(r).presence.load();
  const std::string phase = region_->phase(r), in = phase.empty() ? "" : ", in " + phase;
  if (presence == RankState::absent) return fmt::format("{} has not joined{}", region_->title(r), in);
  if (ops.empty()) return fmt::format("{} has started nothing{}", region_->title(r), in);
  auto say = [&](const OpInfo& o) {
    return fmt::format("{} {}, operation {} of group {}", kStates[o.state], to_string(o), o.index,
                       region_->group_name(o.group));
  };
  std::string s = fmt::format("{} {}", region_->title(r), say(ops.back()));
  if (ops.back().group != group_id_)
    for (auto o = ops.rbegin(); o != ops.rend(); ++o)
      if (o->group == group_id_) {
        s += fmt::format(", and on this group {}", say(*o));
        break;
      }
  return s + in;
}

// Who did not come, and what everybody does.
std::string LocalCommunicator::missing(const Op& op, i64 waited_ns) const {
  std::vector<std::string> late, all;
  const i64 want = op.number(op.consumed);
  for (i64 m = 0; m < n_; m++) {
    if (m == me_ || (op.is_mail() && m != op.root)) continue;
    if (op.is_mail() || static_cast<i64>(peers_[size_(m)].line->started.load()) <= want ||
        (op.published == op.consumed && static_cast<i64>(peers_[size_(m)].line->finished.load()) < want + 1 - kRing))
      late.push_back(fmt::to_string(peers_[size_(m)].world_rank));
    all.push_back(doing(m));
  }
  return fmt::format("rank {} waited {:.2f} s, rank {} did not come; {}", world_rank_,
                     static_cast<double>(waited_ns) * 1e-9, fmt::join(late, ", "), fmt::join(all, "; "));
}

// Different calls where the same was wanted. A peer announces its operation right after it has published a step of it.
void LocalCommunicator::mismatch(const Op& op, i64 step, i64 member) {
  const i64 global = op.number(step), r = peers_[size_(member)].world_rank;
  std::string theirs;
  for (i64 until = now_ns() + kAnnounceNs; theirs.empty() && now_ns() < until; sched_yield())
    for (auto& o : region_->last_operations(r))
      if (o.group == group_id_ && o.kind != Kind::send && o.kind != Kind::recv && o.first_step >= 0 &&
          o.first_step <= global && (global < o.first_step + o.steps || o.kind == Kind::all_to_all))
        theirs = fmt::format("in {}", to_string(o));
  if (theirs.empty()) theirs = "in another operation";
  std::string mine = name_of(op.kind);
  for (auto& o : region_->last_operations(world_rank_))
    if (o.sequence == op.record) mine = to_string(o);
  give_up(op, fmt::format("operations do not match: {} is in {}, {} is {}", region_->title(world_rank_), mine,
                          region_->title(r), theirs) +
                  (op.kind == Kind::all_to_all ? fmt::format(" (rank {} wants {} elements of rank {})", world_rank_,
                                                             op.receives[size_(member)] * info(op.dtype).block, r)
                                               : ""));
}

}  // namespace plait::comm
