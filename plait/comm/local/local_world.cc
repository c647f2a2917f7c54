#include "plait/comm/local/local_world.h"

#include <fmt/ranges.h>
#include <sched.h>

#include <algorithm>

#include "plait/comm/local/local_communicator.h"

namespace plait::comm {

namespace {

i64 processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return std::max<i64>(1, CPU_COUNT(&set));
}

}  // namespace

LocalWorld::LocalWorld(i64 world, LocalOptions options) : world_(world), options_(options) {
  if (world < 1 || world > 4096) fail(Code::usage, "[local world] got {} ranks, want 1 to 4096", world);
  if (!(options.deadline_s > 0)) fail(Code::usage, "[local world] got a deadline of {} s", options.deadline_s);
  if (options.slot_bytes < 64 || options.mail_bytes < 64)
    fail(Code::usage, "[local world] got slots of {} and mailboxes of {} bytes, want 64 or more", options.slot_bytes,
         options.mail_bytes);
  if (options_.ranks_per_core <= 0)
    options_.ranks_per_core = static_cast<double>(world) / static_cast<double>(processors());
}

i64 LocalWorld::add_group(std::vector<i64> ranks, i64 slot_bytes) {
  if (started()) fail(Code::usage, "[local world] a group was added after start");
  auto sorted = ranks;
  std::sort(sorted.begin(), sorted.end());
  bool distinct = std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end();
  if (ranks.empty() || !distinct || sorted.front() < 0 || sorted.back() >= world_)
    fail(Code::usage, "[local world] got the group {{{}}}, want distinct ranks below {}", fmt::join(ranks, ","),
         world_);
  Group g;
  g.ranks = std::move(ranks);
  g.slot_bytes = slot_bytes > 0 ? slot_bytes : options_.slot_bytes;
  g.mail_bytes = std::min(options_.mail_bytes, g.slot_bytes);
  for (size_t i = 0; i < groups_.size(); i++)
    if (groups_[i].ranks == g.ranks) {
      groups_[i].slot_bytes = std::max(groups_[i].slot_bytes, g.slot_bytes);
      return static_cast<i64>(i);
    }
  groups_.push_back(std::move(g));
  return static_cast<i64>(groups_.size()) - 1;
}

void LocalWorld::start() {
  if (started()) return;
  region_ = std::make_shared<Region>(world_, groups_);
  region_->names = options_.names;
}

std::unique_ptr<Communicator> LocalWorld::join(i64 group, i64 rank) const {
  if (!started()) fail(Code::usage, "[local world] rank {} joins before start", rank);
  if (group < 0 || group >= static_cast<i64>(groups_.size()))
    fail(Code::usage, "[local world] got group {}, there are {}", group, groups_.size());
  auto& members = region_->groups()[static_cast<size_t>(group)].ranks;
  auto m = std::find(members.begin(), members.end(), rank);
  if (m == members.end())
    fail(Code::usage, "[local world] rank {} is not in group {} {}", rank, group, region_->group_name(group));
  auto& presence = region_->rank(rank).presence;
  if (presence.load() == RankState::absent) presence.store(RankState::joined);
  return std::make_unique<LocalCommunicator>(region_, group, m - members.begin(), options_.deadline_s,
                                             options_.ranks_per_core);
}

void LocalWorld::poison(i64 rank, std::string_view text) const {
  PLAIT_CHECK(started(), "poison before start");
  region_->poison(rank, text);
}

void LocalWorld::leave(i64 rank) const {
  PLAIT_CHECK(started() && rank >= 0 && rank < world_, "rank {} leaves", rank);
  region_->rank(rank).presence.store(RankState::left, std::memory_order_release);
}

std::optional<LocalWorld::Failure> LocalWorld::failure() const {
  if (!started()) return std::nullopt;
  auto f = region_->failure();
  if (!f) return std::nullopt;
  return Failure{f->first, f->second};
}

i64 LocalWorld::region_bytes() const {
  if (started()) return region_->bytes();
  auto groups = groups_;
  return Region::lay_out(world_, groups);
}

void LocalWorld::set_phase(i64 rank, std::string_view phase, i64 step) const {
  PLAIT_CHECK(started() && rank >= 0 && rank < world_, "phase of rank {}", rank);
  region_->set_phase(rank, phase, step);
}

std::string LocalWorld::title(i64 rank) const {
  return started() && rank >= 0 ? region_->title(rank) : fmt::format("rank {}", rank);
}

std::string LocalWorld::place(i64 rank) const {
  const std::string phase = started() && rank >= 0 ? region_->phase(rank) : "";
  return phase.empty() ? title(rank) : title(rank) + ", " + phase;
}

std::string LocalWorld::doing(i64 rank) const {
  PLAIT_CHECK(started() && rank >= 0 && rank < world_, "doings of rank {}", rank);
  std::string s = region_->phase(rank);
  if (!s.empty()) s = "in " + s + ", ";
  auto ops = region_->last_operations(rank);
  if (ops.empty()) return s + "before its first collective";
  auto& op = ops.back();
  return s + fmt::format("{} {}, operation {} of group {}", op.state == OpRecord::done ? "after" : "in", to_string(op),
                         op.index, region_->group_name(op.group));
}

std::string LocalWorld::last_operations(i64 rank) const {
  PLAIT_CHECK(started() && rank >= 0 && rank < world_, "operations of rank {}", rank);
  constexpr const char* kStates[] = {"started", "waiting", "done"};
  std::string s;
  for (auto& op : region_->last_operations(rank))
    s += fmt::format("{:>8} {:<8} {} in group {}, operation {}\n", op.sequence, kStates[op.state], to_string(op),
                     region_->group_name(op.group), op.index);
  return s;
}

}  // namespace plait::comm
