#include "plait/graph/rule.h"

#include <algorithm>
#include <cctype>

namespace plait {

Rule Rule::parse(std::string_view s) {
  constexpr size_t kMostBytes = 512;
  if (s.size() > kMostBytes) fail(Code::bad_file, "rule: got {} characters, want at most {}", s.size(), kMostBytes);
  Rule r;
  Term term;
  std::string group;
  bool after = false, grouped = false;
  auto bad = [&](size_t at, std::string_view what) {
    fail(Code::bad_file, "rule \"{}\": {} at character {}", s, what, at);
  };
  auto end_term = [&] {
    (after ? r.out : r.in).push_back(term);
    term.clear();
  };
  for (size_t i = 0; i < s.size(); i++) {
    char c = s[i];
    if (c == ' ') continue;
    if (c == '(') {
      if (grouped) bad(i, "a group inside a group");
      grouped = true;
      group.clear();
    } else if (c == ')') {
      if (!grouped || group.empty()) bad(i, "an empty or unopened group");
      grouped = false;
      term.push_back(group);
    } else if (c == ',' || c == '-') {
      if (grouped) bad(i, "an open group");
      end_term();
      if (c == '-') {
        if (after || i + 1 >= s.size() || s[i + 1] != '>') bad(i, "a misplaced arrow");
        after = true;
        i++;
      }
    } else if (std::islower(static_cast<unsigned char>(c)) != 0) {
      if (grouped)
        group += c;
      else
        term.push_back(std::string(1, c));
    } else {
      bad(i, fmt::format("'{}' is no factor letter", c));
    }
  }
  if (grouped || !after) fail(Code::bad_file, "rule \"{}\": {}", s, grouped ? "an open group" : "no arrow");
  end_term();
  if (r.in.size() == 1 && r.in[0].empty()) r.in.clear();  // "-> o" has no operands
  return r;
}

bool Rule::in_output(char f) const {
  for (auto& t : out)
    for (auto& g : t)
      if (g.find(f) != std::string::npos) return true;
  return false;
}

std::string Rule::contracted() const {
  std::string c;
  for (auto& t : in)
    for (auto& g : t)
      for (char f : g)
        if (!in_output(f) && c.find(f) == std::string::npos) c += f;
  return c;
}

std::vector<std::string> Rule::groups() const {
  std::vector<std::string> all;
  for (auto* side : {&in, &out})
    for (auto& t : *side)
      for (auto& g : t)
        if (std::find(all.begin(), all.end(), g) == all.end()) all.push_back(g);
  return all;
}

std::string to_string(const Rule::Term& t) {
  std::string s;
  for (auto& g : t) {
    if (!s.empty()) s += ' ';
    if (g.size() == 1) {
      s += g;
      continue;
    }
    s += '(';
    for (size_t i = 0; i < g.size(); i++) s += (i > 0 ? " " : "") + std::string(1, g[i]);
    s += ')';
  }
  return s;
}

std::string to_string(const Rule& r) {
  std::string s;
  for (size_t i = 0; i < r.in.size(); i++) s += (i > 0 ? ", " : "") + to_string(r.in[i]);
  s += s.empty() ? "->" : " ->";
  for (size_t i = 0; i < r.out.size(); i++) s += (i > 0 ? ", " : " ") + to_string(r.out[i]);
  return s;
}

}  // namespace plait
