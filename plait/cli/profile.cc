#include "plait/cli/profile.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "plait/cli/table.h"
#include "plait/comm/local/measure.h"
#include "plait/exec/fusion.h"

namespace plait::cli {

namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kKinds[] = {"kernel", "communication", "waiting", "rest"};

/// "layers.3.wo" -> "wo"
std::string without_layer(const std::string& label) {
  if (label.rfind("layers.", 0) != 0) return label;
  return label.substr(label.find('.', 7) + 1);
}

double median(std::vector<double> v) { return v.empty() ? 0 : comm::quantile(v, 0.5); }

Json json_of(const Work& w) {
  return {w.f32_flops, w.bf16_flops, w.int8_flops, w.weight_bytes, w.cache_bytes, w.other_bytes};
}

Work work_of_json(const Json& j) { return {j.at(0), j.at(1), j.at(2), j.at(3), j.at(4), j.at(5)}; }

struct Sums {
  i64 calls = 0;
  std::vector<double> s;  // by step
  Work work;              // of all steps
};

}  // namespace

CallKey key_of(const plait::Program& p, const Executor::Item& item) {
  const Call& c = p.calls[item.first];
  const Step& st = p.step(c);
  CallKey key{ProfileRow::Kind::kernel, "", without_layer(p.label(c)), ""};
  if (c.kind != Call::Kind::kernel) {
    key.kind = ProfileRow::Kind::communication;
    const Sizes sizes = static_sizes(p.sharded->graph);
    const Binding b(p.sharded->plan, sizes);
    for (auto& k : recognise(p.sharded->of(st.source), p.sharded->of(st.value), p.sharded->logical(st.source).dims, b))
      key.name += (key.name.empty() ? "" : " + ") + k.op;
    return key;
  }
  key.name = item.fusion != nullptr ? item.fusion->name : p.node(c).op->name;
  for (size_t i = item.first; i < item.first + item.count && key.type.empty(); i++) {
    const Node& n = p.node(p.calls[i]);
    if (n.op->name == "matmul" || n.op->name == "embedding")
      key.type = name_of(p.sharded->graph.at(n.in[n.op->name == "matmul" ? 1 : n.in.size() - 1]).dtype);
  }
  return key;
}

double ProfileRow::limit_s(const RankLimits& l) const {
  double flops_s = 0;
  const double bf16 = l.peaks.bf16_flops > 0 ? l.peaks.bf16_flops : l.peaks.f32_flops;
  for (auto [flops, peak] :
       {std::pair{work.f32_flops, l.peaks.f32_flops}, {work.bf16_flops, bf16}, {work.int8_flops, l.peaks.int8_flops}})
    if (peak > 0) flops_s += flops / peak;
  return std::max(flops_s, l.bytes_per_s > 0 ? work.bytes() / l.bytes_per_s : 0);
}

PhaseProfile::PhaseProfile(serve::Session& s, i64 cached, i64 sequences)
    : session_(s), cached_(cached), sequences_(sequences) {
  s.executor().record(&recording_);
}

PhaseProfile::~PhaseProfile() { session_.executor().record(nullptr); }

void PhaseProfile::end_step(double wall_s, double sample_s, double agree_s, double agree_wait_s) {
  steps_.push_back({recording_.runs.size(), wall_s, sample_s, agree_s, agree_wait_s});
}

