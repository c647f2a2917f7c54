#include "plait/train/values.h"

#include <cstring>

namespace plait::train {

namespace {

double number(const View& v, i64 i) {
  switch (v.dtype) {
    case DType::f64:
      return v.as<double>()[i];
    case DType::bf16:
      return static_cast<float>(v.as<bf16>()[i]);
    case DType::i32:
      return v.as<std::int32_t>()[i];
    default:
      PLAIT_CHECK(v.dtype == DType::f32, "no number in {}", name_of(v.dtype));
      return v.as<float>()[i];
  }
}

}  // namespace

std::string ValueDifference::text() const {
  return fmt::format("{} ({}) of step {} on rank {}, {}: got {:.9g}, want {:.9g}", label, op, step, rank, where, got,
                     want);
}

void Values::watch(RankTrainer& t) {
  t.micro_executor().watch([this, &t](const Call& call, ValueId v, const View& view) { see(t, call, v, view); });
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
