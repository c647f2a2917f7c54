#include "plait/text/template_library.h"

#include <utf8proc.h>

#include <algorithm>
#include <cmath>

#include "plait/text/utf8.h"

namespace plait::text::tmpl {

namespace {

using Kind = Value::Kind;

bool is_python_space(std::int32_t c) { return is_white_space(c) || (c >= 0x1C && c <= 0x1F); }

// Characters to strip: the given ones, or white space.
struct Stripped {
  const std::string* characters;
  bool operator()(std::string_view s, i64 at, i64 bytes, std::int32_t value) const {
    return characters ? characters->find(s.substr(at, bytes)) != std::string::npos : is_python_space(value);
  }
};

std::string strip(std::string_view s, bool left, bool right, Stripped stripped) {
  i64 begin = 0, end = static_cast<i64>(s.size());
  while (left && begin < end) {
    const CodePoint p = code_point_at(s, begin);
    if (!stripped(s, begin, p.bytes, p.value)) break;
    begin += p.bytes;
  }
  while (right && begin < end) {
    const CodePoint p = code_point_before(s, end);
    if (!stripped(s, end - p.bytes, p.bytes, p.value)) break;
    end -= p.bytes;
  }
  return std::string(s.substr(begin, end - begin));
}

template <class F>
std::string map_characters(std::string_view s, F f) {
  std::string out;
  for (i64 at = 0; at < static_cast<i64>(s.size());) {
    const CodePoint p = code_point_at(s, at);
    if (p.valid)
      append_utf8(out, f(p.value));
    else
      out += s.substr(at, p.bytes);
    at += p.bytes;
  }
  return out;
}

std::string upper(std::string_view s) { return map_characters(s, utf8proc_toupper); }
std::string lower(std::string_view s) { return map_characters(s, utf8proc_tolower); }
std::string capitalize(std::string_view s) {
  bool first = true;
  return map_characters(
      s, [&](std::int32_t c) { return std::exchange(first, false) ? utf8proc_totitle(c) : utf8proc_tolower(c); });
}
std::string title(std::string_view s) {
  bool first = true;
  return map_characters(s, [&](std::int32_t c) {
    const bool begins = std::exchange(first, !is_letter(c));
    return begins ? utf8proc_totitle(c) : utf8proc_tolower(c);
  });
}

std::string replace_all(const std::string& s, const std::string& from, const std::string& to, i64 count,
                        const Place& place) {
  std::string out;
  i64 done = 0, hits = 0;
  const i64 size = static_cast<i64>(s.size());
  auto grow = [&](std::string_view part) {
    place.meter.bytes(place.line, static_cast<i64>(part.size()));
    out += part;
  };
  while (count < 0 || hits < count) {
    if (from.empty()) {  // Python: before every character and at the end
      grow(to);
      hits++;
      if (done >= size) break;
      const i64 bytes = code_point_at(s, done).bytes;
      grow(std::string_view(s).substr(done, bytes));
      done += bytes;
      continue;
    }
    const size_t hit = s.find(from, done);
    if (hit == std::string::npos) break;
    grow(std::string_view(s).substr(done, hit - done));
    grow(to);
    done = static_cast<i64>(hit + from.size());
    hits++;
  }
  if (done < size) grow(std::string_view(s).substr(done));
  return out;
}

List split(const std::string& s, const Value* separator, i64 limit, const Place& place) {
  List out;
  auto add = [&](size_t begin, size_t end) {
    place.meter.bytes(place.line, static_cast<i64>(end - begin) + 64);
    out.push_back(Value::of(s.substr(begin, end - begin)));
  };
  if (separator && !separator->is(Kind::none)) {
    const std::string& sep = separator->text();
    if (sep.empty()) place.wrong("split: got an empty separator");
    size_t begin = 0;
    for (size_t hit; limit-- != 0 && (hit = s.find(sep, begin)) != std::string::npos; begin = hit + sep.size())
      add(begin, hit);
    add(begin, s.size());
    return out;
  }
  const i64 size = static_cast<i64>(s.size());
  for (i64 at = 0; at < size;) {
    CodePoint p = code_point_at(s, at);
    if (is_python_space(p.value)) {
      at += p.bytes;
      continue;
    }
    const i64 begin = at;
    if (limit-- == 0) {
      const std::string rest = strip(std::string_view(s).substr(begin), false, true, {nullptr});
      add(begin, begin + rest.size());
      return out;
    }
    for (; at < size && !is_python_space((p = code_point_at(s, at)).value);) at += p.bytes;
    add(begin, at);
  }
  return out;
}

const std::string& want_text(const Value& v, std::string_view what, const Place& place) {
  if (!v.is(Kind::text)) place.wrong(fmt::format("{}: got {}, want a string", what, v.kind_name()));
  return v.text();
}

i64 want_integer(const Value& v, std::string_view what, const Place& place) {
  if (!v.is_integer()) place.wrong(fmt::format("{}: got {}, want an integer", what, v.kind_name()));
  return v.integer();
}

i64 length(const Value& v, const Place& place) {
  switch (v.kind()) {
    case Kind::undefined:
      return 0;
    case Kind::text:
      return count_code_points(v.text());
    case Kind::list:
      return static_cast<i64>(v.list().size());
    case Kind::dict:
      return static_cast<i64>(v.dict().size());
    default:
      place.wrong(fmt::format("length: got {}, which has none", v.kind_name()));
  }
}

Value to_integer(const Value& v, const Place& place);

List pairs_of(const Value& v, const Place& place) {
  List out;
  place.meter.bytes(place.line, static_cast<i64>(v.dict().size()) * 256);
  for (const auto& [key, x] : v.dict()) out.push_back(Value::of(List{Value::of(key), x}));
  return out;
}

// The part of a value that `attribute` names: dotted, with integers as indices.
Value attribute_of(const Value& v, const Value& attribute, const Place& place) {
  if (attribute.is_integer()) return item(v, attribute, place);
  Value at = v;
  const Value dot = Value::of(std::string("."));
  for (const Value& part : split(want_text(attribute, "attribute", place), &dot, -1, place)) {
    const bool number = !part.text().empty() && part.text().find_first_not_of("0123456789") == std::string::npos;
    at = item(at, number ? to_integer(part, place) : part, place);
  }
  return at;
}

Value default_filter(const Value& v, const Arguments& a) {
  const Value* otherwise = a.get(0, "default_value");
  const Value* also_false = a.get(1, "boolean");
  const bool missing = v.is(Kind::undefined) || (also_false && also_false->truth() && !v.truth());
  return missing ? (otherwise ? *otherwise : Value::of(std::string())) : v;
}

Value join(const Value& v, const Arguments& a, const Place& place) {
  const Value* d = a.get(0, "d");
  const Value* attribute = a.get(1, "attribute");
  const std::string between = d ? d->str() : "";
  std::string out;
  bool first = true;
  for (const Value& x : items_of(v, place)) {
    place.meter.work(place.line, x.weight());
    const std::string s = attribute ? attribute_of(x, *attribute, place).str() : x.str();
    place.meter.bytes(place.line, static_cast<i64>(s.size() + between.size()));
    if (!std::exchange(first, false)) out += between;
    out += s;
  }
  return Value::of(std::move(out));
}

// select, reject, selectattr, rejectattr.
Value select(std::string_view name, const Value& v, const Arguments& a, const Place& place) {
  const bool by_attribute = name.ends_with("attr");
  const bool wanted = name.starts_with("select");
  if (by_attribute && a.values.empty()) place.wrong(fmt::format("{}: got no attribute", name));
  const size_t test_place = by_attribute ? 1 : 0;
  Arguments rest;
  for (size_t i = test_place + 1; i < a.values.size(); i++) rest.values.push_back(a.values[i]);
  List out;
  for (const Value& x : items_of(v, place)) {
    place.meter.step(place.line);
    const Value tested = by_attribute ? attribute_of(x, a.values[0], place) : x;
    const bool holds = a.values.size() > test_place
                           ? apply_test(want_text(a.values[test_place], name, place), tested, rest, place)
                           : tested.truth();
    if (holds == wanted) out.push_back(x);
  }
  return Value::of(std::move(out));
}

Value map_filter(const Value& v, const Arguments& a, const Place& place) {
  const Value* attribute = a.get(99, "attribute");
  const Value* otherwise = a.get(99, "default");
  if (!attribute && a.values.empty()) place.wrong("map: got neither a filter nor an attribute");
  Arguments rest;
  for (size_t i = 1; i < a.values.size(); i++) rest.values.push_back(a.values[i]);
  List out;
  for (const Value& x : items_of(v, place)) {
    place.meter.step(place.line);
    Value y = attribute ? attribute_of(x, *attribute, place)
                        : apply_filter(want_text(a.values[0], "map", place), x, rest, place);
    out.push_back(y.is(Kind::undefined) && otherwise ? *otherwise : std::move(y));
  }
  return Value::of(std::move(out));
}

Value to_integer(const Value& v, const Place& place) {
  if (v.is_integer()) return Value::of(v.integer());
  if (v.is(Kind::real)) {
    if (!(std::abs(v.real()) < 0x1p62)) place.wrong("int: got a float that does not fit");
    return Value::of(static_cast<i64>(v.real()));
  }
  if (!v.is(Kind::text)) return Value::of(i64{0});
  const std::string s = strip(v.text(), true, true, {nullptr});
  const bool sign = !s.empty() && (s[0] == '-' || s[0] == '+');
  const std::string digits = s.substr(sign ? 1 : 0);
  if (digits.empty() || digits.size() > 18 || digits.find_first_not_of("0123456789") != std::string::npos)
    return Value::of(i64{0});
  return Value::of(s[0] == '-' ? i64{-1} * std::stol(digits) : i64{std::stol(digits)});
}

Value indent_filter(const Value& v, const Arguments& a, const Place& place) {
  const Value *width = a.get(0, "width"), *first = a.get(1, "first"), *blank = a.get(2, "blank");
  const std::string space =
      width && width->is(Kind::text)
          ? width->text()
          : std::string(
                static_cast<size_t>(std::clamp<i64>(width ? want_integer(*width, "indent", place) : 4, 0, 1000)), ' ');
  const std::string s = v.str();
  std::string out = first && first->truth() ? space : "";
  for (size_t begin = 0;;) {
    const size_t end = std::min(s.find('\n', begin), s.size());
    if (begin > 0 && (end > begin || (blank && blank->truth()))) out += space;
    place.meter.bytes(place.line, static_cast<i64>(end - begin + space.size() + 1));
    out += s.substr(begin, end - begin);
    if (end == s.size()) break;
    out += '\n';
    begin = end + 1;
  }
  return Value::of(std::move(out));
}

Value sort_filter(const Value& v, const Arguments& a, const Place& place) {
  if (a.get(1, "case_sensitive")) place.wrong("sort: case_sensitive is not supported");
  const Value *reverse = a.get(0, "reverse"), *attribute = a.get(2, "attribute");
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& x : items_of(v, place)) {
    Value key = attribute ? attribute_of(x, *attribute, place) : x;
    if (key.is(Kind::text)) key = text_value(lower(key.text()), place);
    keyed.emplace_back(std::move(key), x);
  }
  const bool down = reverse && reverse->truth();
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& x, const auto& y) {
    place.meter.step(place.line);
    return down ? less(y.first, x.first, place) : less(x.first, y.first, place);
  });
  List out;
  for (auto& [key, x] : keyed) out.push_back(std::move(x));
  return Value::of(std::move(out));
}

