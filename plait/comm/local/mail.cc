#include "plait/comm/local/mail.h"

#include "plait/comm/local/copy.h"

namespace plait::comm {

Mail::Moved Mail::advance(Message& m) {
  std::byte* b = box(m);
  auto &sent = end(b, false), &received = end(b, true);
  auto& mine = m.sends ? sent : received;
  u64 k = mine.count.load(std::memory_order_relaxed);
  Moved moved = Moved::nothing;
  while (!m.finished()) {
    u64 theirs = (m.sends ? received : sent).count.load(std::memory_order_acquire);
    if (m.sends ? k - theirs >= static_cast<u64>(kMailRing) : k >= theirs) break;
    std::byte* c = chunk(b, k);
    auto& head = *reinterpret_cast<MailChunk*>(c);
    i64 n = std::min(group_.mail_bytes, m.bytes - m.done);
    if (m.sends) {
      head.message_bytes = m.bytes;
      copy_bytes(c + sizeof(MailChunk), m.data + m.done, n);
    } else {
      if (head.message_bytes != m.bytes) return Moved::wrong_size;
      copy_bytes(m.data + m.done, c + sizeof(MailChunk), n);
    }
    m.begun = true;
    m.done += n;
    mine.count.store(++k, std::memory_order_release);
    if (mine.waiters.load(std::memory_order_relaxed) != 0) {
      mine.waiters.store(0, std::memory_order_relaxed);
      futex_wake(mine.count);
    }
    moved = Moved::some;
  }
  return moved;
}

i64 Mail::offered_bytes(const Message& m) const {
  std::byte* b = box(m);
  u64 k = end(b, true).count.load(std::memory_order_relaxed);
  return reinterpret_cast<MailChunk*>(chunk(b, k))->message_bytes;
}

MailEnd& Mail::peer_end(const Message& m) const { return end(box(m), m.sends); }

}  // namespace plait::comm
