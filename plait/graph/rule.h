// The factor rule of an op: which factors each dim of each operand and result is made of.
//   "m k, k n -> m n"                      a product; k is contracted: in no output
//   "t (k g) h, s k h, s k h -> t (k g) h" grouped heads: the dim N is made of factors k and g, in this order
#pragma once
#include <string>
#include <vector>

#include "plait/base/base.h"

namespace plait {

struct Rule {
  using Term = std::vector<std::string>;  // a dim's factors: "t", "kg"
  std::vector<Term> in, out;

  /// Throws Error(bad_file) that names the place when the text is no rule.
  static Rule parse(std::string_view text);
  bool in_output(char factor) const;
  /// Factors of operands that no output has, in order of appearance.
  std::string contracted() const;
  /// All factor groups, each once, operands first.
  std::vector<std::string> groups() const;
};

/// "t (k g) h" of a term.
std::string to_string(const Rule::Term& t);
std::string to_string(const Rule& r);

}  // namespace plait
