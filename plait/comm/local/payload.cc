// What the steps of LocalCommunicator's operations carry: what a member writes into its slot or note, and what it makes
// of the others'.
#include <algorithm>

#include "plait/comm/local/copy.h"
#include "plait/comm/local/local_communicator.h"

namespace plait::comm {

namespace {

void read_note(std::byte* to, const Note& note, i64 bytes) {
  if (bytes > 0) std::memcpy(to, note.head, static_cast<size_t>(std::min(bytes, kNoteHead)));
  if (bytes > kNoteHead) std::memcpy(to + kNoteHead, note.rest, static_cast<size_t>(bytes - kNoteHead));
}

}  // namespace

LocalCommunicator::Slice LocalCommunicator::slice_of(const Op& op, Slice chunk, i64 member) const {
  i64 wide = lanes(op.unit), blocks = ceil_div(chunk.size(), wide);
  return {std::min(chunk.end, chunk.begin + blocks * member / n_ * wide),
          std::min(chunk.end, chunk.begin + blocks * (member + 1) / n_ * wide)};
}

// What this member has to say in an operation of a few bytes.
void LocalCommunicator::write_note(Op& op, Note& note) {
  i64 bytes = op.count * op.unit;
  if (op.kind == Kind::all_gather) bytes = op.counts[size_(me_)] * op.unit;
  if (op.kind == Kind::broadcast && me_ != op.root) bytes = 0;
  // The rest first: who sees `come` has the line beside it fetched in the same go.
  if (bytes > kNoteHead) std::memcpy(note.rest, op.in + kNoteHead, static_cast<size_t>(bytes - kNoteHead));
  if (bytes > 0) std::memcpy(note.head, op.in, static_cast<size_t>(std::min(bytes, kNoteHead)));
  note.signature.store(op.signature, std::memory_order_relaxed);
  note.finished.store(static_cast<u64>(finished_), std::memory_order_release);
  note.come.store(static_cast<u64>(published_) + 1, std::memory_order_release);
}

// Writes this member's part of a step; returns the bytes of the slot that are in use.
i64 LocalCommunicator::write_step(Op& op, i64 step, std::byte* slot) {
  const i64 u = op.unit;
  switch (op.kind) {
    case Kind::all_reduce: {
      auto part = op.two_shot ? two_shot_step(step, op.steps / 2) : TwoShotStep{false, step};
      Slice c = chunk_of(op.chunk, part.chunk, op.count);
      if (!op.two_shot) {
        copy_bytes(slot, op.in + c.begin * u, c.size() * u);
        return c.size() * u;
      }
      Slice mine = slice_of(op, c, me_);
      i64 before = mine.begin - c.begin;
      if (part.gather) {
        copy_bytes(slot + before * u, op.out + mine.begin * u, mine.size() * u);
        return mine.size() * u;
      }
      if (op.in + c.begin * u == slot) return c.size() * u;
      copy_bytes(slot, op.in + c.begin * u, before * u);
      copy_bytes(slot + (mine.end - c.begin) * u, op.in + mine.end * u, (c.end - mine.end) * u);
      return c.size() * u;
    }
    case Kind::all_to_all:
    case Kind::reduce_scatter:
      return write_parts(op, step, slot);
    case Kind::all_gather: {
      Slice c = chunk_of(op.chunk, step, op.counts[size_(me_)]);
      copy_bytes(slot, op.in + c.begin * u, c.size() * u);
      return c.size() * u;
    }
    case Kind::broadcast: {
      if (me_ != op.root) return 0;
      Slice c = chunk_of(op.chunk, step, op.count);
      copy_bytes(slot, op.in + c.begin * u, c.size() * u);
      return c.size() * u;
    }
    default:
      return 0;
  }
}

// reduce_scatter, all_to_all: what goes to each member, and for the latter how much.
i64 LocalCommunicator::write_parts(Op& op, i64 step, std::byte* slot) {
  const i64 u = op.unit;
  if (op.kind == Kind::all_to_all && step == 0) {
    auto* trailer = reinterpret_cast<i64*>(slot + slot_bytes_);
    trailer[0] = op.raw ? 0 : op.own_steps;
    std::copy(op.counts.begin(), op.counts.end(), trailer + 1);
  }
  if (op.raw) {
    if (step > 0) return 0;
    i64 mine = op.at[size_(me_)], end = mine + op.counts[size_(me_)], all = op.at.back() + op.counts.back();
    if (op.in != slot) {
      copy_bytes(slot, op.in, mine * u);
      copy_bytes(slot + end * u, op.in + end * u, (all - end) * u);
    }
    return all * u;
  }
  for (i64 m = 0; m < n_; m++) {
    if (m == me_) continue;
    Slice c = chunk_of(op.chunk, step, op.counts[size_(m)]);
    copy_bytes(slot + m * op.chunk * u, op.in + (op.at[size_(m)] + c.begin) * u, c.size() * u);
  }
  return op.chunk * n_ * u;
}

void LocalCommunicator::consume_note(Op& op) {
  const i64 u = op.unit;
  switch (op.kind) {
    case Kind::all_reduce: {
      const i64 head = std::min(op.count * u, kNoteHead), rest = op.count * u - head;
      for (i64 m = 0; m < n_; m++) parts_[size_(m)] = m == me_ ? op.in : note(m, op.first).head;
      if (head > 0) join_(op.out, parts_, head / u, op.dtype, op.join);
      for (i64 m = 0; m < n_; m++) parts_[size_(m)] = m == me_ ? op.in + head : note(m, op.first).rest;
      if (rest > 0) join_(op.out + head, parts_, rest / u, op.dtype, op.join);
      return;
    }
    case Kind::all_gather:
      for (i64 m = 0; m < n_; m++) {
        std::byte* to = op.out + op.at[size_(m)] * u;
        i64 bytes = op.counts[size_(m)] * u;
        if (m != me_)
          read_note(to, note(m, op.first), bytes);
        else if (to != op.in)
          copy_out(to, op.in, bytes);
      }
      return;
    case Kind::broadcast:
      if (me_ != op.root) read_note(op.out, note(op.root, op.first), op.count * u);
      return;
    default:
      return;
  }
}

void LocalCommunicator::consume(Op& op, i64 step) {
  if (op.noted) return consume_note(op);
  const i64 u = op.unit, global = op.number(step);
  switch (op.kind) {
    case Kind::all_reduce: {
      auto part = op.two_shot ? two_shot_step(step, op.steps / 2) : TwoShotStep{false, step};
      Slice c = chunk_of(op.chunk, part.chunk, op.count);
      if (!part.gather) {
        Slice mine = op.two_shot ? slice_of(op, c, me_) : c;
        join_step(op, global, op.out + mine.begin * u, op.in + mine.begin * u, (mine.begin - c.begin) * u, mine.size());
        return;
      }
      for (i64 m = 0; m < n_; m++) {
        if (m == me_) continue;
        Slice s = slice_of(op, c, m);
        copy_out(op.out + s.begin * u, slot(m, global) + (s.begin - c.begin) * u, s.size() * u);
      }
      return;
    }
    case Kind::reduce_scatter: {
      i64 at = op.at[size_(me_)], count = op.counts[size_(me_)];
      Slice c = op.raw ? Slice{0, count} : chunk_of(op.chunk, step, count);
      join_step(op, global, op.out + c.begin * u, op.in + (at + c.begin) * u, (op.raw ? at : me_ * op.chunk) * u,
                c.size());
      return;
    }
    case Kind::all_gather:
      for (i64 m = 0; m < n_; m++) {
        Slice c = chunk_of(op.chunk, step, op.counts[size_(m)]);
        std::byte* to = op.out + (op.at[size_(m)] + c.begin) * u;
        const std::byte* from = m == me_ ? op.in + c.begin * u : slot(m, global);
        if (to != from) copy_out(to, from, c.size() * u);
      }
      return;
    case Kind::all_to_all:
      consume_all_to_all(op, step);
      return;
    case Kind::broadcast: {
      Slice c = chunk_of(op.chunk, step, op.count);
      if (me_ != op.root) copy_out(op.out + c.begin * u, slot(op.root, global), c.size() * u);
      return;
    }
    default:
      return;
  }
}

void LocalCommunicator::join_step(Op& op, i64 global, std::byte* out, const std::byte* own, i64 in_slot, i64 count) {
  if (count == 0) return;
  for (i64 m = 0; m < n_; m++) parts_[size_(m)] = m == me_ ? own : slot(m, global) + in_slot;
  // A contribution that lies in our slot is read by both; then its lines stay shared.
  const std::byte* mine = slot(me_, global);
  const bool staged = own >= mine && own < mine + stride_;
  if (n_ == 2 && !staged)
    swap_(out, parts_.data(), slot(1 - me_, global) + in_slot, nullptr, count * info(op.dtype).block, op.dtype,
          op.join);
  else if (n_ == 1)
    join_parts(out, parts_, count * info(op.dtype).block, op.dtype, op.join);
  else
    join_(out, parts_, count * info(op.dtype).block, op.dtype, op.join);
}

// Joins a step and writes the next one in its place. That is the place of our next step (slot), and its lines are here.
void LocalCommunicator::swap_steps(Op& op) {
  const i64 u = op.unit, block = info(op.dtype).block;
  Slice c = chunk_of(op.chunk, op.consumed, op.count), next = chunk_of(op.chunk, op.published, op.count);
  std::byte* theirs = slot(1 - me_, op.number(op.consumed));
  const std::byte* own = op.in + c.begin * u;
  parts_[size_(me_)] = own;
  parts_[size_(1 - me_)] = theirs;
  swap_(op.out + c.begin * u, parts_.data(), theirs, op.in + next.begin * u, next.size() * block, op.dtype, op.join);
  i64 done = next.size() * u;
  join_step(op, op.number(op.consumed), op.out + c.begin * u + done, own + done, done, c.size() - next.size());
}

// The senders' trailers of the first step say where their parts lie and how many steps they need.
void LocalCommunicator::consume_all_to_all(Op& op, i64 step) {
  const i64 u = op.unit;
  if (step == 0) {
    op.from_steps.assign(size_(n_), 1);
    op.from_at.assign(size_(n_), 0);
    for (i64 m = 0; m < n_; m++) {
      if (m == me_) continue;
      auto* trailer = reinterpret_cast<const i64*>(slot(m, op.first) + slot_bytes_);
      if (trailer[1 + me_] != op.receives[size_(m)]) mismatch(op, step, m);
      op.from_steps[size_(m)] = trailer[0];
      for (i64 k = 0; k < me_; k++) op.from_at[size_(m)] += trailer[1 + k];
      op.steps = std::max(op.steps, trailer[0]);
    }
    if (op.counts[size_(me_)] != op.receives[size_(me_)]) mismatch(op, step, me_);
    std::byte* own = op.out + op.to[size_(me_)] * u;
    copy_out(own, op.in + op.at[size_(me_)] * u, op.counts[size_(me_)] * u);
    if (!op.settled) settle(op);
  }
  for (i64 m = 0; m < n_; m++) {
    if (m == me_) continue;
    i64 count = op.receives[size_(m)];
    bool raw = op.from_steps[size_(m)] == 0;
    if (raw && step > 0) continue;
    i64 chunk = std::max<i64>(1, slot_bytes_ / n_ / 64 * 64 / u);
    Slice c = raw ? Slice{0, count} : chunk_of(chunk, step, count);
    i64 at = raw ? op.from_at[size_(m)] : me_ * chunk;
    copy_out(op.out + (op.to[size_(m)] + c.begin) * u, slot(m, op.number(step)) + at * u, c.size() * u);
  }
}

}  // namespace plait::comm
