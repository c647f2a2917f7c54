#include "plait/models/family.h"

namespace plait {

namespace {
std::map<std::string, Family>& table() {
  static std::map<std::string, Family> families;
  return families;
}
}  // namespace

FamilyRegistry::FamilyRegistry(Family f) {
  const std::string name = f.name;
  bool fresh = table().emplace(name, std::move(f)).second;
  PLAIT_CHECK(fresh, "family {} is registered twice", name);
}

const std::map<std::string, Family>& families() { return table(); }

const Family& family_of(const ModelConfig& c) {
  auto it = table().find(c.family);
  if (it == table().end()) {
    std::string known;
    for (auto& [name, f] : table()) known += (known.empty() ? "" : ", ") + name;
    fail(Code::bad_file, "got model family {}, want one of: {}", c.family.empty() ? "none" : c.family, known);
  }
  return it->second;
}

Graph build_serving(const ModelConfig& c, const BuildOptions& o) {
  const Family& f = family_of(c);
  Graph g;
  Builder b(g, c, o, true);
  const ValueId rows = g.input("rows", "R");
  ValueId x = f.body(b);                                     // [T D]
  x = g.one("take_rows", {x, rows}, {.label = "rows.out"});  // [R D]
  g.one("read", {f.head(b, x)}, {.label = "logits"});        // [R V]
  return g;
}

Graph build_training(const ModelConfig& c, const BuildOptions& o) {
  const Family& f = family_of(c);
  Graph g;
  Builder b(g, c, o, false);
  const ValueId targets = g.input("targets", "T");
  const ValueId logits = f.head(b, f.body(b));                              // [T V]
  const ValueId max = g.one("row_max", {logits}, {.label = "logits.max"});  // [T]
  const ValueId sum = g.one("sum_exp", {logits, max}, {.cls = Class::loss, .label = "logits.sum_exp"});
  const ValueId picked = g.one("pick", {logits, targets}, {.cls = Class::loss, .label = "logits.pick"});
  const ValueId nll = g.one("nll", {max, sum, picked, targets}, {.label = "nll"});  // [T]
  g.one("sum_tokens", {nll}, {.dims = "1", .cls = Class::loss, .label = "loss"});
  return g;
}

}  // namespace plait
