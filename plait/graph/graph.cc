#include "plait/graph/graph.h"

#include <algorithm>

namespace plait {

namespace {

/// Elementwise: every operand has the dims of the first, a suffix or prefix of them is not allowed; a scalar is spread.
std::string elementwise_rule(const Graph& g, const std::string& op, const std::vector<ValueId>& in) {
  const std::string& dims = g.at(in[0]).dims;
  std::string all, rule;
  for (size_t i = 0; i < dims.size(); i++) all += std::string(1, static_cast<char>('a' + i)) + " ";
  for (size_t i = 0; i < in.size(); i++) {
    const std::string& d = g.at(in[i]).dims;
    if (d != dims && !d.empty() && d != "1")
      fail(Code::bad_file, "{}: operand {} has dims [{}], want [{}] or a scalar", op, g.at(in[i]).name, d, dims);
    rule += (i > 0 ? ", " : "") + (d == dims ? all : d == "1" ? "z " : "");
  }
  return rule + "-> " + all;
}

}  // namespace

ValueId Graph::add_value(Value v) {
  if (v.kind != Kind::temp && !named.emplace(v.name, static_cast<ValueId>(values.size())).second)
    fail(Code::bad_file, "{} is in the graph already", v.name);
  values.push_back(std::move(v));
  return static_cast<ValueId>(values.size()) - 1;
}

ValueId Graph::state(const std::string& n, const std::string& d, Type t, Class c) {
  return add_value({n, d, t, t == Type::sum ? sum : t == Type::index ? DType::i32 : real, c, Kind::state, -1});
}
ValueId Graph::state(const std::string& n, const std::string& d, DType dtype) {
  return add_value({n, d, Type::num, dtype, Class::forward, Kind::state, -1});
}
ValueId Graph::input(const std::string& n, const std::string& d, Type t) {
  return add_value({n, d, t, t == Type::index ? DType::i32 : real, Class::forward, Kind::input, -1});
}

i64 Graph::size(char dim) const {
  auto it = dims.find(dim);
  PLAIT_CHECK(it != dims.end(), "no dim {} in graph {}", dim, name);
  return it->second.size;
}

bool Graph::has_leaves(char dim) const {
  auto it = dims.find(dim);
  return it != dims.end() && it->second.leaf > 0;
}

ValueId Graph::num(ValueId v) {
  if (at(v).type == Type::num || at(v).type == Type::index) return v;
  if (auto it = finished_.find(v); it != finished_.end()) return it->second;
  ValueId n = one(at(v).type == Type::max ? "finish_max" : "finish", {v}, {.label = at(v).name});
  finished_[v] = n;
  return n;
}

ValueId Graph::operand(ValueId v) {
  v = num(v);
  if (compute == real || at(v).dtype != real) return v;
  if (auto it = operands_.find(v); it != operands_.end()) return it->second;
  return operands_[v] = one("cast", {v}, {.label = at(v).name + ".cast"});
}

ValueId Graph::add_all(std::vector<ValueId> vs, i64 at_layer) {
  PLAIT_CHECK(!vs.empty(), "nothing to add");
  std::stable_sort(vs.begin(), vs.end(),
                   [&](ValueId a, ValueId b) { return (at(a).type == Type::sum) > (at(b).type == Type::sum); });
  i64 keep = std::exchange(layer, at_layer);
  ValueId s = vs[0];
  for (size_t i = 1; i < vs.size(); i++) {
    bool sums = at(s).type == Type::sum && at(vs[i]).type == Type::sum;
    s = one(sums ? "add_sums" : "add", {s, vs[i]}, {.label = at(s).name});
  }
  layer = keep;
  return s;
}

std::vector<ValueId> Graph::apply(const std::string& op_name, std::vector<ValueId> in, Attrs a) {
  const Op& op = Registry::find(op_name);
  if (!op.takes_sums)
    for (ValueId& v : in) v = num(v);
  std::string text = !a.rule.empty() ? a.rule : op.elementwise ? elementwise_rule(*this, op_name, in) : op.rule;
  Node n{&op, Rule::parse(text), in, {}, std::move(a), layer, backward};
  const std::string where = op_name + (n.attrs.label.empty() ? "" : " (" + n.attrs.label + ")");
  if (n.rule.in.size() != in.size())
    fail(Code::bad_file, "{}: {} operands, want those of \"{}\"", where, in.size(), text);
  if (n.rule.out.size() != op.out.size())
    fail(Code::bad_file, "{}: rule \"{}\" has not {} outputs", where, text, op.out.size());

  std::map<std::string, char> dim_of;
  for (size_t i = 0; i < in.size(); i++) {
    const Value& v = at(in[i]);
    if (n.rule.in[i].size() != v.dims.size())
      fail(Code::bad_file, "{}: operand {} has dims [{}], want those of \"{}\"", where, v.name, v.dims, text);
    for (size_t d = 0; d < v.dims.size(); d++)
      if (auto [p, fresh] = dim_of.insert({n.rule.in[i][d], v.dims[d]}); !fresh && p->second != v.dims[d])
        fail(Code::bad_file, "{}: factor {} is dim {} and dim {}", where, n.rule.in[i][d], p->second, v.dims[d]);
  }

  size_t used = 0;
  for (size_t o = 0; o < n.rule.out.size(); o++) {
    Value v;
    for (auto& g : n.rule.out[o]) {
      if (auto it = dim_of.find(g); it != dim_of.end()) {
        v.dims += it->second;
      } else {
        if (used >= n.attrs.dims.size()) fail(Code::bad_file, "{}: no dim name for factor {} of the output", where, g);
        v.dims += dim_of[g] = n.attrs.dims[used++];
      }
    }
    v.name = (n.attrs.label.empty() ? op_name : n.attrs.label) + (n.rule.out.size() > 1 ? "." + std::to_string(o) : "");
    v.type = op.out[o];
    v.cls = n.attrs.cls;
    if (op.takes_sums && op.elem[o] == Elem::as_first) {  // sums pass through: add_sums, accumulate, zero
      v.type = at(in[0]).type;
      v.cls = at(in[0]).cls;
    }
    if (op.rule.empty() && !op.elementwise)  // a product: a sum where the model cuts the summed dim into leaves
      for (char c : n.rule.contracted())
        if (auto it = dim_of.find(std::string(1, c));
            it != dim_of.end() && has_leaves(it->second) && op.out[o] == Type::num)
          v.type = Type::sum;
    Elem e = o == 0 && n.attrs.elem ? *n.attrs.elem : op.elem[o];
    const bool digits = v.cls == Class::norm;
    v.dtype = v.type == Type::sum     ? (!digits              ? sum
                                         : real == DType::f64 ? DType::i128
                                                              : DType::i64)
              : v.type == Type::index ? DType::i32
              : e == Elem::as_first   ? at(in[0]).dtype
              : e == Elem::compute    ? compute
                                      : real;
    v.node = static_cast<i64>(nodes.size());
    n.out.push_back(add_value(std::move(v)));
  }
  nodes.push_back(n);
  return n.out;
}

namespace {

/// A node's values against its rule: as many, of as many dims, one dim a factor group.
void verify_rule(const Graph& g, const Node& n, const std::string& where) {
  if (n.rule.in.size() != n.in.size() || n.rule.out.size() != n.out.size() || n.out.size() != n.op->out.size())
    fail(Code::bad_file, "{}: got {} operands and {} outputs, want those of \"{}\" and {} outputs", where, n.in.size(),
         n.out.size(), to_string(n.rule), n.op->out.size());
  std::map<std::string, char> dim_of;
  auto check = [&](ValueId v, const Rule::Term& term) {
    if (v < 0 || v >= static_cast<ValueId>(g.values.size()))
      fail(Code::bad_file, "{}: got %{}, want one of {} values", where, v, g.values.size());
    const Value& x = g.at(v);
    if (x.dims.size() != term.size())
      fail(Code::bad_file, "{}: %{} ({}) has dims [{}], want those of \"{}\"", where, v, x.name, x.dims,
           to_string(term));
    for (size_t d = 0; d < term.size(); d++)
      if (auto [p, fresh] = dim_of.insert({term[d], x.dims[d]}); !fresh && p->second != x.dims[d])
        fail(Code::bad_file, "{}: factor {} is dim {} and dim {}", where, term[d], p->second, x.dims[d]);
  };
  for (size_t i = 0; i < n.in.size(); i++) check(n.in[i], n.rule.in[i]);
  for (size_t i = 0; i < n.out.size(); i++) check(n.out[i], n.rule.out[i]);
}

}  // namespace

void Graph::verify() const {
  std::set<ValueId> written;
  std::set<std::string> overwritten;
  for (auto& n : nodes) {
    const std::string where = n.op->name + " (" + n.attrs.label + ")";
    if (n.op->elementwise && n.in.empty()) fail(Code::bad_file, "{}: got no operand, want one or more", where);
    verify_rule(*this, n, where);
    for (ValueId v : n.in) {
      const Value& x = at(v);
      if (x.kind == Kind::temp && written.count(v) == 0)
        fail(Code::bad_file, "{}: reads %{} ({}) before it is made", where, v, x.name);
      if (!n.op->takes_sums && (x.type == Type::sum || x.type == Type::max))
        fail(Code::bad_file, "{}: reads %{} ({}), a {} that nobody has finished", where, v, x.name, name_of(x.type));
      if (x.kind == Kind::state && overwritten.count(x.name) > 0)
        fail(Code::bad_file, "{}: reads state {} after it was overwritten in place", where, x.name);
    }
    for (ValueId v : n.out) {
      if (at(v).kind != Kind::temp)
        fail(Code::bad_file, "{}: writes %{}, which is the {} itself", where, v, at(v).name);
      if (!written.insert(v).second) fail(Code::bad_file, "{}: writes %{} a second time", where, v);
    }
    if (n.attrs.alias.empty()) continue;
    auto it = named.find(n.attrs.alias);
    if (it == named.end() || at(it->second).kind != Kind::state)
      fail(Code::bad_file, "{}: overwrites {}, which is no state", where, n.attrs.alias);
    const Value &s = at(it->second), &o = at(n.out[0]);
    if (s.dims != o.dims || s.type != o.type || s.dtype != o.dtype)
      fail(Code::bad_file, "{}: overwrites state {} {}[{}] with {}[{}]", where, s.name, name_of(s.dtype), s.dims,
           name_of(o.dtype), o.dims);
    if (!overwritten.insert(s.name).second)
      fail(Code::bad_file, "{}: overwrites state {} a second time", where, s.name);
  }
}

}  // namespace plait