Value tojson(const Value& v, const Arguments& a, const Place& place) {
  for (const auto& [name, x] : a.named)
    if (name != "indent" && !(name == "ensure_ascii" && !x.truth()))
      place.wrong(fmt::format("tojson: got the argument \"{}\", which is not supported", name));
  const Value* indent = a.get(1, "indent");
  std::string out;
  place.meter.work(place.line, v.weight());
  const i64 spaces = indent && !indent->is(Kind::none) ? want_integer(*indent, "tojson", place) : -1;
  if (spaces > 100) place.wrong("tojson: got an indent of more than 100");
  v.json(out, spaces);
  return text_value(std::move(out), place);
}

}  // namespace

const Value* Arguments::get(size_t place, std::string_view name) const {
  if (place < values.size()) return &values[place];
  for (const auto& [key, v] : named)
    if (key == name) return &v;
  return nullptr;
}

void Meter::bytes(int line, i64 bytes) {
  if (bytes > bytes_) fail(Code::bad_file, "[chat template:{}] got more memory than the limit allows", line);
  bytes_ -= bytes;
}

Value text_value(std::string s, const Place& place) {
  place.meter.bytes(place.line, static_cast<i64>(s.size()) + 64);
  return Value::of(std::move(s));
}

List items_of(const Value& v, const Place& place) {
  List out;
  switch (v.kind()) {
    case Kind::undefined:
      return {};
    case Kind::list:
      place.meter.bytes(place.line, static_cast<i64>(v.list().size() * sizeof(Value)));
      return v.list();
    case Kind::dict:
      for (const auto& [key, x] : v.dict()) out.push_back(text_value(key, place));
      return out;
    case Kind::text:
      for (i64 at = 0; at < static_cast<i64>(v.text().size());) {
        const i64 bytes = code_point_at(v.text(), at).bytes;
        out.push_back(text_value(v.text().substr(at, bytes), place));
        at += bytes;
      }
      return out;
    default:
      place.wrong(fmt::format("got {}, which has no items", v.kind_name()));
  }
}

