#include "plait/exec/evaluate.h"

#include "plait/kernels/reference/reference.h"

namespace plait {

Box whole_box(const std::string& dims, const Sizes& sizes) {
  Box b;
  for (char c : dims) b.push_back({0, sizes.size(c)});
  return b;
}

kernels::Args whole_args(const Graph& g, const Node& n, const Sizes& sizes) {
  kernels::Args a;
  a.op = n.op->name;
  a.in_terms = n.rule.in;
  a.out_terms = n.rule.out;
  a.contracted = n.rule.contracted();
  a.attrs = n.attrs.x;
  if (g.dims.count('N') > 0 && g.dims.count('K') > 0) a.group = sizes.size('N') / sizes.size('K');
  // The class of a sum that is read is its own, that of one that is made the node's.
  a.exponent = exponent(n.op->takes_sums && !n.in.empty() ? g.at(n.in[0]).cls : g.at(n.out[0]).cls);
  auto term = [&](ValueId v, const Rule::Term& t) {
    for (size_t d = 0; d < t.size(); d++) {
      const char dim = g.at(v).dims[d];
      a.ranges[t[d]] = {0, sizes.size(dim)};
      if (g.has_leaves(dim)) a.leaves[t[d].back()] = sizes.dims.at(dim).list();
    }
  };
  for (size_t i = 0; i < n.in.size(); i++) term(n.in[i], n.rule.in[i]);
  for (size_t i = 0; i < n.out.size(); i++) term(n.out[i], n.rule.out[i]);
  for (char f : a.contracted)
    if (auto it = a.leaves.find(f); it != a.leaves.end())
      a.model_leaves = std::max<i64>(a.model_leaves, static_cast<i64>(it->second.size()) - 1);
  return a;
}

Evaluation evaluate(const Graph& g, const std::map<std::string, View>& named, const Sizes& sizes) {
  Evaluation e;
  std::vector<View> views(g.values.size());
  e.values.resize(g.values.size());
  for (auto& [name, v] : g.named) {
    auto it = named.find(name);
    if (it == named.end()) fail(Code::bad_file, "[evaluate {}] no tensor for {}", g.name, name);
    const View& got = it->second;
    const Box want = whole_box(g.at(v).dims, sizes);
    if (got.dtype != g.at(v).dtype || got.box != want || got.layout != Layout::rows)
      fail(Code::bad_file, "[evaluate {}] {}: got {} {}, want {} {} in rows", g.name, name, name_of(got.dtype),
           to_string(got.box), name_of(g.at(v).dtype), to_string(want));
    views[static_cast<size_t>(v)] = got;
  }
  kernels::Team team(1);
  kernels::Context context{team};
  for (auto& n : g.nodes) {
    kernels::Args a = whole_args(g, n, sizes);
    for (ValueId v : n.in) a.in.push_back(views[static_cast<size_t>(v)]);
    for (ValueId v : n.out) {
      auto& t = e.values[static_cast<size_t>(v)];
      t = Tensor(g.at(v).dtype, whole_box(g.at(v).dims, sizes));
      views[static_cast<size_t>(v)] = t;
      a.out.push_back(t);
    }
    auto found = kernels::reference_kernels(a.op, g.real);
    PLAIT_CHECK(!found.empty(), "{} has no reference kernel", a.op);
    auto run = found.back().prepare(a);  // the plainest
    PLAIT_CHECK(static_cast<bool>(run), "{} ({}): {}", a.op, n.attrs.label, run.why());
    (*run)(context);
  }
  e.overflow = context.overflow;
  return e;
}

const Tensor& Evaluation::of(const Graph& g, const std::string& label) const {
  for (auto& n : g.nodes)
    if (n.attrs.label == label) return values[static_cast<size_t>(n.out[0])];
  PLAIT_CHECK(false, "graph {} has no node {}", g.name, label);
}

}  // namespace plait
