// The text form of a graph, one thing a line:
//   graph llama real f32 compute bf16 sum i64 layers 2
//   dim T 0 leaf 256                                     size 0: bound later; no leaf: sums over it are not cut
//   input %0 ids i32 index [T]
//   state %1 embedding bf16 num [V D]
//   %2 f32 num [T D] = embedding(%0, %1) label embedding layer 0
//   %9 i64 sum dgrad [T D] = matmul(%7, %8) "t f, f d -> t d" class dgrad label l.dx layer 0 backward
//   %12 bf16 num [T N H] = rope(%11, %3) {base 10000} label q layer 0
// A value: name where it is not the node's, dtype, type, class where it is not forward, dims. Words of other characters
// than letters, digits and ._/+- are quoted. Numbers are the shortest that read back as the same double.
#include <charconv>

#include "plait/graph/graph.h"

namespace plait {

namespace {

constexpr i64 kMost = i64{1} << 40;
constexpr size_t kMostDims = 8, kMostNodes = 1 << 15, kMostValues = 1 << 16, kMostNumbers = 32, kMostWord = 1024;

bool plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("._/+-").find(c) != std::string_view::npos;
}

std::string word(const std::string& s) {
  bool bare = !s.empty();
  for (char c : s) bare &= plain(c);
  if (bare) return s;
  std::string q = "\"";
  for (char c : s) {
    if (c == '"' || c == '\\') q += '\\';
    if (c == '\n')
      q += "\\n";
    else
      q += c;
  }
  return q + "\"";
}

/// What apply() would have called output o.
std::string default_name(const Node& n, size_t o) {
  return (n.attrs.label.empty() ? n.op->name : n.attrs.label) + (n.out.size() > 1 ? "." + std::to_string(o) : "");
}

std::string shape(const Value& v) {
  std::string s = fmt::format("{} {}{} [", name_of(v.dtype), name_of(v.type),
                              v.cls == Class::forward ? "" : fmt::format(" {}", name_of(v.cls)));
  for (size_t i = 0; i < v.dims.size(); i++) s += (i > 0 ? " " : "") + std::string(1, v.dims[i]);
  return s + "]";
}

constexpr const char* kElems[] = {"real", "compute", "as_first"};

std::string attributes(const Node& n) {
  std::string s;
  if (n.op->rule.empty() || !n.attrs.rule.empty()) s += fmt::format(" \"{}\"", to_string(n.rule));
  if (!n.attrs.x.empty()) {
    s += " {";
    for (auto& [key, x] : n.attrs.x) s += fmt::format("{}{} {}", s.back() == '{' ? "" : ", ", word(key), x);
    s += "}";
  }
  if (!n.attrs.dims.empty()) s += " dims " + word(n.attrs.dims);
  if (n.attrs.cls != Class::forward) s += fmt::format(" class {}", name_of(n.attrs.cls));
  if (n.attrs.elem) s += fmt::format(" elem {}", kElems[static_cast<size_t>(*n.attrs.elem)]);
  if (!n.attrs.alias.empty()) s += " alias " + word(n.attrs.alias);
  if (!n.attrs.label.empty()) s += " label " + word(n.attrs.label);
  if (n.layer >= 0) s += fmt::format(" layer {}", n.layer);
  if (n.backward) s += " backward";
  return s;
}

/// One line, consumed from the left.
class Line {
 public:
  Line(std::string_view text, i64 number) : rest_(text), number_(number) {}