bool contains(const Value& haystack, const Value& needle, const Place& place) {
  place.meter.work(place.line, haystack.weight());
  switch (haystack.kind()) {
    case Kind::undefined:
      return false;
    case Kind::text:
      return haystack.text().find(want_text(needle, "in", place)) != std::string::npos;
    case Kind::dict:
      return needle.is(Kind::text) && haystack.find(needle.text());
    case Kind::list:
      return std::ranges::any_of(haystack.list(), [&](const Value& x) { return equal(x, needle); });
    default:
      place.wrong(fmt::format("in: got {}, which has no items", haystack.kind_name()));
  }
}

Value slice(const Value& v, const Value* begin, const Value* end, const Value* step, const Place& place) {
  if (!v.is(Kind::list) && !v.is(Kind::text)) place.wrong(fmt::format("got a slice of {}", v.kind_name()));
  place.meter.work(place.line, v.breadth());
  std::vector<i64> places;  // of a string: where its characters begin
  if (v.is(Kind::text)) {
    const i64 size = v.breadth();
    for (i64 at = 0; at < size; at += code_point_at(v.text(), at).bytes) places.push_back(at);
    places.push_back(size);
  }
  const i64 n = v.is(Kind::text) ? static_cast<i64>(places.size()) - 1 : v.breadth();
  auto given = [](const Value* x) { return x && !x->is(Kind::none); };
  const i64 by = given(step) ? want_integer(*step, "slice", place) : 1;
  if (by == 0) place.wrong("got a slice of step 0");
  auto bound = [&](const Value* x, i64 otherwise) {
    if (!given(x)) return otherwise;
    i64 i = std::clamp(want_integer(*x, "slice", place), -n - 1, n);
    if (i < 0) i += n;
    return by > 0 ? std::clamp<i64>(i, 0, n) : std::clamp<i64>(i, -1, n - 1);
  };
  const i64 from = bound(begin, by > 0 ? 0 : n - 1), to = bound(end, by > 0 ? n : -1);
  List items;
  std::string text;
  // A step past the ends takes one item; the bound keeps the index from overflowing.
  const i64 stride = std::clamp<i64>(by, -n - 1, n + 1);
  for (i64 i = from; stride > 0 ? i < to : i > to; i += stride) {
    if (v.is(Kind::list))
      items.push_back(v.list()[i]);
    else
      text.append(v.text(), places[i], places[i + 1] - places[i]);
  }
  place.meter.bytes(place.line, static_cast<i64>(items.size() * sizeof(Value)));
  return v.is(Kind::list) ? Value::of(std::move(items)) : text_value(std::move(text), place);
}

