#include "plait/text/chat_template.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "plait/text/template_library.h"
#include "plait/text/template_parser.h"

namespace plait::text {

namespace {

using tmpl::Arguments;
using tmpl::Body;
using tmpl::contains;
using tmpl::Dict;
using tmpl::Expression;
using tmpl::items_of;
using tmpl::less;
using tmpl::List;
using tmpl::Meter;
using tmpl::Place;
using tmpl::Statement;
using tmpl::text_value;
using tmpl::Value;
using Kind = Value::Kind;

enum class Flow { on, break_, continue_ };

class Renderer {
 public:
  Renderer(Dict variables, const ChatLimits& limits)
      : limits_(limits), meter_(limits.steps, limits.memory_bytes), scopes_{std::move(variables)} {}

  std::string render(const Body& body) {
    run(body);
    return std::move(out_);
  }

 private:
  Flow run(const Body& body);
  Flow run_for(const Statement& s);
  void run_set(const Statement& s);
  void print(int line, std::string_view text);
  void assign(int line, const std::vector<std::string>& targets, const Value& value);

  Value eval(const Expression& e);
  Value eval_binary(const Expression& e);
  Value eval_arithmetic(const Expression& e, const Value& a, const Value& b);
  bool eval_comparison(const Expression& e);
  Value eval_call(const Expression& e);
  Value call_function(const Expression& e, const std::string& name);
  Arguments arguments_of(const Expression& e);
  const Value* lookup(std::string_view name) const;
  Place at(const Expression& e) { return {e.line, meter_}; }