  [[noreturn]] void bad(std::string_view want) const {
    auto got = rest_.substr(std::min(rest_.find_first_not_of(' '), rest_.size()), 40);
    fail(Code::bad_file, "[graph text, line {}] got '{}', want {}", number_, got.empty() ? "the end" : got, want);
  }
  void spaces() {
    while (!rest_.empty() && rest_[0] == ' ') rest_.remove_prefix(1);
  }
  bool done() {
    spaces();
    return rest_.empty();
  }
  char peek() {
    spaces();
    return rest_.empty() ? '\0' : rest_[0];
  }
  bool take(std::string_view punctuation) {
    spaces();
    if (rest_.substr(0, punctuation.size()) != punctuation) return false;
    rest_.remove_prefix(punctuation.size());
    return true;
  }
  void expect(std::string_view punctuation) {
    if (!take(punctuation)) bad(fmt::format("'{}'", punctuation));
  }
  /// A bare word or a quoted string.
  std::string word(std::string_view what) {
    spaces();
    if (!rest_.empty() && rest_[0] == '"') return quoted();
    size_t n = 0;
    while (n < rest_.size() && plain(rest_[n])) n++;
    if (n == 0) bad(what);
    if (n > kMostWord) bad(fmt::format("{} of at most {} characters", what, kMostWord));
    std::string w(rest_.substr(0, n));
    rest_.remove_prefix(n);
    return w;
  }
  template <class T>
  T number(std::string_view what, T least, T most) {
    spaces();
    T x{};
    auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), x);
    if (error != std::errc() || x < least || x > most) bad(what);
    rest_.remove_prefix(static_cast<size_t>(end - rest_.data()));
    return x;
  }
  double real(std::string_view what) {
    spaces();
    double x = 0;
    auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), x);
    if (error != std::errc()) bad(what);
    rest_.remove_prefix(static_cast<size_t>(end - rest_.data()));
    return x;
  }
  ValueId id() {
    expect("%");
    return number<i64>("a value's number", 0, i64{1} << 30);
  }
  template <class E, size_t N>
  E one_of(const char* const (&names)[N], std::string_view what) {
    Line before = *this;
    std::string w = word(what);
    for (size_t i = 0; i < N; i++)
      if (w == names[i]) return static_cast<E>(i);
    before.bad(what);
  }
  DType dtype() {
    Line before = *this;
    auto t = dtype_named(word("an element type"));
    if (!t) before.bad("an element type");
    return *t;
  }
  std::string dims() {
    expect("[");
    std::string d;
    while (!take("]")) {
      if (peek() == '\0' || !plain(peek()) || d.size() == kMostDims) bad("a dim or ']'");
      d += rest_[0];
      rest_.remove_prefix(1);
    }
    return d;
  }

 private:
  std::string quoted() {
    Line before = *this;
    std::string s;
    for (size_t i = 1; i < rest_.size() && s.size() <= kMostWord; i++) {
      char c = rest_[i];
      if (c == '"') {
        rest_.remove_prefix(i + 1);
        return s;
      }
      if (c == '\\' && i + 1 < rest_.size()) {
        c = rest_[++i];
        if (c == 'n') c = '\n';
      }
      s += c;
    }
    before.bad(fmt::format("a closing quote after at most {} characters", kMostWord));
  }

  std::string_view rest_;
  i64 number_;
};

constexpr const char* kTypes[] = {"num", "index", "sum", "max"};
constexpr const char* kClasses[] = {"forward", "loss", "dgrad", "wgrad", "norm"};
constexpr std::string_view kTypeNames = "num, index, sum or max";
constexpr std::string_view kClassNames = "forward, loss, dgrad, wgrad or norm";

/// dtype, type, class, dims.
Value parse_shape(Line& l) {
  Value v;
  v.dtype = l.dtype();
  v.type = l.one_of<Type>(kTypes, kTypeNames);
  if (l.peek() != '[') v.cls = l.one_of<Class>(kClasses, kClassNames);
  v.dims = l.dims();
  return v;
}

struct Definition {
  Value value;
  i64 line;
};

/// Everything after the operands.
void parse_attributes(Line& l, Node& n) {
  std::string rule = n.op->rule;
  if (l.peek() == '"') {
    rule = l.word("a rule");
    if (!n.op->elementwise) n.attrs.rule = rule;
  }
  n.rule = Rule::parse(rule);
  if (l.take("{")) do {
      if (n.attrs.x.size() == kMostNumbers) l.bad(fmt::format("at most {} numbers", kMostNumbers));
      std::string key = l.word("an attribute's name");
      n.attrs.x[key] = l.real("a number");
    } while (l.take(",") || (l.expect("}"), false));
  while (!l.done()) {
    Line before = l;
    std::string key = l.word("an attribute");
    if (key == "dims")
      n.attrs.dims = l.word("names of dims");
    else if (key == "class")
      n.attrs.cls = l.one_of<Class>(kClasses, kClassNames);
    else if (key == "elem")
      n.attrs.elem = l.one_of<Elem>(kElems, "real, compute or as_first");
    else if (key == "alias")
      n.attrs.alias = l.word("a state's name");
    else if (key == "label")
      n.attrs.label = l.word("a label");
    else if (key == "layer")
      n.layer = l.number<i64>("a layer", 0, kMost);
    else if (key == "backward")
      n.backward = true;
    else
      before.bad("dims, class, elem, alias, label, layer or backward");
  }
}

}  // namespace

