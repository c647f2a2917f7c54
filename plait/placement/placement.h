// Placement of a value on a mesh: along each axis its holders, the dim that is cut and how, and the rule by which the
// holders make the value. Symbolic until sizes are bound; then each rank has a box of global indices.
//
// A cut has two resolutions: *used* ranges (may overlap: a KV head that two ranks need) and *owned* ones (disjoint, the
// lowest holder). Outputs and elementwise operands take used ranges, a summed factor always runs over owned ones.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "plait/placement/plan.h"
#include "plait/tensor/range.h"

namespace plait {

/// How the holders make a value: every holder has it | it is the sum, the maximum | exactly one is non-zero.
enum class Joined : std::uint8_t { copy, sum, max, one };
const char* name_of(Joined j);

/// Coordinates of an axis that hold a value: a few ranges; all of them unless the axis is a pipeline.
class Holders {
 public:
  Holders() = default;  // all
  explicit Holders(Range r) : all_(false), in_{r} {}
  bool all() const { return all_; }
  bool has(i64 coordinate) const;
  bool includes(const Holders& o) const;
  i64 first() const { return all_ || in_.empty() ? 0 : in_[0].begin; }
  Holders operator|(const Holders& o) const;
  static Holders none() {
    Holders h;
    h.all_ = false;
    return h;
  }
  std::string text() const;  // "0,3-5"
  static Holders parse(std::string_view text);
  bool operator==(const Holders& o) const = default;

 private:
  bool all_ = true;
  std::vector<Range> in_;  // ascending, disjoint, not adjacent
};

struct AxisPlace {
  i64 dim = -1;  // which dim of the value is cut; -1: whole
  char by = 0;   // the named cut: N K F V T D ..., or S: the tokens of whole sequences up to the end of the T range
  bool owned = false;
  Joined join = Joined::copy;
  Holders holders;
  bool operator==(const AxisPlace&) const = default;
};
using Placement = std::vector<AxisPlace>;  // one a mesh axis, in the plan's order

/// Leaf edges of a dim: multiples of `unit`, the last leaf short; or given ones (tokens).
struct Edges {
  i64 size = 0, unit = 1;
  std::vector<i64> given;
  i64 leaves() const { return given.empty() ? ceil_div(size, unit) : static_cast<i64>(given.size()) - 1; }
  i64 edge(i64 i) const { return given.empty() ? std::min(i * unit, size) : given[static_cast<size_t>(i)]; }
  /// The leaf that begins at x (the number of leaves for x = size); nullopt inside a leaf.
  std::optional<i64> leaf_at(i64 x) const;
  std::vector<i64> list() const;
};

/// What is known when symbols are bound. A dim that is not here is still a symbol.
struct Sizes {
  std::map<char, Edges> dims;
  std::vector<i64> sequence_edges;         // of T
  std::map<char, std::vector<i64>> given;  // cuts of a data axis that the batcher chose for this step
  i64 size(char dim) const;
  bool knows(char dim) const { return dims.count(dim) > 0; }
};

/// The ONE function for ranges of a split: edge i = leaf floor(leaves * weight before i / total).
Range split(Range r, const Edges& edges, i64 n, i64 i, const std::vector<i64>& weights);

/// Ranges and boxes of a plan under bound sizes. Ranges of a dim under some cuts are worked out once and kept.
class Binding {
 public:
  Binding(const Plan& plan, const Sizes& sizes);
  struct Use {
    i64 axis;
    char by;
    bool owned;
    auto operator<=>(const Use&) const = default;
  };
  const Plan& plan() const { return plan_; }
  const Mesh& mesh() const { return mesh_; }
  const Sizes& sizes() const { return sizes_; }
  /// The range of a dim under the axes that cut it. A follower's range is the image of its leader's final one.
  Range range(char dim, const std::vector<Use>& cuts, const Coords& at) const;
  static std::vector<Use> uses(const Placement& p, i64 dim);
  Box box(const Placement& p, const std::string& dims, i64 rank) const;

 private:
  Range resolve(char dim, const std::vector<Use>& cuts, const Coords& at) const;
  const Plan& plan_;
  const Sizes& sizes_;
  Mesh mesh_;
  mutable std::map<std::pair<char, std::vector<Use>>, std::vector<Range>> known_;
};

/// Does a holder of `have` hold all of its part of `want`, with nothing to join? Bound dims are compared by ranges,
/// symbols by their cuts (axes on one dim nest: the cuts of `have` must be the first ones that `want` makes).
bool covers(const Placement& have, const Placement& want, const std::string& dims, const Binding& b);

/// Axes of size 1 cut and join nothing; a sum over disjoint ranges is complete already.
Placement simplified(Placement p, const std::string& dims, const Binding& b);

/// The ONE reshard: where a rank gets each part of its wanted box from; the sources of one `into` box are joined.
struct Move {
  Box into;
  std::vector<i64> from;
};
std::vector<Move> reshard(const Binding& b, Placement have, const Placement& want, const std::string& dims, i64 rank);

/// Axes along which a reshard may move something: those that change, and those that cut the same dim as one that does.
std::vector<bool> axes_moved(const Placement& have, const Placement& want);

/// "tp:/N" "tp:sum" "pp:whole@0,3": axes of size 1 are left out; "whole" for nothing cut.
std::string to_string(const Placement& p, const Plan& plan, const std::string& dims);
/// The inverse, for text forms.
Placement parse_placement(std::string_view text, const Plan& plan, const std::string& dims);

/// The recognised case along each axis that changes, for people and golden counts: "all_reduce tp".
struct Collective {
  std::string op;
  std::vector<i64> axes;
};
std::vector<Collective> recognise(const Placement& have, const Placement& want, const std::string& dims,
                                  const Binding& b);
std::string to_string(const std::vector<Collective>& c, const Plan& plan);

}  // namespace plait
