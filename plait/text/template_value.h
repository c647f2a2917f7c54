// Values of the template language (chat_template.h), with Python's meaning of truth, order, text and JSON.
#pragma once
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "plait/base/base.h"

namespace plait::text::tmpl {

class Value;
using List = std::vector<Value>;
/// In the order of insertion, as in Python.
using Dict = std::vector<std::pair<std::string, Value>>;

class Value {
 public:
  enum class Kind { undefined, none, boolean, integer, real, text, list, dict, space };

  Value() = default;
  static Value none() { return of_kind(Kind::none); }
  static Value of(bool b);
  static Value of(i64 n);
  static Value of(double x);
  static Value of(std::string s);
  ///   errors  bad_file: nested deeper than kMaxDepth, more than kMaxWeight in all, or a namespace among the items
  ///           (so that values form no cycle)
  static Value of(List items);
  static Value of(Dict items);
  /// namespace(...): the one value that a template may change.
  static Value space(Dict items);
  static Value undefined(std::string name);
  ///   errors  bad_file: nested deeper than `kMaxDepth`
  static Value from_json(const nlohmann::ordered_json& j, int depth = 0);

  Kind kind() const { return kind_; }
  bool is(Kind k) const { return kind_ == k; }
  bool boolean() const { return integer_ != 0; }
  i64 integer() const { return integer_; }
  double real() const { return kind_ == Kind::real ? real_ : static_cast<double>(integer_); }
  bool is_integer() const { return kind_ == Kind::integer || kind_ == Kind::boolean; }
  bool is_number() const { return is_integer() || kind_ == Kind::real; }
  const std::string& text() const { return *text_; }
  /// Of an undefined value: what was not there.
  std::string name() const { return text_ ? *text_ : ""; }
  const List& list() const { return *list_; }
  const Dict& dict() const { return *dict_; }
  Dict& space() const { return *dict_; }
  /// nullptr when a dict or a namespace has no such key.
  const Value* find(std::string_view key) const;

  bool truth() const;
  /// What `{{ value }}` prints.
  std::string str() const;
  /// Python's repr, as in a printed list.
  void repr(std::string& out, int depth = 0) const;
  /// json.dumps(ensure_ascii=False): `indent` < 0 puts all on one line.
  void json(std::string& out, i64 indent, int depth = 0) const;
  const char* kind_name() const;

  /// What a walk over the value costs: values and bytes of text, shared ones as often as they occur.
  i64 weight() const { return weight_; }
  /// Bytes of a text, items of a list or dict.
  i64 breadth() const;

  static constexpr int kMaxDepth = 100;
  static constexpr i64 kMaxWeight = i64{64} << 20;

 private:
  static Value of_kind(Kind k);
  void hold(const Value& item);

  Kind kind_ = Kind::undefined;
  int depth_ = 1;
  i64 weight_ = 1;
  i64 integer_ = 0;
  double real_ = 0;
  std::shared_ptr<const std::string> text_;  // undefined: its name
  std::shared_ptr<const List> list_;
  std::shared_ptr<Dict> dict_;
};

bool equal(const Value& a, const Value& b, int depth = 0);

}  // namespace plait::text::tmpl
