// The memory that the ranks of one machine share: one mapping, made before they start, addressed by offsets only.
//
//   Header                       who failed first, and why
//   RankState  [world]           presence and the last kLastOps operations of each rank, for messages
//   of every group (ranks of a mesh axis, or of a product of axes):
//     Line     [members]         what a member has published and what it has read: the only line the others poll
//     notes    [members][kRing]  contributions of a few numbers, beside the news that they are there
//     slots    [members][kRing]  payloads; member m's contribution to step s is in slot s % kRing of m
//     mailboxes [members][members]  ordered pairs, for send and recv
//
// Pages that are never written cost nothing, so slots may be generous. Huge pages are not asked for: on the machines
// we measured shared memory has none.
#pragma once
#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "plait/comm/communicator.h"

namespace plait::comm {

inline constexpr i64 kRing = 4;      // slots of a member: steps that may be under way at once
inline constexpr i64 kMailRing = 2;  // chunks of a message under way
inline constexpr i64 kLastOps = 16;
inline constexpr i64 kWhatBytes = 48;

enum class Kind : std::uint8_t { all_reduce, reduce_scatter, all_gather, all_to_all, broadcast, send, recv, barrier };
const char* name_of(Kind k);

/// What a member tells the others: one cache line, polled by them and written by it alone, with a second one (lines are
/// fetched in pairs) for who sleeps. The publisher reads `waiters` right after its store; in the line it has just
/// written, and the peers hold, that load would wait for the line to come back.
struct alignas(128) Line {
  std::atomic<u64> started;                        // steps published; the low half is the futex word
  std::atomic<u64> finished;                       // steps whose slots this member has read
  std::atomic<u64> signature[kRing];               // of the operation of the step in that slot
  alignas(64) std::atomic<std::uint32_t> waiters;  // somebody may be asleep on `started`
};
static_assert(sizeof(Line) == 128 && std::atomic<u64>::is_always_lock_free);

/// A small contribution and the news of it side by side: the line that says that it has come holds the first bytes, and
/// the line beside it, written before, the rest. `started` is set as well, for who looks later.
inline constexpr i64 kNoteHead = 32, kNoteBytes = 96;
struct alignas(128) Note {
  std::atomic<u64> come;       // step + 1
  std::atomic<u64> signature;  // as in Line
  std::atomic<u64> finished;
  u64 unused;
  std::byte head[kNoteHead];
  alignas(64) std::byte rest[kNoteBytes - kNoteHead];
};
static_assert(sizeof(Note) == 128 && offsetof(Note, rest) == 64);

/// The two ends of a mailbox and its chunks' headers.
struct alignas(128) MailEnd {
  std::atomic<u64> count;  // chunks written, or read
  std::atomic<std::uint32_t> waiters;
  std::uint32_t pad;
};
struct alignas(64) MailChunk {
  i64 message_bytes;  // of the whole message, for the receiver to compare
};

/// An operation as its rank announced it. Words are written relaxed and read by whoever writes a message; a reader may
/// see a torn record of a rank that runs on, never of one that is stuck.
struct alignas(128) OpRecord {
  enum State : std::uint8_t { started, waiting, done };
  std::atomic<u64> sequence;  // of the rank's operations, from 1; 0: none
  std::atomic<u64> kinds;     // kind | dtype << 8 | join << 16 | group << 32
  std::atomic<u64> state;
  std::atomic<i64> count, first_step, steps, root, index;  // index: of the group's operations
  std::atomic<u64> what[kWhatBytes / 8];
};

struct alignas(128) RankState {
  enum Presence : std::uint32_t { absent, joined, left };
  std::atomic<std::uint32_t> presence;
  std::atomic<u64> operations;
  std::atomic<u64> phase[2];  // text: "decode"
  std::atomic<i64> step;      // in the phase; 0: none
  OpRecord last[kLastOps];
};

struct Header {
  std::atomic<std::uint32_t> state;  // 0 sound, 1 text being written, 2 failed
  std::int32_t rank;
  char text[1016];
};

struct Group {
  std::vector<i64> ranks;  // world ranks of the members, ascending order not required
  i64 slot_bytes = 0, slot_stride = 0, mail_bytes = 0, mail_stride = 0;
  i64 lines_at = 0, notes_at = 0, slots_at = 0, mail_at = 0, end = 0;  // offsets in the region
  i64 size() const { return static_cast<i64>(ranks.size()); }
};

/// What is known of one announced operation.
struct OpInfo {
  u64 sequence = 0;
  Kind kind{};
  DType dtype{};
  Join join{};
  OpRecord::State state{};
  i64 group = 0, count = 0, first_step = 0, steps = 0, root = 0, index = 0;
  std::string what;
};
std::string to_string(const OpInfo& op);

/// The mapping and its layout. The object is copied by fork; only the mapping is shared.
class Region {
 public:
  /// errors: does_not_fit when the memory cannot be mapped
  Region(i64 world, std::vector<Group> groups);
  ~Region();
  Region(const Region&) = delete;

  /// Fills in the offsets of the groups; returns the bytes of the whole region.
  static i64 lay_out(i64 world, std::vector<Group>& groups);

  i64 world() const { return world_; }
  i64 bytes() const { return bytes_; }
  const std::vector<Group>& groups() const { return groups_; }
  Header& header() const { return *at<Header>(0); }
  RankState& rank(i64 r) const;
  Line& line(const Group& g, i64 member) const {
    return *at<Line>(g.lines_at + member * static_cast<i64>(sizeof(Line)));
  }
  Note* notes(const Group& g, i64 member) const {
    return at<Note>(g.notes_at + member * kRing * static_cast<i64>(sizeof(Note)));
  }
  std::byte* slots(const Group& g, i64 member) const {
    return at<std::byte>(g.slots_at + member * kRing * g.slot_stride);
  }
  std::byte* mailbox(const Group& g, i64 from, i64 to) const {
    return at<std::byte>(g.mail_at + (from * g.size() + to) * g.mail_stride);
  }

  bool failed() const { return header().state.load(std::memory_order_relaxed) != 0; }
  /// The first failure. Waits for a text that is being written.
  std::optional<std::pair<i64, std::string>> failure() const;
  /// Records the failure unless there is one, and wakes everybody.
  void poison(i64 rank, std::string_view text);

  OpRecord& announce(i64 rank, u64 sequence) const {
    return this->rank(rank).last[sequence % static_cast<u64>(kLastOps)];
  }
  /// The last operations of a rank, oldest first.
  std::vector<OpInfo> last_operations(i64 rank) const;
  /// What ranks are called besides their number, e.g. "tp=1"; may be empty.
  std::vector<std::string> names;
  /// "rank 1 (tp=1)"
  std::string title(i64 rank) const;
  /// Where a rank says that it is: "decode step 3"; empty where it says nothing.
  std::string phase(i64 rank) const;
  void set_phase(i64 rank, std::string_view phase, i64 step);
  /// "{0,1,2}"
  std::string group_name(i64 group) const;

 private:
  template <class T>
  T* at(i64 offset) const {
    return reinterpret_cast<T*>(base_ + offset);
  }
  i64 world_, bytes_ = 0;
  std::vector<Group> groups_;
  std::byte* base_ = nullptr;
};

/// Sleeps until `word` is not `seen`, somebody wakes, or `ns` have passed.
void futex_wait(std::atomic<u64>& word, u64 seen, i64 ns);
void futex_wake(std::atomic<u64>& word);
i64 now_ns();

}  // namespace plait::comm
