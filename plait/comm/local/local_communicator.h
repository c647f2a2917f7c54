// One member of a group on one machine: collectives over slots in shared memory (region.h).
//
// A collective is a fixed number of steps, known from its arguments. In step s a member publishes: it waits until the
// peers have read what it published in step s - kRing, writes its contribution into slot s % kRing and sets `started`
// to s + 1; and consumes: it waits for the peers' `started`, reads their slots, and counts s as finished. There is no
// second barrier. `finished` travels with the next `started` (one line, one transfer); who has to wait tells it first.
//
//   start  publishes the first step if its slot is free, and never blocks
//   wait   publishes one step ahead of the one it consumes, so that the payload of many slots flows
//   note      up to kNoteBytes a member: contributions lie in the line that says they have come and the next (region.h)
//   one shot  every member reads everything: one step; (P-1)·n bytes read a member
//   swap      in a group of two the slots change hands: what a member has read it writes next, so the lines it fetched
//             are its own and cross once, not twice. An all_reduce of many steps reads a step and writes its next one
//             over it, in one pass
//   two shot  a member joins its slice, publishes the result, and all gather: two steps; 2·(P-1)/P·n bytes read
//
// Members check each other's signature of the operation in every step, so that different calls are an error and no
// hang. Waiting spins, then yields the core, then sleeps; it looks for failures and at the clock from the second on.
#pragma once
#include <algorithm>

#include "plait/comm/join.h"
#include "plait/comm/local/mail.h"
#include "plait/comm/local/region.h"

namespace plait::comm {

inline constexpr i64 kMaxStarted = 16;  // operations of a communicator started and not waited for

/// Bytes of a step of a payload that does not fit a slot. Measured on a Xeon 6, 1 MB, 2 ranks, us: 32 KB 123,
/// 64 KB 116, 128 KB 87, 256 KB 100 (without the swap 168, 146, 148, 139).
inline constexpr i64 kChunkBytes = 128 * 1024;

/// An all_reduce of at least `bytes` goes in two shots when the group has at least `members`.
struct TwoShotFrom {
  i64 members, bytes;
};
std::span<const TwoShotFrom> two_shot_table();

class LocalCommunicator final : public Communicator {
 public:
  LocalCommunicator(std::shared_ptr<Region> region, i64 group, i64 member, double deadline_s, double ranks_per_core);

  i64 rank() const override { return me_; }
  i64 size() const override { return n_; }
  Request start_all_reduce(const void* in, void* out, i64 count, DType t, Join join, const char* what) override;
  Request start_reduce_scatter(const void* in, void* out, std::span<const i64> counts, DType t, Join join,
                               const char* what) override;
  Request start_all_gather(const void* in, void* out, std::span<const i64> counts, DType t, const char* what) override;
  Request start_all_to_all(const void* in, std::span<const i64> sends, void* out, std::span<const i64> receives,
                           DType t, const char* what) override;
  Request start_broadcast(void* data, i64 count, DType t, i64 root, const char* what) override;
  Request start_send(const void* data, i64 bytes, i64 to, const char* what) override;
  Request start_recv(void* data, i64 bytes, i64 from, const char* what) override;
  void wait(Request r) override;
  void barrier(const char* what) override;
  void* staging(i64 bytes) override;
  i64 buffer_bytes() const override;
  Counters counters() const override;
  void reset_counters() override;

 private:
  struct Op {
    i64 id = 0;
    Kind kind{};
    DType dtype{};
    Join join{};
    bool noted = false, two_shot = false,
         raw = false;         // noted: in a Note; raw: all parts of a step lie in the slot as in the buffer
    bool settled = true;      // the number of steps is final
    i64 unit = 0;             // bytes of an element (of a block for block types)
    i64 count = 0, root = 0;  // count in units
    i64 chunk = 0;            // units a step (for each member in reduce_scatter, all_to_all)
    const std::byte* in = nullptr;
    std::byte* out = nullptr;
    std::vector<i64> counts, receives;         // units
    std::vector<i64> at;                       // first unit of each member's part of `out` (all_gather, all_to_all)
    std::vector<std::byte> spare;              // a copy where in and out overlap
    std::byte* spare_to = nullptr;             // where `spare` goes at the end
    std::vector<i64> to, from_steps, from_at;  // all_to_all: parts of out; steps and places of each sender
    i64 own_steps = 1;
    u64 signature = 0;
    u64 sequence = 0, record = 0;  // of the group's operations; of the rank's, for messages
    i64 follows = -1;              // where the operation before it ends
    i64 first = -1, steps = 1, published = 0, consumed = 0;
    i64 stride = 1;  // from the number of a step to the next one's: kRing where steps swap lines
    // Steps that swap lines all do it in one slot, so that few lines are in use.
    void follow(i64 end) {
      follows = end;
      first = stride > 1 ? ceil_div(end, kRing) * kRing : end;
    }
    i64 number(i64 step) const { return first + step * stride; }
    i64 reached(i64 done) const { return done < steps ? number(done) : number(steps - 1) + 1; }
    Mail::Message mail;
    bool is_mail() const { return kind == Kind::send || kind == Kind::recv; }
  };
  // Elements of a vector register's worth, so that slices begin at whole ones.
  static i64 lanes(i64 unit) { return std::max<i64>(1, 64 / unit); }
  // Step of a two-shot operation of `chunks`: scatter c, gather c in the order S0 S1 G0 S2 G1 ... G(last).
  struct TwoShotStep {
    bool gather;
    i64 chunk;
  };
  static TwoShotStep two_shot_step(i64 step, i64 chunks) {
    if (step == 0) return {false, 0};
    if (step == 2 * chunks - 1) return {true, chunks - 1};
    if (step % 2 == 1) return {false, (step + 1) / 2};
    return {true, step / 2 - 1};
  }
  static i64 scatter_step(i64 chunk) { return chunk == 0 ? 0 : 2 * chunk - 1; }
  struct Slice {
    i64 begin, end;
    i64 size() const { return end - begin; }
  };
  struct Peer {
    Line* line;
    Note* notes;
    std::byte* slots;
    i64 world_rank;
  };

