#include "plait/placement/plan.h"

#include <algorithm>
#include <cctype>
#include <numeric>
#include <set>
#include <sstream>

#define TOML_EXCEPTIONS 1
#include <toml++/toml.h>

namespace plait {

namespace {
constexpr i64 kMostRanks = 1 << 14, kMostAxes = 8;
constexpr size_t kMostPlanBytes = 256 << 10;
constexpr std::string_view kDims = "TRDNKHFVELCBPW";

i64 integer(const toml::node& n, std::string_view where, std::string_view key, i64 low, i64 high) {
  auto v = n.value_exact<std::int64_t>();
  auto line = n.source().begin.line;
  if (!v) fail(Code::bad_file, "[{}] line {}: {} is not an integer", where, line, key);
  if (*v < low || *v > high)
    fail(Code::bad_file, "[{}] line {}: {} = {}, want {} to {}", where, line, key, *v, low, high);
  return *v;
}

std::string text_of(const toml::node& n, std::string_view where, std::string_view key) {
  auto v = n.value_exact<std::string>();
  if (!v) fail(Code::bad_file, "[{}] line {}: {} is not a string", where, n.source().begin.line, key);
  return *v;
}

PlanAxis parse_axis(const toml::table& t, std::string_view where) {
  PlanAxis a;
  for (auto&& [key, node] : t) {
    auto line = node.source().begin.line;
    if (key == "name") {
      a.name = text_of(node, where, "axis.name");
    } else if (key == "size") {
      a.size = integer(node, where, "axis.size", 1, kMostRanks);
    } else if (key == "dims") {
      for (char c : text_of(node, where, "axis.dims")) {
        if (c == ' ') continue;
        if (kDims.find(c) == std::string_view::npos || a.dims.find(c) != std::string::npos)
          fail(Code::bad_file, "[{}] line {}: axis.dims has '{}', want each of {} at most once", where, line, c, kDims);
        a.dims += c;
      }
    } else if (key == "unit") {
      std::string u = text_of(node, where, "axis.unit");
      if (u != "leaf" && u != "sequence")
        fail(Code::bad_file, "[{}] line {}: axis.unit = \"{}\", want leaf or sequence", where, line, u);
      a.data = u == "sequence";
    } else if (key == "weights") {
      auto* list = node.as_array();
      if (list == nullptr) fail(Code::bad_file, "[{}] line {}: axis.weights is no list", where, line);
      for (auto& w : *list) a.weights.push_back(integer(w, where, "axis.weights", 0, 1 << 20));
    } else {
      fail(Code::bad_file, "[{}] line {}: unknown key axis.{}; known: name size dims weights unit", where, line,
           key.str());
    }
  }
  return a;
}
}  // namespace

Mesh Plan::mesh() const {
  std::vector<Axis> m;
  for (auto& a : axes) m.push_back({a.name, a.size});
  return Mesh(std::move(m));
}

void Plan::verify() const {
  std::set<std::string> names;
  i64 ranks = 1;
  if (static_cast<i64>(axes.size()) > kMostAxes)
    fail(Code::usage, "plan: got {} axes, want at most {}", axes.size(), kMostAxes);
  bool heads = false, groups = false;
  std::string inside;  // an axis that cuts T inside sequences
  for (auto& a : axes) {
    const bool word =
        std::all_of(a.name.begin(), a.name.end(), [](unsigned char c) { return std::isalnum(c) || c == '_'; });
    if (a.name.empty() || a.name.size() > 32 || !word)
      fail(Code::usage, "plan: got an axis name of {} bytes, want 1 to 32 letters, digits and _", a.name.size());
    if (!names.insert(a.name).second) fail(Code::usage, "plan: axis name '{}' is there twice", a.name);
    if (a.size < 1 || a.size > kMostRanks || (ranks *= a.size) > kMostRanks)
      fail(Code::usage, "plan: axis {} of size {}: want 1 to {} ranks in all", a.name, a.size, kMostRanks);
    if (!a.weights.empty()) {
      if (static_cast<i64>(a.weights.size()) != a.size)
        fail(Code::usage, "plan: axis {} has {} weights for {} coordinates", a.name, a.weights.size(), a.size);
      if (std::accumulate(a.weights.begin(), a.weights.end(), i64{0}) <= 0)
        fail(Code::usage, "plan: the weights of axis {} add up to nothing", a.name);
    }
    if (a.dims.find('L') != std::string::npos && a.dims != "L")
      fail(Code::usage, "plan: axis {} cuts layers and other dims", a.name);
    if (a.size > 1 && a.data && a.dims.find('T') != std::string::npos && !inside.empty())
      fail(Code::usage,
           "plan: axis {} cuts T between sequences inside of axis {}, which cuts it inside them; want data axes first",
           a.name, inside);
    if (a.size > 1 && !a.data && a.dims.find('T') != std::string::npos) inside = a.name;
    if (a.size > 1 && a.dims.find_first_of("NK") != std::string::npos)
      (a.dims.find('N') < a.dims.find('K') ? heads : groups) = true;
  }
  if (heads && groups)
    fail(Code::usage,
         "plan: N leads on one axis and K on another: the sum over one KV head would span both; want the same order of "
         "N and K on all axes");
}

std::string Plan::text() const {
  std::string s = "plan = 1\n";
  if (store_sums) s += "store_sums = true\n";
  for (auto& a : axes) {
    std::string dims;
    for (char c : a.dims) dims += (dims.empty() ? "" : " ") + std::string(1, c);
    s += fmt::format("\n[[axis]]\nname = \"{}\"\nsize = {}\ndims = \"{}\"\n", a.name, a.size, dims);
    if (a.data) s += "unit = \"sequence\"\n";
    if (!a.weights.empty()) s += fmt::format("weights = [{}]\n", fmt::join(a.weights, ", "));
  }
  if (!leaves.empty()) s += "\n[leaves]\n";
  for (auto& [dim, leaf] : leaves) s += fmt::format("{} = {}\n", dim, leaf);
  return s;
}

Plan Plan::parse(std::string_view toml_text, std::string_view where) {
  if (toml_text.size() > kMostPlanBytes)
    fail(Code::bad_file, "[{}] got {} bytes, want at most {} for a plan", where, toml_text.size(), kMostPlanBytes);
  // The parser recurses over the parts of a dotted key, of which a plan has none.
  constexpr i64 kMostDots = 256;
  i64 line = 1, dots = 0;
  for (char c : toml_text) {
    dots = c == '\n' ? 0 : dots + (c == '.');
    line += c == '\n';
    if (dots > kMostDots)
      fail(Code::bad_file, "[{}] line {}: got more than {} dots, want keys without", where, line, kMostDots);
  }
  toml::table t;
  try {
    t = toml::parse(toml_text, where);
  } catch (const toml::parse_error& e) {
    fail(Code::bad_file, "[{}] line {}: {}", where, e.source().begin.line, e.description());
  }
  Plan p;
  for (auto&& [key, node] : t) {
    if (key == "plan") {
      integer(node, where, "plan", 1, 1);
    } else if (key == "store_sums") {
      auto v = node.value_exact<bool>();
      if (!v)
        fail(Code::bad_file, "[{}] line {}: store_sums is neither true nor false", where, node.source().begin.line);
      p.store_sums = *v;
    } else if (key == "leaves" && node.is_table()) {
      for (auto&& [dim, leaf] : *node.as_table()) {
        if (dim.str().size() != 1 || kDims.find(dim.str()[0]) == std::string_view::npos)
          fail(Code::bad_file, "[{}] line {}: leaves has '{}', want a dim of {}", where, leaf.source().begin.line,
               dim.str(), kDims);
        p.leaves[dim.str()[0]] = integer(leaf, where, "leaves", 1, i64{1} << 32);
      }
    } else if (key == "axis" && node.is_array_of_tables()) {
      for (auto& a : *node.as_array()) p.axes.push_back(parse_axis(*a.as_table(), where));
    } else {
      fail(Code::bad_file, "[{}] line {}: unknown key '{}'; known: plan store_sums leaves [[axis]]", where,
           node.source().begin.line, key.str());
    }
  }
  try {
    p.verify();
  } catch (const Error& e) { fail(Code::bad_file, "[{}] {}", where, e.what()); }
  return p;
}

Plan tensor_parallel(i64 size, std::vector<i64> weights) {
  return Plan{{{"tp", size, "NKFV", false, std::move(weights)}}};
}

}  // namespace plait
