#include "plait/text/template_parser.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace plait::text::tmpl {

namespace {

using Kind = Expression::Kind;

// Left-associative operators by precedence, loosest first. Between `and` and `+` stand `not` and comparisons.
constexpr std::array<std::string_view, 4> kBinary[] = {{"or"}, {"and"}, {"+", "-"}, {"~"}, {"*", "/", "//", "%"},
                                                       {"**"}};
constexpr size_t kAnd = 1;

class Parser {
 public:
  explicit Parser(std::string_view source) : tokens_(lex(source)) {}

  Body run() {
    Body body = parse_body({}, 0);
    if (peek().kind != Token::Kind::end) wrong(peek(), "got " + shown(peek()) + " without its beginning");
    return body;
  }

 private:
  [[noreturn]] static void wrong(const Token& t, const std::string& what) {
    fail(Code::bad_file, "[chat template:{}] {}", t.line, what);
  }
  static std::string shown(const Token& t) { return "\"" + valid_utf8_of(t.text) + "\""; }
  static std::string valid_utf8_of(const std::string& s) { return s.size() > 40 ? s.substr(0, 40) + "..." : s; }

  const Token& peek(size_t ahead = 0) const { return tokens_[std::min(at_ + ahead, tokens_.size() - 1)]; }
  const Token& next() {
    const Token& t = peek();
    if (at_ + 1 < tokens_.size()) at_++;
    return t;
  }
  bool is_op(std::string_view op, size_t ahead = 0) const {
    return peek(ahead).kind == Token::Kind::op && peek(ahead).text == op;
  }
  bool is_name(std::string_view name, size_t ahead = 0) const {
    return peek(ahead).kind == Token::Kind::name && peek(ahead).text == name;
  }
  bool take_op(std::string_view op) { return is_op(op) ? (next(), true) : false; }
  bool take_name(std::string_view name) { return is_name(name) ? (next(), true) : false; }
  void want_op(std::string_view op) {
    if (!take_op(op)) wrong(peek(), fmt::format("got {}, want \"{}\"", shown(peek()), op));
  }
  std::string want_name() {
    if (peek().kind != Token::Kind::name) wrong(peek(), "got " + shown(peek()) + ", want a name");
    return next().text;
  }
  void want_end_of_tag() {
    if (peek().kind != Token::Kind::block_end) wrong(peek(), "got " + shown(peek()) + ", want \"%}\"");
    next();
  }

  // Depth of nesting, of statements and of expressions, while parsing.
  struct Nested {
    explicit Nested(Parser& parser) : p(parser) {
      if (++p.nesting_ > kMaxNesting) wrong(p.peek(), fmt::format("got more than {} levels of nesting", kMaxNesting));
    }
    ~Nested() { p.nesting_--; }
    Parser& p;
  };

  ExpressionPtr make(Kind kind, int line, std::string name = {}) {
    auto e = std::make_unique<Expression>();
    e->kind = kind;
    e->line = line;
    e->name = std::move(name);
    return e;
  }
  void adopt(Expression& parent, ExpressionPtr child) {
    if (child) parent.depth = std::max(parent.depth, child->depth + 1);
    if (parent.depth > kMaxNesting)
      fail(Code::bad_file, "[chat template:{}] got an expression of more than {} levels", parent.line, kMaxNesting);
    parent.children.push_back(std::move(child));
  }
  Body parse_body(std::initializer_list<std::string_view> ends, int loops);
  std::unique_ptr<Statement> parse_statement(int loops);
  void parse_if(Statement& s, int loops);
  void parse_for(Statement& s, int loops);
  void parse_set(Statement& s);
  std::vector<std::string> parse_targets();

