// The steps of LocalCommunicator's operations: when a step may be published, when it has come, and the order of both.
#include <algorithm>

#include "plait/comm/local/copy.h"
#include "plait/comm/local/local_communicator.h"
#include "plait/comm/local/ticks.h"

namespace plait::comm {

namespace {

// Looks at a note before the clock is read.
constexpr int kNoteSpins = 400, kNoteSpinsCrowded = 64;

}  // namespace

void LocalCommunicator::wait(Request r) {
  if (r.id != head_ || head_ == next_id_)
    fail(Code::usage, "[wait on group {}] got request {}, want {}: operations are waited for in order of start",
         region_->group_name(group_id_), r.id, head_ < next_id_ ? fmt::to_string(head_) : "none");
  Op& op = op_at(head_);
  check_sound(op);
  if (op.is_mail())
    await_mail(op);
  else
    run(op);
  if (op.spare_to != nullptr) std::memcpy(op.spare_to, op.spare.data(), op.spare.size());
  set_state(op, OpRecord::done);
  head_++;
  if (head_ != next_id_) advance();
}

void LocalCommunicator::run(Op& op) {
  while (!op.settled || op.consumed < op.steps) {
    if (op.published == op.consumed) {
      if (!may_publish(op, op.published)) await_slot(op, op.published);
      publish(op);
    }
    const bool next = op.published == op.consumed + 1 && op.published < op.steps, swaps = next && op.stride > 1;
    if (next && !swaps && may_publish(op, op.published)) publish(op);
    await(op, op.consumed);
    bool timed = op.count * op.unit >= kTimedFrom;
    u64 t = timed ? ticks() : 0;
    swaps ? swap_steps(op) : consume(op, op.consumed);
    if (timed) copy_ticks_ += ticks() - t;
    op.consumed++;
    finished_ = op.reached(op.consumed);
    if (swaps) tell_published(op);
  }
  if (op.stride > 1) flush_finished();  // the next one may want the same slot
}

// Publishes what the next operations can publish without waiting.
void LocalCommunicator::advance() {
  for (i64 id = head_; id < next_id_; id++) {
    Op& op = op_at(id);
    if (op.is_mail()) continue;
    if (op.published == 0 && may_publish(op, 0)) publish(op);
    if (op.published < op.steps || !op.settled) return;
  }
}

// After an all_to_all has learned its number of steps the operations behind it get theirs.
void LocalCommunicator::settle(Op& settled) {
  settled.settled = true;
  next_step_ = settled.reached(settled.steps);
  for (i64 id = settled.id + 1; id < next_id_; id++) {
    Op& op = op_at(id);
    if (op.is_mail()) continue;
    op.follow(next_step_);
    auto& rec = region_->announce(world_rank_, op.record);
    if (rec.sequence.load(std::memory_order_relaxed) == op.record)
      rec.first_step.store(op.first, std::memory_order_relaxed);
    next_step_ = op.settled ? op.reached(op.steps) : -1;
    if (!op.settled) return;
  }
}

bool LocalCommunicator::may_publish(const Op& op, i64 step) {
  if (op.first < 0 || (step == 0 ? op.follows : op.number(step)) != published_) return false;
  if (op.two_shot) {
    auto s = two_shot_step(step, op.steps / 2);
    if (s.gather && op.consumed <= scatter_step(s.chunk)) return false;
  }
  return slot_free(op.number(step));
}

bool LocalCommunicator::slot_free(i64 step) {
  if (step < free_until_ || n_ == 1) return true;
  i64 least = std::min(step, finished_);
  for (i64 m = 0; m < n_; m++)
    if (m != me_)
      least = std::min(least, static_cast<i64>(peers_[size_(m)].line->finished.load(std::memory_order_acquire)));
  free_until_ = least + kRing;
  return step < free_until_;
}

void LocalCommunicator::publish(Op& op) {
  const i64 step = op.published, global = op.number(step);
  std::byte* mine = slot(me_, global);
  i64 written = 0;
  if (op.noted) {
    write_note(op, note(me_, global));
  } else if (n_ > 1) {
    bool timed = op.count * op.unit >= kTimedFrom;
    u64 t = timed ? ticks() : 0;
    written = write_step(op, step, mine);
    if (timed) copy_ticks_ += ticks() - t;
  }
  tell_published(op);
  if (op.noted) {
    demote(reinterpret_cast<std::byte*>(&note(me_, global)), static_cast<i64>(sizeof(Note)));
    fetch_for_writing(reinterpret_cast<std::byte*>(&note(me_, global + 1)), static_cast<i64>(sizeof(Note)));
  } else if (written > 0) {
    if (op.in != mine) demote(mine, written);
    if (n_ > 2) fetch_for_writing(slot(me_, global + 1), written);
  }
}

// The next step of the operation lies in this member's slot; also tells what it has read.
void LocalCommunicator::tell_published(Op& op) {
  line_.signature[static_cast<size_t>(op.number(op.published) % kRing)].store(op.signature, std::memory_order_relaxed);
  op.published++;
  published_ = op.reached(op.published);
  finished_told_ = finished_;
  line_.finished.store(static_cast<u64>(finished_), std::memory_order_release);
  line_.started.store(static_cast<u64>(published_), std::memory_order_release);
  if (line_.waiters.load(std::memory_order_relaxed) != 0) wake();
}

void LocalCommunicator::wake() {
  line_.waiters.store(0, std::memory_order_relaxed);
  futex_wake(line_.started);
}

void LocalCommunicator::await(Op& op, i64 step) {
  if (n_ == 1) return;
  const u64 want = static_cast<u64>(op.number(step)) + 1;
  const auto ring = static_cast<size_t>(op.number(step) % kRing);
  bool rooted = op.kind == Kind::broadcast;
  if (rooted && op.root == me_) return;
  if (op.noted) return await_notes(op, rooted);
  i64 least = finished_;
  for (i64 k = 1; k < n_; k++) {
    i64 m = me_ + k < n_ ? me_ + k : me_ + k - n_;
    if (rooted && m != op.root) continue;
    Line& line = *peers_[size_(m)].line;
    if (line.started.load(std::memory_order_acquire) < want) await_step(op, step, m);
    if (line.signature[ring].load(std::memory_order_relaxed) != op.signature) mismatch(op, step, m);
    least = std::min(least, static_cast<i64>(line.finished.load(std::memory_order_acquire)));
  }
  if (!rooted) free_until_ = least + kRing;
}

// The notes say the same as the lines, and arrive with the contributions.
void LocalCommunicator::await_notes(Op& op, bool rooted) {
  const u64 want = static_cast<u64>(op.first) + 1;
  i64 least = finished_;
  for (i64 k = 1; k < n_; k++) {
    i64 m = me_ + k < n_ ? me_ + k : me_ + k - n_;
    if (rooted && m != op.root) continue;
    Note& n = note(m, op.first);
    auto come = [&] { return n.come.load(std::memory_order_acquire) >= want; };
    for (int spins = crowded_ ? kNoteSpinsCrowded : kNoteSpins; spins > 0 && !come(); spins--) {}
    // Who is in an operation of another size leaves no such note; `started` tells.
    if (!come()) await_step(op, 0, m);
    if (!come() || n.signature.load(std::memory_order_relaxed) != op.signature) mismatch(op, 0, m);
    least = std::min(least, static_cast<i64>(n.finished.load(std::memory_order_acquire)));
  }
  if (!rooted) free_until_ = least + kRing;
}

}  // namespace plait::comm
