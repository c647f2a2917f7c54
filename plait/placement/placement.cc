#include "plait/placement/placement.h"

#include <algorithm>

namespace plait {

const char* name_of(Joined j) {
  constexpr const char* kNames[] = {"copy", "sum", "max", "one"};
  return kNames[static_cast<int>(j)];
}

bool Holders::has(i64 c) const {
  if (all_) return true;
  for (auto r : in_)
    if (c >= r.begin && c < r.end) return true;
  return false;
}

bool Holders::includes(const Holders& o) const {
  if (all_) return true;
  if (o.all_) return false;
  for (auto r : o.in_) {
    bool inside = false;
    for (auto m : in_) inside |= m.contains(r);
    if (!inside) return false;
  }
  return true;
}

Holders Holders::operator|(const Holders& o) const {
  if (all_ || o.all_) return {};
  Holders h = none();
  std::vector<Range> v = in_;
  v.insert(v.end(), o.in_.begin(), o.in_.end());
  std::sort(v.begin(), v.end(), [](Range a, Range b) { return a.begin < b.begin; });
  for (auto r : v) {
    if (r.empty()) continue;
    if (!h.in_.empty() && h.in_.back().end >= r.begin)
      h.in_.back().end = std::max(h.in_.back().end, r.end);
    else
      h.in_.push_back(r);
  }
  return h;
}

std::string Holders::text() const {
  if (all_) return "all";
  std::string s;
  for (auto r : in_)
    s += (s.empty() ? "" : ",") + (r.size() == 1 ? std::to_string(r.begin) : fmt::format("{}-{}", r.begin, r.end - 1));
  return s.empty() ? "none" : s;
}

std::optional<i64> Edges::leaf_at(i64 x) const {
  if (given.empty()) {
    if (x == size) return leaves();
    if (x < 0 || x > size || x % unit != 0) return std::nullopt;
    return x / unit;
  }
  auto it = std::lower_bound(given.begin(), given.end(), x);
  if (it == given.end() || *it != x) return std::nullopt;
  return it - given.begin();
}

std::vector<i64> Edges::list() const {
  if (!given.empty()) return given;
  std::vector<i64> v;
  for (i64 i = 0; i <= leaves(); i++) v.push_back(edge(i));
  return v;
}

i64 Sizes::size(char dim) const {
  auto it = dims.find(dim);
  PLAIT_CHECK(it != dims.end(), "dim {} is not bound", dim);
  return it->second.size;
}

Range split(Range r, const Edges& edges, i64 n, i64 i, const std::vector<i64>& weights) {
  if (r.empty()) return {r.begin, r.begin};
  auto first = edges.leaf_at(r.begin), last = edges.leaf_at(r.end);
  PLAIT_CHECK(first && last, "range {} does not lie on leaf edges", to_string(r));
  i64 total = n, before = i, upto = i + 1;
  if (!weights.empty()) {
    total = before = upto = 0;
    for (i64 k = 0; k < n; k++) {
      i64 w = weights[static_cast<size_t>(k)];
      total += w;
      if (k < i) before += w;
      if (k <= i) upto += w;
    }
  }
  const i128 leaves = *last - *first;
  auto at = [&](i64 weight) { return edges.edge(*first + static_cast<i64>(leaves * weight / total)); };
  return {at(before), at(upto)};
}

Binding::Binding(const Plan& plan, const Sizes& sizes) : plan_(plan), sizes_(sizes), mesh_(plan.mesh()) {}

std::vector<Binding::Use> Binding::uses(const Placement& p, i64 dim) {
  std::vector<Use> u;
  for (size_t a = 0; a < p.size(); a++)
    if (p[a].dim == dim) u.push_back({static_cast<i64>(a), p[a].by, p[a].owned});
  return u;
}

/// Used range, without what lower holders own.
Range Binding::resolve(char dim, const std::vector<Use>& cuts, const Coords& at) const {
  const bool linked = dim == 'N' || dim == 'K';
  char leader = dim;
  if (linked && !cuts.empty()) {
    auto& names = plan_.axes[static_cast<size_t>(cuts[0].axis)].dims;
    leader = names.find('N') < names.find('K') ? 'N' : 'K';
  }
  Range r{0, sizes_.size(leader)};
  bool sequences = false;
  for (auto& c : cuts) {
    const PlanAxis& a = plan_.axes[static_cast<size_t>(c.axis)];
    auto i = at[static_cast<size_t>(c.axis)];
    char by = c.by == 'S' ? 'T' : linked ? leader : c.by;
    sequences |= c.by == 'S';
    if (auto g = sizes_.given.find(by); a.data && g != sizes_.given.end()) {
      r = {g->second[static_cast<size_t>(i)], g->second[static_cast<size_t>(i) + 1]};
    } else if (by == 'T' && a.data) {
      r = split(r, Edges{sizes_.size('T'), 1, sizes_.sequence_edges}, a.size, i, a.weights);
    } else {
      r = split(r, sizes_.dims.at(by), a.size, i, a.weights);
    }
  }
  if (linked && leader != dim) {
    i64 group = sizes_.size('N') / sizes_.size('K');
    if (dim == 'K')
      r = {r.begin / group, r.empty() ? r.begin / group : ceil_div(r.end, group)};
    else
      r = {r.begin * group, r.end * group};
  }
  if (sequences && !r.empty()) {  // what causal attention of these tokens needs
    i64 first = r.begin;
    for (i64 e : sizes_.sequence_edges)
      if (e <= r.begin) first = e;
    r.begin = first;
  }
  return r;
}

Range Binding::range(char dim, const std::vector<Use>& cuts, const Coords& at) const {
  if (cuts.empty()) return {0, sizes_.size(dim)};
  i64 index = 0, count = 1;
  for (auto& c : cuts) {
    i64 n = plan_.axes[static_cast<size_t>(c.axis)].size;
    index = index * n + at[static_cast<size_t>(c.axis)];
    count *= n;
  }
  auto& all = known_[{dim, cuts}];
  if (all.empty()) {
    bool owned = false;
    for (auto& c : cuts) owned |= c.owned;
    Coords c = at;
    i64 taken = 0;  // by lower holders; ranges ascend with the coordinates
    for (i64 k = 0; k < count; k++) {
      i64 rest = k;
      for (size_t u = cuts.size(); u-- > 0;) {
        i64 n = plan_.axes[static_cast<size_t>(cuts[u].axis)].size;
        c[static_cast<size_t>(cuts[u].axis)] = rest % n;
        rest /= n;
      }
      Range r = resolve(dim, cuts, c);
      if (owned && !r.empty()) {
        r.begin = std::max(r.begin, taken);
        taken = std::max(taken, r.end);
      }
      all.push_back(r);
    }
  }
  return all[static_cast<size_t>(index)];
}

Box Binding::box(const Placement& p, const std::string& dims, i64 rank) const {
  Coords at = mesh_.coords(rank);
  bool holds = true;
  for (size_t a = 0; a < p.size(); a++) holds &= p[a].holders.has(at[a]);
  Box b;
  for (size_t d = 0; d < dims.size(); d++)
    b.push_back(holds ? range(dims[d], uses(p, static_cast<i64>(d)), at) : Range{0, 0});
  return b;
}

namespace {

/// Every coordinate of the given axes, the others 0.
template <class F>
bool for_all_coords(const Plan& plan, const std::vector<Binding::Use>& a, const std::vector<Binding::Use>& b, F f) {
  std::vector<i64> axes;
  for (auto* list : {&a, &b})
    for (auto& u : *list)
      if (std::find(axes.begin(), axes.end(), u.axis) == axes.end()) axes.push_back(u.axis);
  Coords c(plan.axes.size(), 0);
  for (;;) {
    if (!f(c)) return false;
    size_t i = 0;
    for (; i < axes.size(); i++) {
      auto axis = static_cast<size_t>(axes[i]);
      if (++c[axis] < plan.axes[axis].size) break;
      c[axis] = 0;
    }
    if (i == axes.size()) return true;
  }
}

/// Is the size of every cut's dim known? (T under a follower's cut S is a symbol as T is.)
bool bound(char dim, const std::vector<Binding::Use>& cuts, const Sizes& s) {
  bool all = s.knows(dim);
  for (auto& c : cuts) all &= s.knows(c.by == 'S' ? 'T' : c.by);
  return all;
}

/// Are the ranges of different coordinates of axis a disjoint, wherever the other axes on the dim stand? (Else a part
/// on the diagonal would be lost.) Ranges by their begin: one that overlaps any before it overlaps the one that ends
/// last.
bool apart(char dim, const std::vector<Binding::Use>& cuts, size_t a, const Binding& b) {
  std::vector<std::pair<Range, i64>> all;  // and the coordinate
  for_all_coords(b.plan(), cuts, {}, [&](const Coords& c) {
    if (Range r = b.range(dim, cuts, c); !r.empty()) all.emplace_back(r, c[a]);
    return true;
  });
  std::sort(all.begin(), all.end(), [](auto& x, auto& y) { return x.first.begin < y.first.begin; });
  std::pair<i64, i64> last{-1, -1},
      other{-1, -1};  // end and coordinate: the last to end, the last of other coordinates
  for (auto& [r, at] : all) {
    if ((at == last.second ? other : last).first > r.begin) return false;
    if (r.end > last.first) {
      if (at != last.second) other = last;
      last = {r.end, at};
    } else if (at != last.second && r.end > other.first) {
      other = {r.end, at};
    }
  }
  return true;
}

}  // namespace

bool covers(const Placement& have, const Placement& want, const std::string& dims, const Binding& b) {
  for (size_t a = 0; a < have.size(); a++) {
    const AxisPlace &h = have[a], &w = want[a];
    if (!h.holders.includes(w.holders) || h.join != w.join) return false;
    if (h.join != Joined::copy && (h.dim != w.dim || h.by != w.by || h.owned != w.owned)) return false;
  }
  for (size_t d = 0; d < dims.size(); d++) {
    auto h = Binding::uses(have, static_cast<i64>(d)), w = Binding::uses(want, static_cast<i64>(d));
    if (h.empty() || h == w) continue;
    if (bound(dims[d], h, b.sizes()) && bound(dims[d], w, b.sizes())) {
      bool inside = for_all_coords(
          b.plan(), h, w, [&](const Coords& c) { return b.range(dims[d], h, c).contains(b.range(dims[d], w, c)); });
      if (!inside) return false;
    } else {
      if (h.size() > w.size()) return false;
      for (size_t i = 0; i < h.size(); i++)
        if (h[i].axis != w[i].axis || h[i].by != w[i].by || (h[i].owned && !w[i].owned)) return false;
    }
  }
  return true;
}

Placement simplified(Placement p, const std::string& dims, const Binding& b) {
  for (size_t a = 0; a < p.size(); a++) {
    if (b.plan().axes[a].size == 1) {
      p[a] = {};
      continue;
    }
    if (p[a].join == Joined::copy || p[a].dim < 0) continue;
    auto cuts = Binding::uses(p, p[a].dim);
    char dim = dims[static_cast<size_t>(p[a].dim)];
    if (!bound(dim, cuts, b.sizes())) continue;
    if (apart(dim, cuts, a, b)) p[a].join = Joined::copy;
  }
  return p;
}

std::vector<Move> reshard(const Binding& b, Placement have, const Placement& want, const std::string& dims, i64 rank) {
  const Mesh& mesh = b.mesh();
  const Coords me = mesh.coords(rank);
  bool partial = false;
  for (size_t a = 0; a < me.size(); a++) {
    if (want[a].join == Joined::copy) continue;  // stays, or becomes, a sum: nothing crosses this axis
    partial = true;
    if (have[a].join != Joined::copy) continue;
    if (have[a].dim >= 0)
      have[a].owned = true;  // copy -> sum: each element's owner gives it, the others have nothing
    else if (me[a] != have[a].holders.first())
      return {};
  }
  // Groups of ranks whose join is the value, this rank's first.
  std::map<Coords, std::vector<i64>> by;
  Coords mine;
  for (i64 r = 0; r < mesh.world(); r++) {
    Coords c = mesh.coords(r);
    bool mute = false;
    for (size_t a = 0; a < c.size(); a++) {
      if (want[a].join != Joined::copy)
        mute |= c[a] != me[a];
      else if (have[a].join != Joined::copy)
        c[a] = -1;
    }
    if (mute) continue;
    by[c].push_back(r);
    if (r == rank) mine = c;
  }
  // Then those that differ only where something changes, so that no other axis is crossed without need.
  std::vector<std::pair<i64, std::vector<i64>>> groups;
  for (auto& [c, g] : by) {
    i64 far = c == mine ? 0 : 1;
    for (size_t a = 0; a < c.size(); a++) far += c[a] != mine[a] && have[a] == want[a] ? 2 : 0;
    groups.emplace_back(far, g);
  }
  std::stable_sort(groups.begin(), groups.end(), [](auto& x, auto& y) { return x.first < y.first; });

  std::vector<Move> out;
  std::vector<Box> left;
  if (Box w = b.box(want, dims, rank); volume(w) > 0) left.push_back(w);
  bool holds = true;
  for (size_t a = 0; a < me.size(); a++) holds &= want[a].holders.has(me[a]);
  if (dims.empty() && !holds) left.clear();
  for (auto& [far, g] : groups) {
    if (left.empty()) break;
    std::vector<i64> holders;  // of anything
    Box all;
    for (i64 r : g) {
      bool has = true;
      Coords c = mesh.coords(r);
      for (size_t a = 0; a < c.size(); a++) has &= have[a].holders.has(c[a]);
      if (!has) continue;
      Box x = b.box(have, dims, r);
      if (volume(x) == 0) continue;
      all = holders.empty() ? x : hull(all, x);
      holders.push_back(r);
    }
    if (holders.empty()) continue;
    std::vector<Box> rest;
    for (auto& piece : left) {
      Box into = piece & all;
      if (volume(into) == 0) {
        rest.push_back(piece);
        continue;
      }
      Move m{into, {}};
      for (i64 r : holders)
        if (volume(b.box(have, dims, r) & into) > 0) m.from.push_back(r);
      out.push_back(m);
      for (auto& x : minus(piece, all)) rest.push_back(x);
    }
    left = rest;
  }
  PLAIT_CHECK(left.empty() || partial, "reshard of [{}]: an element has no holder", dims);
  return out;
}

std::vector<bool> axes_moved(const Placement& have, const Placement& want) {
  std::vector<bool> moved(have.size(), false);
  for (size_t a = 0; a < have.size(); a++) moved[a] = !(have[a] == want[a]);
  for (bool again = true; again;) {
    again = false;
    for (size_t a = 0; a < have.size(); a++)
      for (size_t b = 0; b < have.size() && !moved[a]; b++) {
        auto same = [&](i64 dim) { return dim >= 0 && (dim == have[b].dim || dim == want[b].dim); };
        if (moved[b] && (same(have[a].dim) || same(want[a].dim))) moved[a] = again = true;
      }
  }
  return moved;
}

}  // namespace plait