  ExpressionPtr parse_expression();
  ExpressionPtr parse_binary(size_t level = 0);
  ExpressionPtr parse_not();
  ExpressionPtr parse_comparison();
  ExpressionPtr parse_unary(bool with_filter);
  ExpressionPtr parse_primary();
  ExpressionPtr parse_postfix(ExpressionPtr e);
  ExpressionPtr parse_filters(ExpressionPtr e);
  ExpressionPtr parse_test(ExpressionPtr e);
  ExpressionPtr parse_subscript(ExpressionPtr e);
  void parse_arguments(Expression& call);
  ExpressionPtr parse_tuple_or_expression();

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int nesting_ = 0;
};

// Statements up to, and without, a tag that begins with one of `ends`.
Body Parser::parse_body(std::initializer_list<std::string_view> ends, int loops) {
  Nested nested(*this);
  Body body;
  for (;;) {
    const Token& t = peek();
    auto s = std::make_unique<Statement>();
    s->line = t.line;
    if (t.kind == Token::Kind::data) {
      s->kind = Statement::Kind::data;
      s->data = next().text;
    } else if (t.kind == Token::Kind::print_begin) {
      next();
      s->kind = Statement::Kind::print;
      s->value = parse_tuple_or_expression();
      if (peek().kind != Token::Kind::print_end) wrong(peek(), "got " + shown(peek()) + ", want \"}}\"");
      next();
    } else if (t.kind == Token::Kind::block_begin) {
      if (std::ranges::count(ends, peek(1).text) && peek(1).kind == Token::Kind::name) return body;
      next();
      s = parse_statement(loops);
    } else {
      if (ends.size() != 0) wrong(t, fmt::format("got the end of the template, want {{% {} %}}", *(ends.end() - 1)));
      return body;
    }
    body.push_back(std::move(s));
  }
}

std::unique_ptr<Statement> Parser::parse_statement(int loops) {
  auto s = std::make_unique<Statement>();
  s->line = peek().line;
  const Token tag = peek();
  const std::string name = want_name();
  if (name == "if") {
    parse_if(*s, loops);
  } else if (name == "for") {
    parse_for(*s, loops);
  } else if (name == "set") {
    parse_set(*s);
  } else if (name == "break" || name == "continue") {
    if (loops == 0) wrong(tag, "got {% " + name + " %} outside of a loop");
    s->kind = name == "break" ? Statement::Kind::break_ : Statement::Kind::continue_;
    want_end_of_tag();
  } else {
    wrong(tag, "got the tag \"" + name + "\", which is not supported");
  }
  return s;
}

void Parser::parse_if(Statement& s, int loops) {
  s.kind = Statement::Kind::if_;
  for (;;) {
    Statement::Branch branch{parse_tuple_or_expression(), {}};
    want_end_of_tag();
    branch.body = parse_body({"elif", "else", "endif"}, loops);
    s.branches.push_back(std::move(branch));
    next();  // {%
    const std::string end = want_name();
    if (end == "elif") continue;
    if (end == "else") {
      want_end_of_tag();
      s.branches.push_back({nullptr, parse_body({"endif"}, loops)});
      next();
      want_name();
    }
    want_end_of_tag();
    return;
  }
}

std::vector<std::string> Parser::parse_targets() {
  const bool bracket = take_op("(");
  std::vector<std::string> targets = {want_name()};
  while (take_op(",")) targets.push_back(want_name());
  if (bracket) want_op(")");
  return targets;
}

void Parser::parse_for(Statement& s, int loops) {
  s.kind = Statement::Kind::for_;
  s.targets = parse_targets();
  if (!take_name("in")) wrong(peek(), "got " + shown(peek()) + ", want \"in\"");
  s.value = parse_binary();  // a conditional would take the `if` of the loop
  if (is_op(",")) wrong(peek(), "got a tuple to iterate without brackets, which is not supported");
  if (take_name("if")) s.condition = parse_expression();
  if (is_name("recursive")) wrong(peek(), "got a recursive loop, which is not supported");
  want_end_of_tag();
  s.body = parse_body({"else", "endfor"}, loops + 1);
  next();
  if (want_name() == "else") {
    want_end_of_tag();
    s.otherwise = parse_body({"endfor"}, loops);
    next();
    want_name();
  }
  want_end_of_tag();
}

void Parser::parse_set(Statement& s) {
  s.targets = parse_targets();
  if (s.targets.size() == 1 && take_op(".")) s.attribute = want_name();
  if (take_op("=")) {
    s.kind = Statement::Kind::set;
    s.value = parse_tuple_or_expression();
    want_end_of_tag();
    return;
  }
  if (s.targets.size() != 1 || !s.attribute.empty() || is_op("|"))
    wrong(peek(), "got " + shown(peek()) + ", want \"=\" or the end of {% set %}");
  s.kind = Statement::Kind::set_block;
  want_end_of_tag();
  s.body = parse_body({"endset"}, 0);
  next();
  want_name();
  want_end_of_tag();
}

ExpressionPtr Parser::parse_tuple_or_expression() {
  ExpressionPtr first = parse_expression();
  if (!is_op(",")) return first;
  auto e = make(Kind::list, first->line);
  adopt(*e, std::move(first));
  while (take_op(",")) {
    if (peek().kind == Token::Kind::block_end || peek().kind == Token::Kind::print_end || is_op(")")) break;
    adopt(*e, parse_expression());
  }
  return e;
}

ExpressionPtr Parser::parse_expression() {
  Nested nested(*this);
  ExpressionPtr value = parse_binary();
  while (is_name("if")) {
    auto e = make(Kind::conditional, next().line);
    adopt(*e, std::move(value));
    adopt(*e, parse_binary());
    adopt(*e, take_name("else") ? parse_expression() : nullptr);
    value = std::move(e);
  }
  return value;
}

ExpressionPtr Parser::parse_binary(size_t level) {
  auto operand = [&] {
    return level + 1 == std::size(kBinary) ? parse_unary(true) : level == kAnd ? parse_not() : parse_binary(level + 1);
  };
  auto joins = [&](const Token& t) {
    return (t.kind == Token::Kind::op || t.kind == Token::Kind::name) &&
           std::find(kBinary[level].begin(), kBinary[level].end(), t.text) != kBinary[level].end();
  };
  ExpressionPtr left = operand();
  while (joins(peek())) {
    const Token op = next();
    auto e = make(Kind::binary, op.line, op.text);
    adopt(*e, std::move(left));
    adopt(*e, operand());
    left = std::move(e);
  }
  return left;
}

ExpressionPtr Parser::parse_not() {
  if (!is_name("not")) return parse_comparison();
  Nested nested(*this);
  auto e = make(Kind::unary, next().line, "not");
  adopt(*e, parse_not());
  return e;
}

ExpressionPtr Parser::parse_comparison() {
  ExpressionPtr left = parse_binary(kAnd + 1);
  ExpressionPtr chain;
  for (;;) {
    std::string op;
    for (std::string_view c : {"==", "!=", "<", ">", "<=", ">="})
      if (is_op(c)) op = c;
    if (is_name("in")) op = "in";
    if (is_name("not") && is_name("in", 1)) {
      next();
      op = "not in";
    }
    if (op.empty()) break;
    const int line = next().line;
    if (!chain) {
      chain = make(Kind::comparison, line);
      adopt(*chain, std::move(left));
    }
    chain->ops.push_back(op);
    adopt(*chain, parse_binary(kAnd + 1));
  }
  return chain ? std::move(chain) : std::move(left);
}

ExpressionPtr Parser::parse_unary(bool with_filter) {
  Nested nested(*this);
  ExpressionPtr e;
  if (is_op("-") || is_op("+")) {
    const Token op = next();
    e = make(Kind::unary, op.line, op.text);
    adopt(*e, parse_unary(false));
  } else {
    e = parse_primary();
  }
  e = parse_postfix(std::move(e));
  return with_filter ? parse_filters(std::move(e)) : std::move(e);
}

ExpressionPtr Parser::parse_primary() {
  const Token t = next();
  if (t.kind == Token::Kind::name) {
    auto e = make(Kind::constant, t.line);
    if (t.text == "true" || t.text == "True") {
      e->value = Value::of(true);
    } else if (t.text == "false" || t.text == "False") {
      e->value = Value::of(false);
    } else if (t.text == "none" || t.text == "None") {
      e->value = Value::none();
    } else {
      e->kind = Kind::variable;
      e->name = t.text;
    }
    return e;
  }
  if (t.kind == Token::Kind::text) {
    std::string s = t.text;
    while (peek().kind == Token::Kind::text) s += next().text;
    auto e = make(Kind::constant, t.line);
    e->value = Value::of(std::move(s));
    return e;
  }
  if (t.kind == Token::Kind::integer || t.kind == Token::Kind::real) {
    auto e = make(Kind::constant, t.line);
    const char *begin = t.text.data(), *end = begin + t.text.size();
    i64 n = 0;
    double x = 0;
    const bool whole = t.kind == Token::Kind::integer;
    const auto r = whole ? std::from_chars(begin, end, n) : std::from_chars(begin, end, x);
    if (r.ec != std::errc{} || r.ptr != end) wrong(t, "got the number " + t.text + ", which does not fit");
    e->value = whole ? Value::of(n) : Value::of(x);
    return e;
  }
  if (t.kind == Token::Kind::op && t.text == "(") {
    Nested nested(*this);
    if (take_op(")")) return make(Kind::list, t.line);
    ExpressionPtr e = parse_tuple_or_expression();
    want_op(")");
    return e;
  }
  if (t.kind == Token::Kind::op && t.text == "[") {
    Nested nested(*this);
    auto e = make(Kind::list, t.line);
    while (!take_op("]")) {
      adopt(*e, parse_expression());
      if (!is_op("]")) want_op(",");
    }
    return e;
  }
  if (t.kind == Token::Kind::op && t.text == "{") {
    Nested nested(*this);
    auto e = make(Kind::dict, t.line);
    while (!take_op("}")) {
      adopt(*e, parse_expression());
      want_op(":");
      adopt(*e, parse_expression());
      if (!is_op("}")) want_op(",");
    }
    return e;
  }
  wrong(t, "got " + shown(t) + ", want an expression");
}

ExpressionPtr Parser::parse_postfix(ExpressionPtr e) {
  for (;;) {
    if (is_op(".")) {
      const int line = next().line;
      if (peek().kind == Token::Kind::integer) {
        auto item = make(Kind::item, line);
        adopt(*item, std::move(e));
        adopt(*item, parse_primary());
        e = std::move(item);
        continue;
      }
      auto attribute = make(Kind::attribute, line, want_name());
      adopt(*attribute, std::move(e));
      e = std::move(attribute);
    } else if (is_op("[")) {
      e = parse_subscript(std::move(e));
    } else if (is_op("(")) {
      auto call = make(Kind::call, peek().line);
      adopt(*call, std::move(e));
      parse_arguments(*call);
      e = std::move(call);
    } else {
      return e;
    }
  }
}

ExpressionPtr Parser::parse_subscript(ExpressionPtr e) {
  Nested nested(*this);
  const int line = next().line;
  ExpressionPtr parts[3];
  int part = 0;
  bool slice = false;
  while (!is_op("]")) {
    if (take_op(":")) {
      slice = true;
      if (++part > 2) wrong(peek(), "got a slice of more than three parts");
    } else {
      if (parts[part]) wrong(peek(), "got " + shown(peek()) + ", want \"]\"");
      parts[part] = parse_expression();
    }
  }
  const Token end = next();
  if (!slice && !parts[0]) wrong(end, "got [] after a value, want an index");
  auto item = make(slice ? Kind::slice : Kind::item, line);
  adopt(*item, std::move(e));
  for (int k = 0; k < (slice ? 3 : 1); k++) adopt(*item, std::move(parts[k]));
  return item;
}

void Parser::parse_arguments(Expression& call) {
  want_op("(");
  while (!take_op(")")) {
    if (is_op("*") || is_op("**"))
      wrong(peek(), "got " + shown(peek()) + " before an argument, which is not supported");
    if (peek().kind == Token::Kind::name && is_op("=", 1)) {
      call.keywords.push_back(next().text);
      next();
    } else if (!call.keywords.empty()) {
      wrong(peek(), "got an argument without name after a named one");
    }
    adopt(call, parse_expression());
    if (!is_op(")")) want_op(",");
  }
}

ExpressionPtr Parser::parse_filters(ExpressionPtr e) {
  for (;;) {
    if (take_op("|")) {
      const int line = peek().line;
      auto filter = make(Kind::filter, line, want_name());
      adopt(*filter, std::move(e));
      if (is_op("(")) parse_arguments(*filter);
      e = std::move(filter);
    } else if (take_name("is")) {
      e = parse_test(std::move(e));
    } else if (is_op("(")) {
      auto call = make(Kind::call, peek().line);
      adopt(*call, std::move(e));
      parse_arguments(*call);
      e = std::move(call);
    } else {
      return e;
    }
  }
}

ExpressionPtr Parser::parse_test(ExpressionPtr e) {
  const bool negated = take_name("not");
  const int line = peek().line;
  auto test = make(Kind::test, line, want_name());
  adopt(*test, std::move(e));
  const Token& t = peek();
  const bool operand = t.kind == Token::Kind::text || t.kind == Token::Kind::integer || t.kind == Token::Kind::real ||
                       is_op("[") || is_op("{") ||
                       (t.kind == Token::Kind::name && t.text != "else" && t.text != "or" && t.text != "and" &&
                        t.text != "is" && t.text != "if" && t.text != "in" && t.text != "not");
  if (is_op("("))
    parse_arguments(*test);
  else if (operand)
    adopt(*test, parse_postfix(parse_primary()));
  if (!negated) return test;
  auto e_not = make(Kind::unary, line, "not");
  adopt(*e_not, std::move(test));
  return e_not;
}

}  // namespace

Body parse(std::string_view source) { return Parser(source).run(); }

}  // namespace plait::text::tmpl
