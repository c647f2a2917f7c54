// Placements as text, and the recognised cases of a reshard.
#include <charconv>

#include "plait/placement/placement.h"

namespace plait {

Holders Holders::parse(std::string_view s) {
  if (s == "all") return {};
  Holders h = none();
  if (s == "none") return h;
  constexpr size_t kMostRanges = 64;
  while (!s.empty()) {
    auto comma = s.find(',');
    std::string_view part = s.substr(0, comma);
    s = comma == std::string_view::npos ? std::string_view{} : s.substr(comma + 1);
    Range r;
    auto [p, e] = std::from_chars(part.data(), part.data() + part.size(), r.begin);
    r.end = r.begin;
    bool ok = e == std::errc{};
    if (ok && p != part.data() + part.size()) {
      auto [q, f] = std::from_chars(p + 1, part.data() + part.size(), r.end);
      ok = *p == '-' && f == std::errc{} && q == part.data() + part.size();
    }
    if (!ok || r.begin < 0 || r.end < r.begin || r.end >= (i64{1} << 40))
      fail(Code::bad_file, "holders: got '{}', want coordinates such as 0,3-5", part.substr(0, 40));
    r.end++;
    if (h.in_.size() == kMostRanges || (!h.in_.empty() && r.begin <= h.in_.back().end))
      fail(Code::bad_file, "holders: got '{}', want at most {} ranges, ascending and apart", part.substr(0, 40),
           kMostRanges);
    h.in_.push_back(r);
  }
  return h;
}

std::string to_string(const Placement& p, const Plan& plan, const std::string& dims) {
  std::string s;
  for (size_t a = 0; a < p.size(); a++) {
    if (plan.axes[a].size == 1) continue;
    std::string one;
    if (p[a].join != Joined::copy) one += name_of(p[a].join);
    if (p[a].dim >= 0) {
      one += fmt::format("/{}{}", p[a].dim, dims[static_cast<size_t>(p[a].dim)]);
      if (p[a].by != dims[static_cast<size_t>(p[a].dim)]) one += fmt::format("by{}", p[a].by);
      if (p[a].owned) one += "!";
    }
    if (!p[a].holders.all()) one += "@" + p[a].holders.text();
    if (!one.empty()) s += (s.empty() ? "" : " ") + plan.axes[a].name + ":" + one;
  }
  return s.empty() ? "whole" : s;
}

Placement parse_placement(std::string_view text, const Plan& plan, const std::string& dims) {
  Placement p(plan.axes.size());
  auto bad = [&](std::string_view what) {
    fail(Code::bad_file, "placement '{}' of [{}]: {}", text.substr(0, 80), dims, what);
  };
  if (text == "whole") return p;
  std::string_view rest = text;
  while (!rest.empty()) {
    auto space = rest.find(' ');
    std::string_view item = rest.substr(0, space);
    rest = space == std::string_view::npos ? std::string_view{} : rest.substr(space + 1);
    auto colon = item.find(':');
    if (colon == std::string_view::npos) bad("no axis");
    size_t a = 0;
    while (a < plan.axes.size() && plan.axes[a].name != item.substr(0, colon)) a++;
    if (a == plan.axes.size())
      bad(fmt::format("no axis '{}' in the plan", item.substr(0, std::min<size_t>(colon, 40))));
    item.remove_prefix(colon + 1);
    for (Joined j : {Joined::sum, Joined::max, Joined::one})
      if (item.substr(0, 3) == name_of(j)) {
        p[a].join = j;
        item.remove_prefix(3);
        break;
      }
    if (item.substr(0, 1) == "/") {
      i64 d = -1;
      auto [q, e] = std::from_chars(item.data() + 1, item.data() + item.size(), d);
      if (e != std::errc{} || d < 0 || d >= static_cast<i64>(dims.size())) bad("a dim that the value has not");
      item.remove_prefix(static_cast<size_t>(q - item.data()));
      if (item.substr(0, 1) != dims.substr(static_cast<size_t>(d), 1)) bad("dim number and name differ");
      p[a].dim = d;
      p[a].by = item[0];
      item.remove_prefix(1);
      if (p[a].by == 'T' && item.substr(0, 3) == "byS") {
        p[a].by = 'S';
        item.remove_prefix(3);
      }
      if (item.substr(0, 1) == "!") {
        p[a].owned = true;
        item.remove_prefix(1);
      }
    }
    if (item.substr(0, 1) == "@") {
      p[a].holders = Holders::parse(item.substr(1));
      item = {};
    }
    if (!item.empty()) bad(fmt::format("'{}' is left over", item.substr(0, 40)));
  }
  return p;
}

std::vector<Collective> recognise(const Placement& have, const Placement& want, const std::string& dims,
                                  const Binding& b) {
  std::vector<Collective> out;
  for (size_t a = 0; a < have.size(); a++) {
    const AxisPlace &h = have[a], &w = want[a];
    if (b.plan().axes[a].size == 1 || h == w) continue;
    const char* op = w.join != Joined::copy                 ? "owner_keeps"
                     : h.join != Joined::copy && h.dim >= 0 ? (w.dim == h.dim ? "sum_overlap" : "sum_gather")
                     : h.join != Joined::copy               ? (w.dim >= 0 ? "reduce_scatter" : "all_reduce")
                     : !(h.holders == w.holders) ? (h.holders.includes(w.holders) && h.dim == w.dim ? "slice" : "send")
                     : h.dim >= 0 && w.dim < 0   ? "all_gather"
                     : h.dim < 0                 ? "slice"
                     : h.dim != w.dim            ? "all_to_all"
                     : w.by == 'S'               ? "prefix_gather"
                                                 : "shift";
    // Axes that do the same thing do it together.
    if (!out.empty() && out.back().op == op)
      out.back().axes.push_back(static_cast<i64>(a));
    else
      out.push_back({op, {static_cast<i64>(a)}});
  }
  (void)dims;
  return out;
}

std::string to_string(const std::vector<Collective>& c, const Plan& plan) {
  std::string s;
  for (auto& x : c) {
    s += (s.empty() ? "" : " + ") + x.op;
    for (size_t i = 0; i < x.axes.size(); i++)
      s += (i > 0 ? "x" : " ") + plan.axes[static_cast<size_t>(x.axes[i])].name;
  }
  return s.empty() ? "nothing" : s;
}

}  // namespace plait