std::string PhaseProfile::text() {
  Executor& e = session_.executor();
  std::map<CallKey, Sums> rows;
  auto add = [&](const CallKey& key, size_t step, i64 calls, double s, const Work& work) {
    Sums& sums = rows[key];
    sums.s.resize(steps_.size());
    sums.s[step] += s;
    sums.calls += calls;
    sums.work += work;
  };
  double cached = static_cast<double>(cached_);
  size_t run = 0;
  std::map<Symbols, std::pair<std::vector<Executor::Item>, std::vector<CallKey>>> listed;
  for (size_t step = 0; step < steps_.size(); step++) {
    double inside = 0;
    for (; run < steps_[step].runs; run++) {
      const Recording::Run& r = recording_.runs[run];
      const size_t end = run + 1 < recording_.runs.size() ? recording_.runs[run + 1].first : recording_.events.size();
      e.bind(r.symbols);
      auto& [items, keys] = listed[r.symbols];
      if (items.empty()) {
        items = e.items();
        for (auto& item : items) keys.push_back(key_of(e.program(), item));
      }
      const auto count = static_cast<double>(sequences_);
      const double tokens = static_cast<double>(r.symbols.size.at('T')) / count;  // of a sequence
      const Attended attended{count * (tokens * cached + tokens * (tokens + 1) / 2), count * (cached + tokens)};
      cached += tokens;
      for (size_t i = r.first; i < end; i++) {
        const CallEvent& event = recording_.events[i];
        const auto& item = items[event.item];
        const double s = event.end_s - event.begin_s;
        inside += s;
        if (item.kernel.empty() && keys[event.item].kind == ProfileRow::Kind::kernel) {  // nothing to do
          add({ProfileRow::Kind::rest, "between kernels", "", ""}, step, 0, s, {});
          continue;
        }
        add(keys[event.item], step, e.program().calls[item.first].kind != Call::Kind::wait ? 1 : 0, s - event.wait_s,
            e.work(item, attended));
        if (event.wait_s > 0) add({ProfileRow::Kind::waiting, "for other ranks", "", ""}, step, 1, event.wait_s, {});
      }
    }
    const Step& st = steps_[step];
    add({ProfileRow::Kind::kernel, "sample", "token", ""}, step, 1, st.sample_s, {});
    if (e.program().sharded->plan.mesh().world() > 1) {
      add({ProfileRow::Kind::communication, "all_reduce", "token agreement", ""}, step, 1, st.agree_s - st.agree_wait_s,
          {});
      add({ProfileRow::Kind::waiting, "for other ranks", "", ""}, step, 1, st.agree_wait_s, {});
    }
    add({ProfileRow::Kind::rest, "between kernels", "", ""}, step, 0,
        std::max(0.0, st.wall_s - inside - st.sample_s - st.agree_s), {});
  }
  Json j = Json::array();
  const auto steps = static_cast<double>(std::max<size_t>(steps_.size(), 1));
  for (auto& [key, sums] : rows)
    j.push_back({static_cast<int>(key.kind), key.name, key.of, key.type, static_cast<double>(sums.calls) / steps,
                 median(sums.s), json_of(sums.work * (1 / steps))});
  return j.dump();
}

std::vector<ProfileRow> profile_rows(const std::vector<std::string>& ranks) {
  std::map<CallKey, ProfileRow> rows;
  const auto count = static_cast<double>(ranks.size());
  for (auto& text : ranks) {
    for (auto& j : Json::parse(text)) {
      const CallKey key{static_cast<ProfileRow::Kind>(j.at(0).get<int>()), j.at(1), j.at(2), j.at(3)};
      auto [it, fresh] = rows.try_emplace(key);
      ProfileRow& row = it->second;
      const double s = j.at(5);
      row.kind = key.kind, row.name = key.name, row.of = key.of, row.type = key.type;
      row.calls = std::max<i64>(row.calls, std::llround(j.at(4).get<double>()));
      row.s += s / count;
      row.least_s = fresh ? s : std::min(row.least_s, s);
      row.most_s = std::max(row.most_s, s);
      row.work += work_of_json(j.at(6)) * (1 / count);
    }
  }
  std::vector<ProfileRow> out;
  for (auto& [key, row] : rows) out.push_back(row);
  return median_rows({out});
}