  // Starting.
  Op& push(Kind kind, DType t, Join join, i64 root, const char* what);
  Request begin(Op& op, std::span<const i64> counts, i64 payload_bytes, const char* what);
  Request start_message(Kind kind, std::byte* data, i64 bytes, i64 peer, const char* what);
  void announce(Op& op, const char* what);
  void set_state(const Op& op, OpRecord::State state);
  void settle(Op& settled);
  void sign(Op& op, std::span<const i64> counts);
  void keep_counts(std::vector<i64>& to, std::span<const i64> from, DType t, const char* what) const;
  i64 units(i64 count, DType t, const char* what) const;

  i64 chunk_bytes(i64 payload) const;
  static void places(std::vector<i64>& at, std::span<const i64> counts);
  void plan_parts(Op& op, std::span<const i64> counts, i64 bytes);
  static Slice chunk_of(i64 chunk, i64 c, i64 count);
  Slice slice_of(const Op& op, Slice chunk, i64 member) const;

  // Steps. `step` counts in the operation, `global` in the group.
  Op& op_at(i64 id) { return ops_[size_(id % kMaxStarted)]; }
  void run(Op& op);
  void advance();
  bool may_publish(const Op& op, i64 step);
  bool slot_free(i64 global);
  void publish(Op& op);
  void tell_published(Op& op);
  void swap_steps(Op& op);
  void write_note(Op& op, Note& note);
  void wake();
  i64 write_step(Op& op, i64 step, std::byte* slot);
  i64 write_parts(Op& op, i64 step, std::byte* slot);
  void await(Op& op, i64 step);
  void consume(Op& op, i64 step);
  void consume_all_to_all(Op& op, i64 step);
  void await_notes(Op& op, bool rooted);
  void consume_note(Op& op);
  void join_step(Op& op, i64 global, std::byte* out, const std::byte* own, i64 in_slot, i64 count);
  Note& note(i64 member, i64 global) const { return peers_[size_(member)].notes[global % kRing]; }
  // In a group of two the slots change hands: a member writes where it read kRing steps before.
  std::byte* slot(i64 member, i64 global) const {
    i64 place = n_ == 2 ? (member + global / kRing) & 1 : member;
    return peers_[size_(place)].slots + global % kRing * stride_;
  }

  // Waiting, and what to say when it was in vain (waiting.cc).
  template <class Ready>
  void block(std::atomic<u64>& word, std::atomic<std::uint32_t>& waiters, i64 member, const Op& op, Ready ready);
  void await_step(const Op& op, i64 step, i64 member);
  void await_slot(const Op& op, i64 step);
  void await_mail(Op& op);
  bool progress_mail();
  void flush_finished();
  void check_sound(const Op& op);
  template <class Ready>
  void check_present(const Op& op, i64 member, Ready ready);
  [[noreturn]] void give_up(const Op& op, const std::string& text);
  [[noreturn]] void mismatch(const Op& op, i64 step, i64 member);
  std::string missing(const Op& op, i64 waited_ns) const;
  std::string place(const Op& op) const;
  std::string doing(i64 member) const;
  static size_t size_(i64 i) { return static_cast<size_t>(i); }

  std::shared_ptr<Region> region_;
  const Group& group_;
  i64 group_id_, me_, n_, stride_, slot_bytes_, world_rank_;
  i64 deadline_ns_;
  bool crowded_;  // more ranks than cores
  RankState& state_;
  Line& line_;
  std::vector<Peer> peers_;
  std::vector<const std::byte*> parts_;
  Mail mail_;
  JoinFunction* join_;
  SwapFunction* swap_;

  std::vector<Op> ops_;
  i64 next_id_ = 0, head_ = 0;  // ops [head_, next_id_) are started and not waited for
  i64 mails_ = 0;               // of them sends and receives
  u64 sequence_ = 0, mail_sequence_ = 0;
  i64 next_step_ = 0;  // first step of the next operation; -1 until an all_to_all has settled
  i64 published_ = 0, finished_ = 0, finished_told_ = 0, free_until_ = kRing;

  Counters counters_;
  u64 wait_ticks_ = 0, copy_ticks_ = 0, ticks_at_;
  i64 ns_at_;
};

}  // namespace plait::comm
