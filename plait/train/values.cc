#include "plait/train/values.h"

#include <cstring>
#include <sstream>

#include "plait/tensor/element.h"

namespace plait::train {

std::string ValueDifference::text() const {
  return fmt::format("{} ({}) of step {} on rank {}, {}: got {:.9g}, want {:.9g}", label, op, step, rank, where, got,
                     want);
}

void Values::watch(RankTrainer& t) {
  t.micro_executor().watch([this, &t](const Call& call, ValueId v, const View& view) { see(t, call, v, view); });
}

std::string Values::told() const {
  std::string lines = std::to_string(compared_);
  if (!first_) return lines;
  const auto& [step, token, call] = first_at_;
  for (i64 number : {step, token, call, first_->layer, first_->rank}) lines += fmt::format("\n{}", number);
  for (double number : {first_->got, first_->want}) lines += fmt::format("\n{:.17g}", number);
  for (auto& text : {first_->label, first_->op, first_->where}) lines += "\n" + text;
  return lines;
}

void Values::hear(const std::string& told) {
  std::vector<std::string> lines;
  std::istringstream in(told);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  PLAIT_CHECK(lines.size() == 1 || lines.size() == 11, "a rank told {} lines", lines.size());
  auto whole = [&](size_t i) { return std::stoll(lines[i]); };
  compared_ += whole(0);
  if (lines.size() == 1) return;
  const std::tuple<i64, i64, i64> at{whole(1), whole(2), whole(3)};
  if (first_ && first_at_ <= at) return;
  first_at_ = at;
  first_ = ValueDifference{lines[8],           lines[9], whole(4), whole(1), whole(5), lines[10], std::stod(lines[6]),
                           std::stod(lines[7])};
}

void Values::see(const RankTrainer& t, const Call& call, ValueId v, const View& view) {
  const Value& x = graph_->logical(v);
  bool whole = x.node >= 0 && x.type != Type::sum && view.elements() > 0;
  for (auto& a : graph_->of(v)) whole &= a.join == Joined::copy;
  if (!whole) return;
  const std::pair key{t.step(), graph_->origin[static_cast<size_t>(v)]};
  if (oracle_ == nullptr) {
    Tensor copy(view.dtype, view.box);
    std::memcpy(copy.data, view.data, static_cast<size_t>(bytes_of(view.dtype, view.elements())));
    kept_.insert_or_assign(key, std::move(copy));
    return;
  }
  auto it = oracle_->kept_.find(key);
  PLAIT_CHECK(it != oracle_->kept_.end(), "the oracle made no {}", x.name);
  auto d = compare(t, key.second, view, it->second);
  std::lock_guard guard(lock_);
  compared_++;
  const std::tuple at{t.step(), t.first_token(), call.step};
  if (d && (!first_ || at < first_at_)) first_ = d, first_at_ = at;
}

/// Row by row; the oracle's batch has all tokens of the step.
std::optional<ValueDifference> Values::compare(const RankTrainer& t, ValueId v, const View& got,
                                               const View& want) const {
  const Value& x = graph_->graph.at(v);
  const auto tokens = x.dims.find('T');
  const i64 width = bytes_of(got.dtype, 1);
  Box rows = got.box;
  const i64 run = rows.empty() ? 1 : rows.back().size();
  if (!rows.empty()) rows.back().end = rows.back().begin + 1;
  std::optional<ValueDifference> d;
  for_each(rows, [&](const std::vector<i64>& row) {
    std::vector<i64> at = row;
    if (tokens != std::string::npos) at[tokens] += t.first_token();
    i64 a = got.at(row), b = want.at(at);
    auto same = [&](i64 n) {
      return std::memcmp(got.as<std::byte>() + a * width, want.as<std::byte>() + b * width,
                         static_cast<size_t>(n * width)) == 0;
    };
    if (d || same(run)) return;
    for (; same(1); a++, b++)
      if (!at.empty()) at.back()++;
    const Node& n = graph_->graph.nodes[static_cast<size_t>(x.node)];
    d = ValueDifference{x.name,         n.op->name,     n.layer,
                        t.step(),       t.rank(),       fmt::format("[{}]", fmt::join(at, ", ")),
                        number(got, a), number(want, b)};
  });
  return d;
}

}  // namespace plait::train