std::vector<ProfileRow> median_rows(const std::vector<std::vector<ProfileRow>>& repeats) {
  std::map<CallKey, std::vector<const ProfileRow*>> all;
  for (auto& rows : repeats)
    for (auto& row : rows) all[{row.kind, row.name, row.of, row.type}].push_back(&row);
  std::vector<ProfileRow> out;
  double sum = 0;
  for (auto& [key, same] : all) {
    auto of = [&](double ProfileRow::*part) {
      std::vector<double> v;
      for (auto* row : same) v.push_back(row->*part);
      return median(v);
    };
    ProfileRow row = *same[0];
    row.s = of(&ProfileRow::s), row.least_s = of(&ProfileRow::least_s), row.most_s = of(&ProfileRow::most_s);
    sum += row.s;
    out.push_back(row);
  }
  for (auto& row : out) row.share = sum > 0 ? row.s / sum : 0;
  std::stable_sort(out.begin(), out.end(), [](auto& a, auto& b) { return a.s > b.s; });
  return out;
}

std::string profile_text(const std::vector<ProfileRow>& rows, const RankLimits& limits, i64 ranks, i64 most_rows) {
  const bool many = ranks > 1;
  std::vector<std::string> titles{"what",  "of", "weights", "calls", "us",
                                  "share", "MB", "GB/s",    "GF/s",  "of the limit"};
  std::string sides = "lllrrrrrrr";
  if (many) titles.insert(titles.begin() + 5, "ranks"), sides.insert(5, "r");
  Table t(sides, titles);
  auto number = [](double x, const char* unit_free) {
    return x <= 0 ? std::string() : fmt::format(fmt::runtime(unit_free), x);
  };
  double sum = 0, least = 0;
  i64 shown = 0;
  for (auto& row : rows) {
    sum += row.s;
    if (row.kind == ProfileRow::Kind::kernel) least += row.limit_s(limits);
    if (shown++ >= most_rows) continue;
    const bool kernel = row.kind == ProfileRow::Kind::kernel;
    const double bytes = row.work.bytes(), flops = row.work.flops(), limit = kernel ? row.limit_s(limits) : 0;
    std::vector<std::string> cells{
        kernel ? row.name
               : fmt::format("{}{}{}", kKinds[static_cast<int>(row.kind)], row.name.empty() ? "" : ": ", row.name),
        row.of,
        row.type,
        row.calls > 0 ? std::to_string(row.calls) : "",
        fmt::format("{:.1f}", 1e6 * row.s),
        fmt::format("{:.1f} %", 100 * row.share),
        number(bytes / 1e6, "{:.3f}"),
        number(row.s > 0 ? bytes / row.s / 1e9 : 0, "{:.1f}"),
        number(row.s > 0 ? flops / row.s / 1e9 : 0, "{:.1f}"),
        limit > 0 && row.s > 0 ? fmt::format("{:.0f} %", 100 * limit / row.s) : ""};
    if (many) cells.insert(cells.begin() + 5, fmt::format("{:.1f} to {:.1f}", 1e6 * row.least_s, 1e6 * row.most_s));
    t.row(cells);
  }
  std::string s = t.text(2);
  if (shown > most_rows) s += fmt::format("  and {} rows more (--top)\n", shown - most_rows);
  return s + fmt::format("  in all {:.1f} us; the kernels' limits are {:.1f} us\n", 1e6 * sum, 1e6 * least);
}

nlohmann::ordered_json profile_json(const std::vector<ProfileRow>& rows, const RankLimits& limits) {
  Json j = Json::array();
  for (auto& row : rows) {
    const bool kernel = row.kind == ProfileRow::Kind::kernel;
    const double limit = kernel ? row.limit_s(limits) : 0;
    j.push_back({{"kind", kKinds[static_cast<int>(row.kind)]},
                 {"op", row.name},
                 {"label", row.of},
                 {"weights", row.type.empty() ? Json() : Json(row.type)},
                 {"calls", row.calls},
                 {"s", row.s},
                 {"least_s", row.least_s},
                 {"most_s", row.most_s},
                 {"share", row.share},
                 {"bytes", row.work.bytes()},
                 {"weight_bytes", row.work.weight_bytes},
                 {"cache_bytes", row.work.cache_bytes},
                 {"flops", row.work.flops()},
                 {"limit_s", limit > 0 ? Json(limit) : Json()},
                 {"limit_share", limit > 0 && row.s > 0 ? Json(limit / row.s) : Json()}});
  }
  return j;
}

}  // namespace plait::cli
