#include "plait/text/template_value.h"

#include <cmath>
#include <nlohmann/json.hpp>

namespace plait::text::tmpl {

namespace {

[[noreturn]] void too_deep() {
  fail(Code::bad_file, "[chat template] got values nested deeper than {}", Value::kMaxDepth);
}

std::string real_text(double x) {
  if (std::isnan(x)) return "nan";
  if (std::isinf(x)) return x > 0 ? "inf" : "-inf";
  std::string s = fmt::format("{}", x);
  if (s.find_first_of(".e") == std::string::npos) s += ".0";
  return s;
}

void json_text(std::string& out, std::string_view s) {
  out += '"';
  for (char c : s) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\b':
        out += "\\b";
        break;
      case '\f':
        out += "\\f";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20)
          out += fmt::format("\\u{:04x}", c);
        else
          out += c;
    }
  }
  out += '"';
}

// Python prefers single quotes; what does not print as ASCII stays as it is but for control characters.
void repr_text(std::string& out, std::string_view s) {
  const bool single = s.find('\'') == std::string_view::npos || s.find('"') != std::string_view::npos;
  const char quote = single ? '\'' : '"';
  out += quote;
  for (char c : s) {
    if (c == quote || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n' || c == '\r' || c == '\t') {
      out += c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      out += fmt::format("\\x{:02x}", c);
    } else {
      out += c;
    }
  }
  out += quote;
}

void new_line(std::string& out, i64 indent, int depth) {
  if (indent < 0) return;
  out += '\n';
  out.append(static_cast<size_t>(indent) * depth, ' ');
}

}  // namespace

Value Value::of_kind(Kind k) {
  Value v;
  v.kind_ = k;
  return v;
}

void Value::hold(const Value& item) {
  if (item.is(Kind::space)) fail(Code::bad_file, "[chat template] got a namespace inside of a value");
  depth_ = std::max(depth_, item.depth_ + 1);
  weight_ += item.weight_;
  if (depth_ > kMaxDepth) too_deep();
  if (weight_ > kMaxWeight) fail(Code::bad_file, "[chat template] got a value of more than {} bytes", kMaxWeight);
}

i64 Value::breadth() const {
  switch (kind_) {
    case Kind::text:
      return static_cast<i64>(text_->size());
    case Kind::list:
      return static_cast<i64>(list_->size());
    case Kind::dict:
      return static_cast<i64>(dict_->size());
    default:
      return 1;
  }
}

Value Value::of(bool b) {
  Value v = of_kind(Kind::boolean);
  v.integer_ = b;
  return v;
}

Value Value::of(i64 n) {
  Value v = of_kind(Kind::integer);
  v.integer_ = n;
  return v;
}

Value Value::of(double x) {
  Value v = of_kind(Kind::real);
  v.real_ = x;
  return v;
}

Value Value::of(std::string s) {
  Value v = of_kind(Kind::text);
  v.weight_ += static_cast<i64>(s.size());
  v.text_ = std::make_shared<const std::string>(std::move(s));
  return v;
}

Value Value::of(List items) {
  Value v = of_kind(Kind::list);
  for (const Value& x : items) v.hold(x);
  v.list_ = std::make_shared<const List>(std::move(items));
  return v;
}

Value Value::of(Dict items) {
  Value v = of_kind(Kind::dict);
  for (const auto& [key, x] : items) {
    v.weight_ += static_cast<i64>(key.size());
    v.hold(x);
  }
  v.dict_ = std::make_shared<Dict>(std::move(items));
  return v;
}

Value Value::space(Dict items) {
  Value v = of(std::move(items));
  v.kind_ = Kind::space;
  return v;
}

Value Value::undefined(std::string name) {
  Value v;
  v.text_ = std::make_shared<const std::string>(std::move(name));
  return v;
}

Value Value::from_json(const nlohmann::ordered_json& j, int depth) {
  if (depth > kMaxDepth) too_deep();
  if (j.is_null()) return none();
  if (j.is_boolean()) return of(j.get<bool>());
  if (j.is_number_unsigned() && j.get<u64>() > u64{INT64_MAX}) return of(static_cast<double>(j.get<u64>()));
  if (j.is_number_integer()) return of(j.get<i64>());
  if (j.is_number()) return of(j.get<double>());
  if (j.is_string()) return of(j.get<std::string>());
  if (j.is_array()) {
    List items;
    for (const auto& x : j) items.push_back(from_json(x, depth + 1));
    return of(std::move(items));
  }
  Dict items;
  for (const auto& [key, x] : j.items()) items.emplace_back(key, from_json(x, depth + 1));
  return of(std::move(items));
}

const Value* Value::find(std::string_view key) const {
  for (const auto& [k, v] : *dict_)
    if (k == key) return &v;
  return nullptr;
}