  const ChatLimits& limits_;
  Meter meter_;
  std::vector<Dict> scopes_;
  std::string out_;
};

void Renderer::print(int line, std::string_view text) {
  if (static_cast<i64>(out_.size() + text.size()) > limits_.output_bytes)
    fail(Code::bad_file, "[chat template:{}] got more output than {} bytes", line, limits_.output_bytes);
  out_ += text;
}

Flow Renderer::run(const Body& body) {
  for (const auto& s : body) {
    meter_.step(s->line);
    Flow flow = Flow::on;
    switch (s->kind) {
      case Statement::Kind::data:
        print(s->line, s->data);
        break;
      case Statement::Kind::print: {
        const Value v = eval(*s->value);
        meter_.work(s->line, v.weight());
        print(s->line, v.str());
        break;
      }
      case Statement::Kind::if_:
        for (const auto& branch : s->branches)
          if (!branch.condition || eval(*branch.condition).truth()) {
            flow = run(branch.body);
            break;
          }
        break;
      case Statement::Kind::for_:
        flow = run_for(*s);
        break;
      case Statement::Kind::set:
      case Statement::Kind::set_block:
        run_set(*s);
        break;
      case Statement::Kind::break_:
        flow = Flow::break_;
        break;
      case Statement::Kind::continue_:
        flow = Flow::continue_;
        break;
    }
    if (flow != Flow::on) return flow;
  }
  return Flow::on;
}

void Renderer::assign(int line, const std::vector<std::string>& targets, const Value& value) {
  auto set = [&](const std::string& name, const Value& v) {
    for (auto& [key, x] : scopes_.back())
      if (key == name) {
        x = v;
        return;
      }
    scopes_.back().emplace_back(name, v);
  };
  if (targets.size() == 1) return set(targets[0], value);
  const List items = items_of(value, {line, meter_});
  if (items.size() != targets.size())
    fail(Code::bad_file, "[chat template:{}] got {} values for {} names", line, items.size(), targets.size());
  for (size_t i = 0; i < items.size(); i++) set(targets[i], items[i]);
}

Flow Renderer::run_for(const Statement& s) {
  List items = items_of(eval(*s.value), {s.line, meter_});
  if (s.condition) {
    List kept;
    for (Value& x : items) {
      scopes_.emplace_back();
      assign(s.line, s.targets, x);
      if (eval(*s.condition).truth()) kept.push_back(std::move(x));
      scopes_.pop_back();
    }
    items = std::move(kept);
  }
  if (items.empty()) return run(s.otherwise);
  const i64 n = static_cast<i64>(items.size());
  for (i64 i = 0; i < n; i++) {
    meter_.step(s.line);
    meter_.bytes(s.line, 1024);
    scopes_.push_back(
        {{"loop", Value::of(Dict{{"index", Value::of(i + 1)},
                                 {"index0", Value::of(i)},
                                 {"revindex", Value::of(n - i)},
                                 {"revindex0", Value::of(n - i - 1)},
                                 {"first", Value::of(i == 0)},
                                 {"last", Value::of(i == n - 1)},
                                 {"length", Value::of(n)},
                                 {"previtem", i > 0 ? items[i - 1] : Value::undefined("previtem")},
                                 {"nextitem", i + 1 < n ? items[i + 1] : Value::undefined("nextitem")}})}});
    assign(s.line, s.targets, items[i]);
    const Flow flow = run(s.body);
    scopes_.pop_back();
    if (flow == Flow::break_) break;
  }
  return Flow::on;
}

void Renderer::run_set(const Statement& s) {
  if (s.kind == Statement::Kind::set_block) {
    std::string outer;
    std::swap(outer, out_);
    scopes_.emplace_back();
    run(s.body);
    scopes_.pop_back();
    std::swap(outer, out_);
    assign(s.line, s.targets, text_value(std::move(outer), {s.line, meter_}));
    return;
  }
  Value value = eval(*s.value);
  if (s.attribute.empty()) return assign(s.line, s.targets, value);
  const Value* space = lookup(s.targets[0]);
  if (!space || !space->is(Kind::space))
    fail(Code::bad_file, "[chat template:{}] set {}.{}: got no namespace", s.line, s.targets[0], s.attribute);
  if (value.is(Kind::space))
    fail(Code::bad_file, "[chat template:{}] got a namespace inside a namespace, which is not supported", s.line);
  for (auto& [key, x] : space->space())
    if (key == s.attribute) {
      x = std::move(value);
      return;
    }
  space->space().emplace_back(s.attribute, std::move(value));
}

const Value* Renderer::lookup(std::string_view name) const {
  for (size_t i = scopes_.size(); i-- > 0;)
    for (const auto& [key, v] : scopes_[i])
      if (key == name) return &v;
  return nullptr;
}

Value Renderer::eval(const Expression& e) {
  meter_.step(e.line);
  auto child = [&](size_t i) { return eval(*e.children[i]); };
  switch (e.kind) {
    case Expression::Kind::constant:
      return e.value;
    case Expression::Kind::variable: {
      const Value* v = lookup(e.name);
      return v ? *v : Value::undefined(e.name);
    }
    case Expression::Kind::list: {
      List items;
      meter_.bytes(e.line, static_cast<i64>(e.children.size() * sizeof(Value)));
      for (size_t i = 0; i < e.children.size(); i++) items.push_back(child(i));
      return Value::of(std::move(items));
    }
    case Expression::Kind::dict: {
      Dict items;
      meter_.bytes(e.line, static_cast<i64>(e.children.size() * sizeof(Value)));
      for (size_t i = 0; i + 1 < e.children.size(); i += 2) {
        const Value key = child(i);
        if (!key.is(Kind::text)) at(e).wrong(fmt::format("got {} as a key, want a string", key.kind_name()));
        items.emplace_back(key.text(), child(i + 1));
      }
      return Value::of(std::move(items));
    }
    case Expression::Kind::attribute:
      return tmpl::item(child(0), Value::of(e.name), at(e));
    case Expression::Kind::item:
      return tmpl::item(child(0), child(1), at(e));
    case Expression::Kind::slice: {
      const Value v = child(0);
      Value parts[3];
      for (size_t k = 0; k < 3; k++)
        if (e.children[k + 1]) parts[k] = child(k + 1);
      auto part = [&](size_t k) { return e.children[k + 1] ? &parts[k] : nullptr; };
      return tmpl::slice(v, part(0), part(1), part(2), at(e));
    }
    case Expression::Kind::call:
      return eval_call(e);
    case Expression::Kind::filter:
      return tmpl::apply_filter(e.name, child(0), arguments_of(e), at(e));
    case Expression::Kind::test:
      return Value::of(tmpl::apply_test(e.name, child(0), arguments_of(e), at(e)));
    case Expression::Kind::unary: {
      const Value v = child(0);
      if (e.name == "not") return Value::of(!v.truth());
      if (!v.is_number()) at(e).wrong(fmt::format("{}: got {}, want a number", e.name, v.kind_name()));
      if (e.name == "+") return v;
      if (v.is(Kind::real)) return Value::of(-v.real());
      if (v.integer() == INT64_MIN) at(e).wrong("-: got an integer that does not fit");
      return Value::of(-v.integer());
    }
    case Expression::Kind::binary:
      return eval_binary(e);
    case Expression::Kind::comparison:
      return Value::of(eval_comparison(e));
    case Expression::Kind::conditional:
      if (child(1).truth()) return child(0);
      return e.children[2] ? child(2) : Value::undefined("a conditional without else");
  }
  return {};
}

Value Renderer::eval_binary(const Expression& e) {
  Value a = eval(*e.children[0]);
  if (e.name == "and") return a.truth() ? eval(*e.children[1]) : a;
  if (e.name == "or") return a.truth() ? a : eval(*e.children[1]);
  const Value b = eval(*e.children[1]);
  if (e.name == "~") meter_.work(e.line, a.weight() + b.weight());
  if (e.name == "~") return text_value(a.str() + b.str(), at(e));
  if (e.name == "+" && a.is(Kind::text) && b.is(Kind::text)) return text_value(a.text() + b.text(), at(e));
  if (e.name == "+" && a.is(Kind::list) && b.is(Kind::list)) {
    List items = items_of(a, at(e));
    const List more = items_of(b, at(e));
    items.insert(items.end(), more.begin(), more.end());
    return Value::of(std::move(items));
  }
  if (e.name == "*" && a.is(Kind::text) && b.is_integer()) {
    const i64 size = static_cast<i64>(a.text().size()), times = std::max<i64>(b.integer(), 0);
    if (size == 0) return a;
    if (times > limits_.memory_bytes / size) at(e).wrong("got more memory than the limit allows");
    meter_.bytes(e.line, size * times);
    std::string s;
    for (i64 k = 0; k < times; k++) s += a.text();
    return Value::of(std::move(s));
  }
  if (a.is(Kind::undefined)) at(e).wrong(fmt::format("{}: got \"{}\", which is undefined", e.name, a.name()));
  if (b.is(Kind::undefined)) at(e).wrong(fmt::format("{}: got \"{}\", which is undefined", e.name, b.name()));
  if (!a.is_number() || !b.is_number())
    at(e).wrong(fmt::format("{}: got {} and {}, which is not supported", e.name, a.kind_name(), b.kind_name()));
  return eval_arithmetic(e, a, b);
}

Value Renderer::eval_arithmetic(const Expression& e, const Value& a, const Value& b) {
  const std::string& op = e.name;
  const bool divides = op == "/" || op == "//" || op == "%";
  if (divides && b.real() == 0) at(e).wrong("got a division by zero");
  if (op == "/") return Value::of(a.real() / b.real());
  if (!a.is_integer() || !b.is_integer()) {
    const double x = a.real(), y = b.real();
    if (op == "+") return Value::of(x + y);
    if (op == "-") return Value::of(x - y);
    if (op == "*") return Value::of(x * y);
    if (op == "//") return Value::of(std::floor(x / y));
    if (op == "%") return Value::of(x - std::floor(x / y) * y);
    return Value::of(std::pow(x, y));
  }
  const i64 x = a.integer(), y = b.integer();
  i64 r = 0;
  bool wraps = false;
  if (op == "+") {
    wraps = __builtin_add_overflow(x, y, &r);
  } else if (op == "-") {
    wraps = __builtin_sub_overflow(x, y, &r);
  } else if (op == "*") {
    wraps = __builtin_mul_overflow(x, y, &r);
  } else if (divides) {  // towards minus infinity
    if (y == -1) {
      if (__builtin_sub_overflow(i64{0}, x, &r)) at(e).wrong(op + ": got an integer that does not fit");
      return Value::of(op == "//" ? r : i64{0});
    }
    i64 quotient = x / y, rest = x % y;
    if (rest != 0 && (rest < 0) != (y < 0)) {
      quotient--;
      rest += y;
    }
    r = op == "//" ? quotient : rest;
  } else {
    if (y < 0) return Value::of(std::pow(a.real(), b.real()));
    r = 1;
    if (x == 0 || x == 1 || x == -1)
      r = y == 0 ? 1 : x == -1 && y % 2 == 0 ? 1 : x;
    else
      for (i64 k = 0; k < y && !wraps; k++) wraps = __builtin_mul_overflow(r, x, &r);
  }
  if (wraps) at(e).wrong(fmt::format("{}: got an integer that does not fit", op));
  return Value::of(r);
}

bool Renderer::eval_comparison(const Expression& e) {
  Value a = eval(*e.children[0]);
  for (size_t i = 0; i < e.ops.size(); i++) {
    Value b = eval(*e.children[i + 1]);
    meter_.work(e.line, std::min(a.weight(), b.weight()));
    const std::string& op = e.ops[i];
    bool holds = false;
    if (op == "==") holds = equal(a, b);
    if (op == "!=") holds = !equal(a, b);
    if (op == "<") holds = less(a, b, at(e));
    if (op == ">") holds = less(b, a, at(e));
    if (op == "<=") holds = !less(b, a, at(e));
    if (op == ">=") holds = !less(a, b, at(e));
    if (op == "in") holds = contains(b, a, at(e));
    if (op == "not in") holds = !contains(b, a, at(e));
    if (!holds) return false;
    a = std::move(b);
  }
  return true;
}

Arguments Renderer::arguments_of(const Expression& e) {
  Arguments a;
  const size_t by_place = e.children.size() - e.keywords.size();
  for (size_t i = 1; i < by_place; i++) a.values.push_back(eval(*e.children[i]));
  for (size_t i = by_place; i < e.children.size(); i++)
    a.named.emplace_back(e.keywords[i - by_place], eval(*e.children[i]));
  return a;
}

Value Renderer::eval_call(const Expression& e) {
  const Expression& callee = *e.children[0];
  if (callee.kind == Expression::Kind::attribute) {
    const Value object = eval(*callee.children[0]);
    if (object.is(Kind::undefined))
      at(e).wrong(fmt::format("got \"{}\" of \"{}\", which is undefined", callee.name, object.name()));
    return tmpl::call_method(object, callee.name, arguments_of(e), at(e));
  }
  if (callee.kind == Expression::Kind::variable && !lookup(callee.name)) return call_function(e, callee.name);
  at(e).wrong("got a call of a value that is no function");
}

Value Renderer::call_function(const Expression& e, const std::string& name) {
  Arguments a = arguments_of(e);
  if (name == "raise_exception") {
    const Value* message = a.get(0, "message");
    fail(Code::usage, "[chat template:{}] refuses the conversation: {}", e.line, message ? message->str() : "");
  }
  if (name == "namespace" || name == "dict") {
    if (!a.values.empty()) at(e).wrong(name + ": got an argument without name, which is not supported");
    Dict items;
    for (auto& [key, v] : a.named) {
      if (v.is(Kind::space)) at(e).wrong("got a namespace inside a namespace, which is not supported");
      items.emplace_back(key, std::move(v));
    }
    return name == "dict" ? Value::of(std::move(items)) : Value::space(std::move(items));
  }
  if (name == "range") {
    if (a.values.empty() || a.values.size() > 3) at(e).wrong("range: got no bound or more than three arguments");
    i64 part[3] = {0, 0, 1};
    for (size_t i = 0; i < a.values.size(); i++) {
      if (!a.values[i].is_integer()) at(e).wrong(fmt::format("range: got {}", a.values[i].kind_name()));
      part[a.values.size() == 1 ? 1 : i] = a.values[i].integer();
    }
    if (part[2] == 0) at(e).wrong("range: got a step of 0");
    List items;
    for (i64 i = part[0]; part[2] > 0 ? i < part[1] : i > part[1];) {
      meter_.step(e.line);
      meter_.bytes(e.line, sizeof(Value));
      items.push_back(Value::of(i));
      if (__builtin_add_overflow(i, part[2], &i)) break;
    }
    return Value::of(std::move(items));
  }
  at(e).wrong("got the function \"" + name + "\", which is not supported");
}

nlohmann::ordered_json variables_of(const std::vector<ChatMessage>& messages, const ChatOptions& options) {
  nlohmann::ordered_json v;
  v["messages"] = nlohmann::ordered_json::array();
  for (const ChatMessage& m : messages) v["messages"].push_back({{"role", m.role}, {"content", m.content}});
  v["tools"] = nullptr;
  v["documents"] = nullptr;
  v["add_generation_prompt"] = options.add_generation_prompt;
  if (!options.bos_token.empty()) v["bos_token"] = options.bos_token;
  if (!options.eos_token.empty()) v["eos_token"] = options.eos_token;
  return v;
}

}  // namespace

struct ChatTemplate::Tree {
  Body body;
};

ChatTemplate::ChatTemplate(std::string_view source) {
  constexpr size_t kMostBytes = 256 << 10;  // real ones have up to 30,000
  if (source.size() > kMostBytes)
    fail(Code::bad_file, "[chat template] got {} bytes, want at most {}", source.size(), kMostBytes);
  tree_ = std::make_unique<Tree>(Tree{tmpl::parse(source)});
}
ChatTemplate::~ChatTemplate() = default;
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;

std::string ChatTemplate::render(const nlohmann::ordered_json& variables, const ChatLimits& limits) const {
  if (!variables.is_object()) fail(Code::usage, "[chat template] got variables that are no object");
  return Renderer(Value::from_json(variables).dict(), limits).render(tree_->body);
}

std::string render_chat(std::string_view source, const std::vector<ChatMessage>& messages, const ChatOptions& options) {
  return ChatTemplate(source).render(variables_of(messages, options), options.limits);
}

std::string render_chat(const Tokenizer& tokenizer, const std::vector<ChatMessage>& messages,
                        bool add_generation_prompt) {
  if (tokenizer.chat_template().empty()) fail(Code::bad_file, "[chat] got a model without a chat template");
  ChatOptions options{.add_generation_prompt = add_generation_prompt};
  if (tokenizer.bos()) options.bos_token = tokenizer.text_of(*tokenizer.bos());
  if (tokenizer.eos()) options.eos_token = tokenizer.text_of(*tokenizer.eos());
  return render_chat(tokenizer.chat_template(), messages, options);
}

std::vector<i64> encode_chat(const Tokenizer& tokenizer, const std::vector<ChatMessage>& messages) {
  std::vector<i64> ids =
      tokenizer.encode(render_chat(tokenizer, messages), {.add_special = false, .parse_special = true});
  const auto bos = tokenizer.bos();
  if (bos && (ids.empty() || ids[0] != *bos)) {
    const auto around = tokenizer.encode("", {.add_special = true});
    if (!around.empty() && around[0] == *bos) ids.insert(ids.begin(), *bos);
  }
  return ids;
}

}  // namespace plait::text