Value item(const Value& v, const Value& index, const Place& place) {
  if (v.is(Kind::undefined))
    place.wrong(fmt::format("got \"{}\" of \"{}\", which is undefined", index.str(), v.name()));
  if (v.is(Kind::dict) || v.is(Kind::space)) {
    if (index.is(Kind::text))
      if (const Value* x = v.find(index.text())) return *x;
    return Value::undefined(index.str());
  }
  if (index.is_integer() && (v.is(Kind::list) || v.is(Kind::text))) {
    const i64 n = length(v, place);
    i64 i = index.integer();
    if (i < 0 && i >= -n) i += n;
    if (i < 0 || i >= n) return Value::undefined(index.str());
    if (v.is(Kind::list)) return v.list()[i];
    const Value begin = Value::of(i), end = Value::of(i + 1);
    return slice(v, &begin, &end, nullptr, place);
  }
  return Value::undefined(index.str());
}

bool less(const Value& a, const Value& b, const Place& place) {
  if (a.is_number() && b.is_number())
    return a.is_integer() && b.is_integer() ? a.integer() < b.integer() : a.real() < b.real();
  if (a.is(Kind::text) && b.is(Kind::text)) return a.text() < b.text();
  place.wrong(fmt::format("got {} compared with {}", a.kind_name(), b.kind_name()));
}

