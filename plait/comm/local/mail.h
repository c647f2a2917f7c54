// Messages between two members: for each ordered pair a ring of kMailRing chunks, written by the sender and read by
// the receiver. Messages of a pair arrive in the order of their starts. advance() moves what can be moved and never
// blocks.
#pragma once
#include "plait/comm/local/region.h"

namespace plait::comm {

class Mail {
 public:
  struct Message {
    bool sends = false, active = false;
    i64 peer = 0, bytes = 0, done = 0;  // done: bytes moved
    bool begun = false;                 // a message of no bytes is one chunk too
    std::byte* data = nullptr;
    bool finished() const { return begun && done == bytes; }
  };
  enum class Moved { nothing, some, wrong_size };

  Mail(const Region& region, const Group& group, i64 member) : region_(region), group_(group), me_(member) {}

  /// Moves chunks of `m`, the oldest unfinished message of its direction and peer.
  Moved advance(Message& m);
  /// Bytes of the message that the peer has begun to send, for an error text.
  i64 offered_bytes(const Message& m) const;
  /// Where to sleep until the peer has moved something.
  MailEnd& peer_end(const Message& m) const;

 private:
  MailEnd& end(std::byte* box, bool receiver) const { return reinterpret_cast<MailEnd*>(box)[receiver ? 1 : 0]; }
  std::byte* chunk(std::byte* box, u64 k) const {
    return box + 2 * sizeof(MailEnd) +
           k % static_cast<u64>(kMailRing) * (sizeof(MailChunk) + static_cast<size_t>(group_.mail_bytes));
  }
  std::byte* box(const Message& m) const {
    return m.sends ? region_.mailbox(group_, me_, m.peer) : region_.mailbox(group_, m.peer, me_);
  }
  const Region& region_;
  const Group& group_;
  i64 me_;
};

}  // namespace plait::comm
