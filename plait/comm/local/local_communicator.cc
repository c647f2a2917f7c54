// Construction, and the starts of LocalCommunicator: checks, plans the steps, signs, publishes, announces.
#include "plait/comm/local/local_communicator.h"

#include <algorithm>

#include "plait/comm/local/ticks.h"

namespace plait::comm {

namespace {

// Largest groups first. Two ranks move the same bytes either way, and one shot has one latency less. Measured on a
// Xeon 6 with 2 cores for all ranks, us, one shot / two shots:
//   ranks   16 KB        32 KB        64 KB        128 KB       256 KB      1 MB
//   3       5.7 / 7.0    8.5 / 10     14 / 14      26 / 24      54 / 43     276 / 230
//   4       6.8 / 8.4    11 / 11      18 / 16      36 / 29      74 / 51     357 / 285
//   8       16 / 17      27 / 22      54 / 33      121 / 57     925 / 125   3000 / 670
constexpr TwoShotFrom kTwoShot[] = {{8, 32 * 1024}, {4, 64 * 1024}, {3, 128 * 1024}};

bool overlap(const void* a, i64 a_bytes, const void* b, i64 b_bytes) {
  auto x = reinterpret_cast<std::uintptr_t>(a), y = reinterpret_cast<std::uintptr_t>(b);
  return a_bytes > 0 && b_bytes > 0 && x < y + static_cast<u64>(b_bytes) && y < x + static_cast<u64>(a_bytes);
}

i64 sum_of(std::span<const i64> counts) {
  i64 s = 0;
  for (i64 c : counts) s += c;
  return s;
}

}  // namespace

std::span<const TwoShotFrom> two_shot_table() { return kTwoShot; }

LocalCommunicator::LocalCommunicator(std::shared_ptr<Region> region, i64 group, i64 member, double deadline_s,
                                     double ranks_per_core)
    : region_(std::move(region)),
      group_(region_->groups()[static_cast<size_t>(group)]),
      group_id_(group),
      me_(member),
      n_(group_.size()),
      stride_(group_.slot_stride),
      slot_bytes_(group_.slot_bytes),
      world_rank_(group_.ranks[static_cast<size_t>(member)]),
      deadline_ns_(static_cast<i64>(std::min(deadline_s, 1e9) * 1e9)),
      crowded_(ranks_per_core > 1),
      state_(region_->rank(world_rank_)),
      line_(region_->line(group_, member)),
      mail_(*region_, group_, member),
      join_(join_function()),
      swap_(swap_function()),
      ops_(static_cast<size_t>(kMaxStarted)),
      ticks_at_(ticks()),
      ns_at_(now_ns()) {
  for (i64 m = 0; m < n_; m++)
    peers_.push_back(
        {&region_->line(group_, m), region_->notes(group_, m), region_->slots(group_, m), group_.ranks[size_(m)]});
  parts_.resize(size_(n_));
  for (auto& op : ops_)  // a step of a run may not allocate
    for (auto* v : {&op.counts, &op.receives, &op.at, &op.to, &op.from_steps, &op.from_at}) v->reserve(size_(n_));
  // A second communicator of the same member goes on where the first one stopped.
  published_ = finished_ = finished_told_ = next_step_ = static_cast<i64>(line_.started.load());
  free_until_ = published_;
}

i64 LocalCommunicator::buffer_bytes() const {
  return kRing * group_.slot_stride + n_ * group_.mail_stride + static_cast<i64>(sizeof(Line));
}

Counters LocalCommunicator::counters() const {
  Counters c = counters_;
  double s = static_cast<double>(now_ns() - ns_at_) * 1e-9;
  double tick_s = s / static_cast<double>(std::max<u64>(1, ticks() - ticks_at_));
  c.wait_s = static_cast<double>(wait_ticks_) * tick_s;
  c.copy_s = static_cast<double>(copy_ticks_) * tick_s;
  return c;
}

void LocalCommunicator::reset_counters() {
  counters_ = {};
  wait_ticks_ = copy_ticks_ = 0;
}

LocalCommunicator::Op& LocalCommunicator::push(Kind kind, DType t, Join join, i64 root, const char* what) {
  if (next_id_ - head_ >= kMaxStarted)
    fail(Code::usage, "[{} '{}'] {} operations of group {} are started and not waited for, want fewer", name_of(kind),
         what, kMaxStarted, region_->group_name(group_id_));
  Op& op = op_at(next_id_);
  op.id = next_id_;
  op.kind = kind;
  op.dtype = t;
  op.join = join;
  op.root = root;
  op.noted = op.two_shot = op.raw = false;
  op.settled = true;
  op.unit = info(t).block_bytes;
  op.count = op.chunk = 0;
  op.in = nullptr;
  op.out = op.spare_to = nullptr;
  op.first = -1;
  op.steps = op.stride = 1;
  op.published = op.consumed = 0;
  return op;
}

i64 LocalCommunicator::units(i64 count, DType t, const char* what) const {
  i64 block = info(t).block;
  if (count < 0 || count % block != 0)
    fail(Code::usage, "['{}' on group {}] got {} elements of {}", what, region_->group_name(group_id_), count,
         name_of(t));
  return count / block;
}

void LocalCommunicator::keep_counts(std::vector<i64>& to, std::span<const i64> from, DType t, const char* what) const {
  if (static_cast<i64>(from.size()) != n_)
    fail(Code::usage, "['{}' on group {}] got {} counts, want one a member", what, region_->group_name(group_id_),
         from.size());
  to.clear();
  for (i64 c : from) to.push_back(units(c, t, what));
}

void LocalCommunicator::sign(Op& op, std::span<const i64> counts) {
  u64 kinds = static_cast<u64>(op.kind) | static_cast<u64>(op.dtype) << 8 | static_cast<u64>(op.join) << 16 |
              static_cast<u64>(op.root) << 24;
  u64 h = kinds * 0x9e3779b97f4a7c15ull + static_cast<u64>(op.count) * 0xd1b54a32d192ed03ull +
          op.sequence * 0x8cb92ba72f3d8dd7ull;
  for (i64 c : counts) h = (h ^ static_cast<u64>(c)) * 0xff51afd7ed558ccdull + (h >> 29);
  op.signature = h;
}

// Tells everybody what this rank is in; after the publishing, in the shadow of the transfer. The text goes from memory
// to memory in words of a register: bytes written and read again as words would wait for all stores before them.
void LocalCommunicator::announce(Op& op, const char* what) {
  constexpr auto relaxed = std::memory_order_relaxed;
  u64 sequence = state_.operations.load(relaxed) + 1;
  auto& rec = region_->announce(world_rank_, sequence);
  rec.sequence.store(0, relaxed);
  rec.kinds.store(static_cast<u64>(op.kind) | static_cast<u64>(op.dtype) << 8 | static_cast<u64>(op.join) << 16 |
                      static_cast<u64>(group_id_) << 32,
                  relaxed);
  rec.state.store(OpRecord::started, relaxed);
  rec.count.store(op.count * info(op.dtype).block, relaxed);
  rec.first_step.store(op.first, relaxed);
  rec.steps.store(op.reached(op.steps) - op.first, relaxed);
  rec.root.store(op.root, relaxed);
  rec.index.store(static_cast<i64>(op.sequence), relaxed);
  size_t length = what == nullptr ? 0 : strnlen(what, kWhatBytes - 1);
  for (size_t i = 0; i < std::size(rec.what); i++) {
    u64 word = 0;
    if (8 * i + 8 <= length)
      std::memcpy(&word, what + 8 * i, 8);
    else
      for (size_t b = 8 * i; b < length; b++)
        word |= static_cast<u64>(static_cast<unsigned char>(what[b])) << (b % 8 * 8);
    rec.what[i].store(word, relaxed);
    if (8 * i + 8 > length) break;
  }
  rec.sequence.store(sequence, std::memory_order_release);
  state_.operations.store(sequence, std::memory_order_release);
  op.record = sequence;
}

void LocalCommunicator::set_state(const Op& op, OpRecord::State state) {
  auto& rec = region_->announce(world_rank_, op.record);
  if (rec.sequence.load(std::memory_order_relaxed) == op.record) rec.state.store(state, std::memory_order_relaxed);
}

Request LocalCommunicator::begin(Op& op, std::span<const i64> counts, i64 payload_bytes, const char* what) {
  next_id_++;
  counters_.operations++;
  counters_.bytes += payload_bytes;
  if (op.is_mail()) {
    mails_++;
    op.sequence = ++mail_sequence_;
    announce(op, what);
    check_sound(op);
    progress_mail();
    return {op.id};
  }
  op.sequence = ++sequence_;
  sign(op, counts);
  if (next_step_ >= 0) {
    op.follow(next_step_);
    next_step_ = op.settled ? op.reached(op.steps) : -1;
  }
  if (may_publish(op, 0)) publish(op);
  announce(op, what);
  check_sound(op);
  return {op.id};
}

Request LocalCommunicator::start_all_reduce(const void* in, void* out, i64 count, DType t, Join join,
                                            const char* what) {
  if (!can_join(t, join))
    fail(Code::usage, "[all_reduce '{}'] got {} of {}, which is not defined", what, name_of(join), name_of(t));
  Op& op = push(Kind::all_reduce, t, join, 0, what);
  op.count = units(count, t, what);
  op.in = static_cast<const std::byte*>(in);
  op.out = static_cast<std::byte*>(out);
  i64 bytes = op.count * op.unit;
  if (in != out && overlap(in, bytes, out, bytes))
    fail(Code::usage, "[all_reduce '{}'] in and out overlap without being equal", what);
  op.chunk = chunk_bytes(bytes) / op.unit / lanes(op.unit) * lanes(op.unit);
  op.steps = std::max<i64>(1, ceil_div(op.count, op.chunk));
  op.noted = bytes <= kNoteBytes && n_ > 1;
  if (n_ == 2 && op.steps > 1) op.stride = kRing;
  for (auto& row : kTwoShot)
    if (n_ >= row.members) {
      op.two_shot = bytes >= row.bytes;
      break;
    }
  if (op.two_shot) op.steps *= 2;
  return begin(op, {}, bytes, what);
}

Request LocalCommunicator::start_reduce_scatter(const void* in, void* out, std::span<const i64> counts, DType t,
                                                Join join, const char* what) {
  if (!can_join(t, join))
    fail(Code::usage, "[reduce_scatter '{}'] got {} of {}, which is not defined", what, name_of(join), name_of(t));
  Op& op = push(Kind::reduce_scatter, t, join, 0, what);
  keep_counts(op.counts, counts, t, what);
  op.count = sum_of(op.counts);
  i64 bytes = op.count * op.unit, mine = op.counts[size_(me_)] * op.unit;
  op.in = static_cast<const std::byte*>(in);
  op.out = static_cast<std::byte*>(out);
  plan_parts(op, op.counts, bytes);
  const std::byte* own = op.in + op.at[size_(me_)] * op.unit;
  if (overlap(in, bytes, out, mine) && !(op.steps == 1 && own == op.out)) {
    op.spare.resize(static_cast<size_t>(mine));
    op.spare_to = op.out;
    op.out = op.spare.data();
  }
  return begin(op, op.counts, bytes, what);
}

Request LocalCommunicator::start_all_gather(const void* in, void* out, std::span<const i64> counts, DType t,
                                            const char* what) {
  Op& op = push(Kind::all_gather, t, Join::one, 0, what);
  keep_counts(op.counts, counts, t, what);
  op.count = sum_of(op.counts);
  op.in = static_cast<const std::byte*>(in);
  op.out = static_cast<std::byte*>(out);
  places(op.at, op.counts);
  i64 mine = op.counts[size_(me_)] * op.unit;
  std::byte* own = op.out + op.at[size_(me_)] * op.unit;
  if (overlap(in, mine, out, op.count * op.unit)) {
    if (in != own) std::memmove(own, in, static_cast<size_t>(mine));
    op.in = own;
  }
  i64 most = *std::max_element(op.counts.begin(), op.counts.end());
  op.chunk = chunk_bytes(most * op.unit) / op.unit;
  op.steps = std::max<i64>(1, ceil_div(most, op.chunk));
  op.noted = most * op.unit <= kNoteBytes && n_ > 1;
  return begin(op, op.counts, mine, what);
}

Request LocalCommunicator::start_all_to_all(const void* in, std::span<const i64> sends, void* out,
                                            std::span<const i64> receives, DType t, const char* what) {
  Op& op = push(Kind::all_to_all, t, Join::one, 0, what);
  keep_counts(op.counts, sends, t, what);
  keep_counts(op.receives, receives, t, what);
  i64 bytes = sum_of(op.counts) * op.unit;
  op.in = static_cast<const std::byte*>(in);
  op.out = static_cast<std::byte*>(out);
  if (overlap(in, bytes, out, sum_of(op.receives) * op.unit)) {
    op.spare.assign(op.in, op.in + bytes);
    op.in = op.spare.data();
  }
  plan_parts(op, op.counts, bytes);
  places(op.to, op.receives);
  op.own_steps = op.steps;
  op.settled = n_ == 1;
  return begin(op, {}, bytes, what);
}

Request LocalCommunicator::start_broadcast(void* data, i64 count, DType t, i64 root, const char* what) {
  if (root < 0 || root >= n_)
    fail(Code::usage, "[broadcast '{}'] got root {}, the group has {} members", what, root, n_);
  Op& op = push(Kind::broadcast, t, Join::one, root, what);
  op.count = units(count, t, what);
  op.out = static_cast<std::byte*>(data);
  op.in = op.out;
  op.chunk = chunk_bytes(op.count * op.unit) / op.unit;
  op.steps = std::max<i64>(1, ceil_div(op.count, op.chunk));
  op.noted = op.count * op.unit <= kNoteBytes && n_ > 1;
  return begin(op, {}, me_ == root ? op.count * op.unit : 0, what);
}

Request LocalCommunicator::start_message(Kind kind, std::byte* data, i64 bytes, i64 peer, const char* what) {
  if (peer < 0 || peer >= n_ || bytes < 0)
    fail(Code::usage, "[{} '{}'] got member {} and {} bytes, the group has {} members", name_of(kind), what, peer,
         bytes, n_);
  Op& op = push(kind, DType::f32, Join::one, peer, what);
  op.count = bytes;
  op.mail = {.sends = kind == Kind::send, .peer = peer, .bytes = bytes, .data = data};
  return begin(op, {}, kind == Kind::send ? bytes : 0, what);
}

Request LocalCommunicator::start_send(const void* data, i64 bytes, i64 to, const char* what) {
  return start_message(Kind::send, static_cast<std::byte*>(const_cast<void*>(data)), bytes, to, what);
}

Request LocalCommunicator::start_recv(void* data, i64 bytes, i64 from, const char* what) {
  return start_message(Kind::recv, static_cast<std::byte*>(data), bytes, from, what);
}

void LocalCommunicator::barrier(const char* what) {
  Op& op = push(Kind::barrier, DType::f32, Join::one, 0, what);
  op.noted = n_ > 1;
  wait(begin(op, {}, 0, what));
}

void* LocalCommunicator::staging(i64 bytes) {
  if (bytes > slot_bytes_ || next_step_ < 0 || published_ != next_step_ || !slot_free(next_step_)) return nullptr;
  return slot(me_, next_step_);
}

// Where things lie.

// Bytes a step of a payload: all where it fits the slot, else at most kChunkBytes, so that the slots in use stay in the
// second cache.
i64 LocalCommunicator::chunk_bytes(i64 payload) const {
  return payload <= slot_bytes_ ? slot_bytes_ : std::min(slot_bytes_, kChunkBytes);
}

// First unit of each part of a packed buffer.
void LocalCommunicator::places(std::vector<i64>& at, std::span<const i64> counts) {
  at.clear();
  i64 begin = 0;
  for (i64 c : counts) {
    at.push_back(begin);
    begin += c;
  }
}

// Parts for each member: all at once where they fit a slot, else `chunk` units of each a step.
void LocalCommunicator::plan_parts(Op& op, std::span<const i64> counts, i64 bytes) {
  places(op.at, counts);
  op.raw = bytes <= slot_bytes_;
  if (op.raw) return;
  op.chunk = std::max<i64>(1, slot_bytes_ / n_ / 64 * 64 / op.unit);
  op.steps = std::max<i64>(1, ceil_div(*std::max_element(counts.begin(), counts.end()), op.chunk));
}

LocalCommunicator::Slice LocalCommunicator::chunk_of(i64 chunk, i64 c, i64 count) {
  return {std::min(count, c * chunk), std::min(count, (c + 1) * chunk)};
}

}  // namespace plait::comm