Value apply_filter(std::string_view name, const Value& v, const Arguments& a, const Place& place) {
  place.meter.work(place.line, v.breadth());
  if (name == "trim") {
    const Value* characters = a.get(0, "chars");
    return text_value(strip(v.str(), true, true, {characters ? &want_text(*characters, name, place) : nullptr}), place);
  }
  if (name == "length" || name == "count") return Value::of(length(v, place));
  if (name == "upper") return text_value(upper(v.str()), place);
  if (name == "lower") return text_value(lower(v.str()), place);
  if (name == "capitalize") return text_value(capitalize(v.str()), place);
  if (name == "title") return text_value(title(v.str()), place);
  if (name == "string") return text_value(v.str(), place);
  if (name == "safe") return v;
  if (name == "tojson") return tojson(v, a, place);
  if (name == "default" || name == "d") return default_filter(v, a);
  if (name == "join") return join(v, a, place);
  if (name == "int") return to_integer(v, place);
  if (name == "list") return Value::of(items_of(v, place));
  if (name == "indent") return indent_filter(v, a, place);
  if (name == "map") return map_filter(v, a, place);
  if (name == "select" || name == "reject" || name == "selectattr" || name == "rejectattr")
    return select(name, v, a, place);
  if (name == "sort") return sort_filter(v, a, place);
  if (name == "items") {
    if (v.is(Kind::undefined)) return Value::of(List{});
    if (!v.is(Kind::dict)) place.wrong(fmt::format("items: got {}, want a dict", v.kind_name()));
    return Value::of(pairs_of(v, place));
  }
  if (name == "first" || name == "last") {
    const List items = items_of(v, place);
    return items.empty() ? Value::undefined(std::string(name)) : name == "first" ? items.front() : items.back();
  }
  if (name == "reverse") {
    List items = items_of(v, place);
    std::ranges::reverse(items);
    if (!v.is(Kind::text)) return Value::of(std::move(items));
    std::string s;
    for (const Value& c : items) s += c.text();
    return text_value(std::move(s), place);
  }
  if (name == "replace") {
    const Value *from = a.get(0, "old"), *to = a.get(1, "new"), *count = a.get(2, "count");
    if (!from || !to) place.wrong("replace: got fewer than two arguments");
    const i64 limit = count && !count->is(Kind::none) ? want_integer(*count, name, place) : -1;
    return Value::of(replace_all(v.str(), want_text(*from, name, place), want_text(*to, name, place), limit, place));
  }
  if (name == "abs") {
    if (!v.is_number()) place.wrong(fmt::format("abs: got {}, want a number", v.kind_name()));
    if (v.is(Kind::real)) return Value::of(std::abs(v.real()));
    if (v.integer() == INT64_MIN) place.wrong("abs: got an integer that does not fit");
    return Value::of(std::abs(v.integer()));
  }
  place.wrong(fmt::format("got the filter \"{}\", which is not supported", name));
}

bool apply_test(std::string_view name, const Value& v, const Arguments& a, const Place& place) {
  place.meter.work(place.line, a.values.empty() ? 1 : v.weight());
  auto operand = [&]() -> const Value& {
    if (a.values.size() != 1) place.wrong(fmt::format("is {}: got {} arguments, want one", name, a.values.size()));
    return a.values[0];
  };
  if (name == "defined") return !v.is(Kind::undefined);
  if (name == "undefined") return v.is(Kind::undefined);
  if (name == "none") return v.is(Kind::none);
  if (name == "string") return v.is(Kind::text);
  if (name == "boolean") return v.is(Kind::boolean);
  if (name == "true") return v.is(Kind::boolean) && v.boolean();
  if (name == "false") return v.is(Kind::boolean) && !v.boolean();
  if (name == "integer") return v.is(Kind::integer);
  if (name == "float") return v.is(Kind::real);
  if (name == "number") return v.is_number();
  if (name == "mapping") return v.is(Kind::dict);
  if (name == "sequence" || name == "iterable")
    return v.is(Kind::list) || v.is(Kind::text) || v.is(Kind::dict) || v.is(Kind::undefined);
  if (name == "odd" || name == "even") return (want_integer(v, name, place) % 2 != 0) == (name == "odd");
  if (name == "divisibleby") {
    const i64 by = want_integer(operand(), name, place);
    if (by == 0) place.wrong("divisibleby: got 0");
    return by == -1 || want_integer(v, name, place) % by == 0;
  }
  if (name == "eq" || name == "equalto" || name == "sameas") return equal(v, operand());
  if (name == "ne") return !equal(v, operand());
  if (name == "lt" || name == "lessthan") return less(v, operand(), place);
  if (name == "gt" || name == "greaterthan") return less(operand(), v, place);
  if (name == "le") return !less(operand(), v, place);
  if (name == "ge") return !less(v, operand(), place);
  if (name == "in") return contains(operand(), v, place);
  if (name == "lower") return lower(v.str()) == v.str();
  if (name == "upper") return upper(v.str()) == v.str();
  place.wrong(fmt::format("got the test \"{}\", which is not supported", name));
}