bool Value::truth() const {
  switch (kind_) {
    case Kind::undefined:
    case Kind::none:
      return false;
    case Kind::boolean:
    case Kind::integer:
      return integer_ != 0;
    case Kind::real:
      return real_ != 0;
    case Kind::text:
      return !text_->empty();
    case Kind::list:
      return !list_->empty();
    case Kind::dict:
      return !dict_->empty();
    case Kind::space:
      return true;
  }
  return false;
}

std::string Value::str() const {
  if (kind_ == Kind::undefined) return "";
  if (kind_ == Kind::text) return *text_;
  std::string out;
  repr(out);
  return out;
}

void Value::repr(std::string& out, int depth) const {
  if (depth > kMaxDepth) too_deep();
  switch (kind_) {
    case Kind::undefined:
      out += "Undefined";
      return;
    case Kind::none:
      out += "None";
      return;
    case Kind::boolean:
      out += integer_ ? "True" : "False";
      return;
    case Kind::integer:
      out += std::to_string(integer_);
      return;
    case Kind::real:
      out += real_text(real_);
      return;
    case Kind::text:
      repr_text(out, *text_);
      return;
    case Kind::list:
      out += '[';
      for (size_t i = 0; i < list_->size(); i++) {
        if (i) out += ", ";
        (*list_)[i].repr(out, depth + 1);
      }
      out += ']';
      return;
    case Kind::dict:
    case Kind::space:
      out += '{';
      for (size_t i = 0; i < dict_->size(); i++) {
        if (i) out += ", ";
        repr_text(out, (*dict_)[i].first);
        out += ": ";
        (*dict_)[i].second.repr(out, depth + 1);
      }
      out += '}';
      return;
  }
}

void Value::json(std::string& out, i64 indent, int depth) const {
  if (depth > kMaxDepth) too_deep();
  const char* comma = indent < 0 ? ", " : ",";
  switch (kind_) {
    case Kind::undefined:
    case Kind::space:
      fail(Code::bad_file, "[chat template] tojson: got {}, which has no JSON", kind_name());
    case Kind::none:
      out += "null";
      return;
    case Kind::boolean:
      out += integer_ ? "true" : "false";
      return;
    case Kind::integer:
      out += std::to_string(integer_);
      return;
    case Kind::real:
      out += std::isnan(real_) ? "NaN" : std::isinf(real_) ? (real_ > 0 ? "Infinity" : "-Infinity") : real_text(real_);
      return;
    case Kind::text:
      json_text(out, *text_);
      return;
    case Kind::list:
      out += '[';
      for (size_t i = 0; i < list_->size(); i++) {
        if (i) out += comma;
        new_line(out, indent, depth + 1);
        (*list_)[i].json(out, indent, depth + 1);
      }
      if (!list_->empty()) new_line(out, indent, depth);
      out += ']';
      return;
    case Kind::dict:
      out += '{';
      for (size_t i = 0; i < dict_->size(); i++) {
        if (i) out += comma;
        new_line(out, indent, depth + 1);
        json_text(out, (*dict_)[i].first);
        out += ": ";
        (*dict_)[i].second.json(out, indent, depth + 1);
      }
      if (!dict_->empty()) new_line(out, indent, depth);
      out += '}';
      return;
  }
}

const char* Value::kind_name() const {
  switch (kind_) {
    case Kind::undefined:
      return "an undefined value";
    case Kind::none:
      return "none";
    case Kind::boolean:
      return "a boolean";
    case Kind::integer:
      return "an integer";
    case Kind::real:
      return "a float";
    case Kind::text:
      return "a string";
    case Kind::list:
      return "a list";
    case Kind::dict:
      return "a dict";
    case Kind::space:
      return "a namespace";
  }
  return "";
}

bool equal(const Value& a, const Value& b, int depth) {
  if (depth > Value::kMaxDepth) too_deep();
  using Kind = Value::Kind;
  if (a.is_number() && b.is_number())
    return a.is_integer() && b.is_integer() ? a.integer() == b.integer() : a.real() == b.real();
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::text:
      return a.text() == b.text();
    case Kind::list: {
      if (a.list().size() != b.list().size()) return false;
      for (size_t i = 0; i < a.list().size(); i++)
        if (!equal(a.list()[i], b.list()[i], depth + 1)) return false;
      return true;
    }
    case Kind::dict: {
      if (a.dict().size() != b.dict().size()) return false;
      for (const auto& [key, x] : a.dict()) {
        const Value* y = b.find(key);
        if (!y || !equal(x, *y, depth + 1)) return false;
      }
      return true;
    }
    case Kind::space:
      return &a.dict() == &b.dict();
    default:
      return true;  // undefined, none
  }
}

}  // namespace plait::text::tmpl