std::string Graph::text() const {
  std::string s = fmt::format("graph {} real {} compute {} sum {} layers {}\n", word(name), name_of(real),
                              name_of(compute), name_of(sum), layers);
  for (auto& [dim, d] : dims)
    s += fmt::format("dim {} {}{}\n", dim, d.size, d.leaf > 0 ? fmt::format(" leaf {}", d.leaf) : "");
  for (size_t v = 0; v < values.size(); v++)
    if (values[v].kind != Kind::temp)
      s += fmt::format("{} %{} {} {}\n", values[v].kind == Kind::state ? "state" : "input", v, word(values[v].name),
                       shape(values[v]));
  for (auto& n : nodes) {
    for (size_t o = 0; o < n.out.size(); o++) {
      const Value& v = at(n.out[o]);
      s += fmt::format("{}%{}{} {}", o > 0 ? ", " : "", n.out[o],
                       v.name == default_name(n, o) ? "" : fmt::format(" name {}", word(v.name)), shape(v));
    }
    s += fmt::format(" = {}(", n.op->name);
    for (size_t i = 0; i < n.in.size(); i++) s += fmt::format("{}%{}", i > 0 ? ", " : "", n.in[i]);
    s += ")" + attributes(n) + "\n";
  }
  return s;
}

Graph Graph::parse(std::string_view text) {
  Graph g;
  std::map<ValueId, Definition> defined;
  bool headed = false;
  i64 number = 0;
  auto define = [&](ValueId id, Value v) {
    if (defined.size() == kMostValues || g.nodes.size() == kMostNodes)
      fail(Code::bad_file, "[graph text, line {}] got more, want at most {} values and {} nodes", number, kMostValues,
           kMostNodes);
    if (auto [it, fresh] = defined.emplace(id, Definition{std::move(v), number}); !fresh)
      fail(Code::bad_file, "[graph text, line {}] %{} is defined already, in line {}", number, id, it->second.line);
  };
  while (!text.empty()) {
    size_t end = std::min(text.find('\n'), text.size());
    Line l(text.substr(0, end), ++number);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (l.done()) continue;
    if (!headed) {
      l.expect("graph");
      g.name = l.word("a name");
      l.expect("real");
      g.real = l.dtype();
      l.expect("compute");
      g.compute = l.dtype();
      l.expect("sum");
      g.sum = l.dtype();
      l.expect("layers");
      g.layers = l.number<i64>("a number of layers", 0, kMost);
      headed = true;
    } else if (l.take("dim ")) {
      char dim = l.peek();
      if (!plain(dim)) l.bad("a dim");
      l.expect(std::string_view(&dim, 1));
      Leaf leaf{l.number<i64>("a size", 0, kMost), 0};
      if (l.take("leaf")) leaf.leaf = l.number<i64>("a leaf's size", 1, kMost);
      if (!g.dims.emplace(dim, leaf).second)
        fail(Code::bad_file, "[graph text, line {}] dim {} is given already", number, dim);
    } else if (l.peek() != '%') {
      Kind kind = l.take("state ") ? Kind::state : Kind::input;
      if (kind == Kind::input && !l.take("input ")) l.bad("dim, state, input or a value");
      ValueId id = l.id();
      std::string called = l.word("a name");
      Value v = parse_shape(l);
      v.name = called;
      v.kind = kind;
      if (!g.named.emplace(called, id).second)
        fail(Code::bad_file, "[graph text, line {}] {} is given already", number, called);
      define(id, std::move(v));
    } else {
      Node n;
      std::vector<std::optional<std::string>> names;
      std::vector<Value> outputs;
      do {
        n.out.push_back(l.id());
        names.emplace_back();
        if (l.take("name ")) names.back() = l.word("a name");
        outputs.push_back(parse_shape(l));
      } while (l.take(","));
      l.expect("=");
      n.op = &Registry::find(l.word("an op"));
      l.expect("(");
      if (!l.take(")")) do
          n.in.push_back(l.id());
        while (l.take(",") || (l.expect(")"), false));
      parse_attributes(l, n);
      for (size_t o = 0; o < n.out.size(); o++) {
        outputs[o].name = names[o] ? *names[o] : default_name(n, o);
        outputs[o].node = static_cast<i64>(g.nodes.size());
        define(n.out[o], std::move(outputs[o]));
      }
      g.nodes.push_back(std::move(n));
    }
    if (!l.done()) l.bad("the end of the line");
  }
  if (!headed) fail(Code::bad_file, "[graph text, line 1] got nothing, want 'graph'");
  for (auto& [id, d] : defined) {
    if (id != static_cast<ValueId>(g.values.size()))
      fail(Code::bad_file, "[graph text, line {}] got %{}, want %{}: values are numbered from 0 without gaps", d.line,
           id, g.values.size());
    for (char c : d.value.dims)
      if (g.dims.count(c) == 0) fail(Code::bad_file, "[graph text, line {}] dim {} is not given", d.line, c);
    g.values.push_back(std::move(d.value));
  }
  g.verify();
  for (auto& n : g.nodes)
    if (n.op->name == "finish" || n.op->name == "finish_max") g.finished_.emplace(n.in[0], n.out[0]);
  return g;
}

}  // namespace plait