Value call_method(const Value& object, std::string_view name, const Arguments& a, const Place& place) {
  auto bad = [&]() {
    place.wrong(fmt::format("got the method \"{}\" of {}, which is not supported", name, object.kind_name()));
  };
  auto text = [&](size_t i) -> const std::string& {
    if (i >= a.values.size()) place.wrong(fmt::format("{}: got {} arguments, want more", name, a.values.size()));
    return want_text(a.values[i], name, place);
  };
  if (object.is(Kind::dict)) {
    if (name == "items") return Value::of(pairs_of(object, place));
    if (name == "keys") return Value::of(items_of(object, place));
    if (name == "values") {
      List out;
      place.meter.bytes(place.line, static_cast<i64>(object.dict().size() * sizeof(Value)));
      for (const auto& [key, x] : object.dict()) out.push_back(x);
      return Value::of(std::move(out));
    }
    if (name == "get") {
      const Value* x = object.find(text(0));
      return x ? *x : a.values.size() > 1 ? a.values[1] : Value::none();
    }
    bad();
  }
  if (!object.is(Kind::text)) bad();
  const std::string& s = object.text();
  place.meter.work(place.line, object.breadth());
  if (name == "strip" || name == "lstrip" || name == "rstrip") {
    const bool some = !a.values.empty() && !a.values[0].is(Kind::none);
    return text_value(strip(s, name != "rstrip", name != "lstrip", {some ? &text(0) : nullptr}), place);
  }
  if (name == "startswith" || name == "endswith") {
    if (a.values.empty()) place.wrong(fmt::format("{}: got no argument", name));
    const List options = a.values[0].is(Kind::list) ? a.values[0].list() : List{a.values[0]};
    return Value::of(std::ranges::any_of(options, [&](const Value& o) {
      const std::string& t = want_text(o, name, place);
      return name == "startswith" ? s.starts_with(t) : s.ends_with(t);
    }));
  }
  if (name == "split") {
    const Value *separator = a.get(0, "sep"), *limit = a.get(1, "maxsplit");
    if (separator && !separator->is(Kind::none)) want_text(*separator, name, place);
    return Value::of(split(s, separator, limit ? want_integer(*limit, name, place) : -1, place));
  }
  if (name == "upper") return text_value(upper(s), place);
  if (name == "lower") return text_value(lower(s), place);
  if (name == "title") return text_value(title(s), place);
  if (name == "capitalize") return text_value(capitalize(s), place);
  if (name == "replace") {
    const Value* count = a.get(2, "count");
    return Value::of(replace_all(s, text(0), text(1), count ? want_integer(*count, name, place) : -1, place));
  }
  if (name == "join") {
    Arguments between;
    between.values.push_back(object);
    if (a.values.size() != 1) place.wrong("join: got no list");
    return join(a.values[0], between, place);
  }
  if (name == "find" || name == "count") {
    const std::string& t = text(0);
    if (name == "find") {
      const size_t hit = s.find(t);
      return Value::of(hit == std::string::npos ? i64{-1} : count_code_points(std::string_view(s).substr(0, hit)));
    }
    i64 hits = 0;
    if (t.empty()) return Value::of(count_code_points(s) + 1);
    for (size_t at = 0; (at = s.find(t, at)) != std::string::npos; at += t.size()) hits++;
    return Value::of(hits);
  }
  bad();
  return {};
}

}  // namespace plait::text::tmpl
