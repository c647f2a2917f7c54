#include "plait/comm/local/region.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <fmt/ranges.h>

#include <climits>

#include "plait/comm/join.h"

namespace plait::comm {

namespace {
constexpr i64 kPage = 4096;
// Slots start at different places of a page, so that small contributions do not meet in the same cache sets.
constexpr i64 kSkew = 9 * 128;
i64 ranks_at() { return round_up(static_cast<i64>(sizeof(Header)), kPage); }
}  // namespace

const char* name_of(Kind k) {
  constexpr const char* kNames[] = {"all_reduce", "reduce_scatter", "all_gather", "all_to_all",
                                    "broadcast",  "send",           "recv",       "barrier"};
  return kNames[static_cast<int>(k)];
}

std::string to_string(const OpInfo& op) {
  bool message = op.kind == Kind::send || op.kind == Kind::recv;
  std::string s = fmt::format("{} '{}'", name_of(op.kind), op.what);
  if (op.kind != Kind::barrier) s += fmt::format(" of {} {}", op.count, message ? "bytes" : name_of(op.dtype));
  if (op.kind == Kind::all_reduce || op.kind == Kind::reduce_scatter) s += fmt::format(" ({})", name_of(op.join));
  if (op.kind == Kind::broadcast) s += fmt::format(" from member {}", op.root);
  if (op.kind == Kind::send) s += fmt::format(" to member {}", op.root);
  if (op.kind == Kind::recv) s += fmt::format(" from member {}", op.root);
  return s;
}

i64 Region::lay_out(i64 world, std::vector<Group>& groups) {
  constexpr const char* kWhat = "shared memory of the ranks";
  i64 at = checked_add(ranks_at(), checked_mul(world, sizeof(RankState), kWhat), kWhat);
  for (auto& g : groups) {
    i64 n = g.size();
    i64 trailer = round_up(8 * (n + 1), 64);  // all_to_all: steps, then elements for each member
    g.slot_bytes = round_up(std::max(g.slot_bytes, 64 * n), 64);
    g.slot_stride = round_up(checked_add(g.slot_bytes, trailer, kWhat), kPage) + kSkew;
    g.mail_bytes = round_up(std::max(g.mail_bytes, i64{64}), 64);
    g.mail_stride =
        2 * static_cast<i64>(sizeof(MailEnd)) + kMailRing * (g.mail_bytes + static_cast<i64>(sizeof(MailChunk)));
    g.mail_stride = round_up(g.mail_stride, kPage) + kSkew;
    g.lines_at = round_up(at, kPage);
    g.notes_at = round_up(g.lines_at + n * static_cast<i64>(sizeof(Line)), kPage);
    g.slots_at = round_up(g.notes_at + n * kRing * static_cast<i64>(sizeof(Note)), kPage);
    g.mail_at = checked_add(g.slots_at, checked_mul(n * kRing, g.slot_stride, kWhat), kWhat);
    g.mail_at = round_up(g.mail_at, kPage);
    g.end = checked_add(g.mail_at, checked_mul(n * n, g.mail_stride, kWhat), kWhat);
    at = g.end;
  }
  return round_up(at, kPage);
}

Region::Region(i64 world, std::vector<Group> groups) : world_(world), groups_(std::move(groups)) {
  bytes_ = lay_out(world, groups_);
  void* p = mmap(nullptr, static_cast<size_t>(bytes_), PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED)
    fail(Code::does_not_fit,
         "[local world] got no shared memory of {} bytes for {} ranks: {}; hint: smaller slot_bytes", bytes_, world,
         std::strerror(errno));
  base_ = static_cast<std::byte*>(p);
}

Region::~Region() { munmap(base_, static_cast<size_t>(bytes_)); }

RankState& Region::rank(i64 r) const { return *at<RankState>(ranks_at() + r * static_cast<i64>(sizeof(RankState))); }

std::optional<std::pair<i64, std::string>> Region::failure() const {
  auto& h = header();
  std::uint32_t s = h.state.load(std::memory_order_acquire);
  if (s == 0) return std::nullopt;
  for (int i = 0; s == 1 && i < 100000; i++) {
    sched_yield();
    s = h.state.load(std::memory_order_acquire);
  }
  if (s == 1) return std::pair<i64, std::string>(-1, "a rank was lost while it reported a failure");
  return std::pair<i64, std::string>(h.rank, h.text);
}

void Region::poison(i64 rank, std::string_view text) {
  auto& h = header();
  std::uint32_t sound = 0;
  if (h.state.compare_exchange_strong(sound, 1, std::memory_order_acq_rel)) {
    h.rank = static_cast<std::int32_t>(rank);
    size_t n = std::min(text.size(), sizeof h.text - 1);
    std::memcpy(h.text, text.data(), n);
    h.text[n] = 0;
    h.state.store(2, std::memory_order_release);
  }
  for (auto& g : groups_)
    for (i64 m = 0; m < g.size(); m++) futex_wake(line(g, m).started);  // who sleeps at a mailbox wakes by itself
}

std::vector<OpInfo> Region::last_operations(i64 r) const {
  std::vector<OpInfo> all;
  auto& state = rank(r);
  u64 n = state.operations.load(std::memory_order_acquire);
  for (u64 s = n > static_cast<u64>(kLastOps) ? n - static_cast<u64>(kLastOps) + 1 : 1; s <= n; s++) {
    auto& rec = announce(r, s);
    if (rec.sequence.load(std::memory_order_acquire) != s) continue;
    OpInfo op;
    op.sequence = s;
    u64 k = rec.kinds.load(std::memory_order_relaxed);
    op.kind = static_cast<Kind>(k & 0xff);
    op.dtype = static_cast<DType>(k >> 8 & 0xff);
    op.join = static_cast<Join>(k >> 16 & 0xff);
    op.state = static_cast<OpRecord::State>(rec.state.load(std::memory_order_relaxed));
    op.group = static_cast<i64>(k >> 32);
    op.count = rec.count.load(std::memory_order_relaxed);
    op.first_step = rec.first_step.load(std::memory_order_relaxed);
    op.steps = rec.steps.load(std::memory_order_relaxed);
    op.root = rec.root.load(std::memory_order_relaxed);
    op.index = rec.index.load(std::memory_order_relaxed);
    char text[kWhatBytes];
    for (size_t i = 0; i < std::size(rec.what); i++) {
      u64 w = rec.what[i].load(std::memory_order_relaxed);
      std::memcpy(text + 8 * i, &w, 8);
    }
    text[kWhatBytes - 1] = 0;
    op.what = text;
    all.push_back(std::move(op));
  }
  return all;
}

std::string Region::title(i64 rank) const {
  const auto r = static_cast<size_t>(rank);
  return r < names.size() && !names[r].empty() ? fmt::format("rank {} ({})", rank, names[r])
                                               : fmt::format("rank {}", rank);
}

std::string Region::phase(i64 r) const {
  const RankState& state = rank(r);
  char text[sizeof state.phase + 1] = {};
  for (size_t i = 0; i < std::size(state.phase); i++) {
    u64 w = state.phase[i].load(std::memory_order_relaxed);
    std::memcpy(text + 8 * i, &w, 8);
  }
  const i64 step = state.step.load(std::memory_order_relaxed);
  return step > 0 ? fmt::format("{} step {}", text, step) : text;
}

void Region::set_phase(i64 r, std::string_view phase, i64 step) {
  RankState& state = rank(r);
  for (size_t i = 0; i < std::size(state.phase); i++) {
    u64 w = 0;
    if (8 * i < phase.size()) std::memcpy(&w, phase.data() + 8 * i, std::min<size_t>(8, phase.size() - 8 * i));
    state.phase[i].store(w, std::memory_order_relaxed);
  }
  state.step.store(step, std::memory_order_relaxed);
}

std::string Region::group_name(i64 group) const {
  return fmt::format("{{{}}}", fmt::join(groups_[static_cast<size_t>(group)].ranks, ","));
}

namespace {
// The low half of a counter: little endian.
std::uint32_t* low_half(std::atomic<u64>& word) { return reinterpret_cast<std::uint32_t*>(&word); }
static_assert(std::endian::native == std::endian::little);
}  // namespace

void futex_wait(std::atomic<u64>& word, u64 seen, i64 ns) {
  timespec t{ns / 1000000000, ns % 1000000000};
  syscall(SYS_futex, low_half(word), FUTEX_WAIT, static_cast<std::uint32_t>(seen), &t, nullptr, 0);
}

void futex_wake(std::atomic<u64>& word) {
  syscall(SYS_futex, low_half(word), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

i64 now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000ll + t.tv_nsec;
}

}  // namespace plait::comm
