#include "plait/io/json_text.h"

#include <nlohmann/json.hpp>
#include <unordered_set>
#include <vector>

#include "plait/io/cursor.h"

namespace plait::io {

namespace {

/// Depth, and an estimate of what the tree will take, from above: of a string, an object's entry (a node of the map,
/// the key once more while keys are compared), an element of a list, a list or object itself. Says nothing of the
/// syntax.
void check_cost(std::string_view text, std::string_view where, i64 max_tree_bytes) {
  constexpr i64 kString = 48, kEntry = 160, kElement = 24, kContainer = 64;
  constexpr size_t kMostDigits = 4096;  // the parser keeps several copies
  int depth = 0;
  bool in_string = false;
  i64 bytes = 0;
  size_t mark = 0;  // the last character outside of strings that is in no number
  for (size_t i = 0; i < text.size(); i++) {
    char c = text[i];
    if (in_string) {
      if (c == '\\')
        i++;
      else if (c == '"')
        in_string = false;
    } else if (c == '"') {
      in_string = true;
      bytes += kString;
    } else if (c == ':') {
      bytes += kEntry;
    } else if (c == ',') {
      bytes += kElement;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxJsonDepth)
        fail(Code::bad_file, "[{}] JSON at offset {}: got deeper nesting, want at most {} levels", where, i,
             kMaxJsonDepth);
      bytes += kContainer;
    } else if (c == ']' || c == '}') {
      depth--;
    }
    if (in_string || std::string_view(" \t\r\n\",:[]{}").find(c) != std::string_view::npos)
      mark = i;
    else if (i - mark > kMostDigits)
      fail(Code::bad_file, "[{}] JSON at offset {}: got a number of more than {} characters", where, mark, kMostDigits);
  }
  if (bytes > max_tree_bytes)
    fail(Code::bad_file, "[{}] JSON: got values that take {} MB of memory, want at most {} MB", where,
         bytes / 1'000'000, max_tree_bytes / 1'000'000);
}

/// Builds the tree and refuses a key that is there already. (The parser with a callback would do so too, but at the end
/// of every object it walks over all that lie beside it.)
class Tree : public nlohmann::detail::json_sax_dom_parser<nlohmann::json> {
 public:
  Tree(nlohmann::json& root, std::string_view where) : json_sax_dom_parser(root), where_(where) {}

  bool start_object(size_t size) {
    keys_.emplace_back();
    return json_sax_dom_parser::start_object(size);
  }
  bool key(std::string& text) {
    if (!keys_.back().insert(text).second)
      fail(Code::bad_file, "[{}] JSON: got key {} again, want each once in an object", where_, shown(text));
    return json_sax_dom_parser::key(text);
  }
  bool end_object() {
    keys_.pop_back();
    return json_sax_dom_parser::end_object();
  }

 private:
  std::string_view where_;
  std::vector<std::unordered_set<std::string>> keys_;
};

}  // namespace

nlohmann::json parse_json(std::string_view text, std::string_view where, i64 max_tree_bytes) {
  using nlohmann::json;
  check_cost(text, where, max_tree_bytes);
  if (auto nul = text.find('\0'); nul != text.npos)  // the parser ends there
    fail(Code::bad_file, "[{}] JSON at offset {}: got a NUL byte, want well-formed JSON", where, nul);
  if (text.starts_with("\xef\xbb\xbf"))
    fail(Code::bad_file, "[{}] JSON: got a byte order mark, want plain UTF-8", where);
  json root;
  Tree tree(root, where);
  try {
    json::sax_parse(text.begin(), text.end(), &tree);
    return root;
  } catch (const json::parse_error& e) {
    size_t at = e.byte > 0 ? std::min(e.byte - 1, text.size()) : 0;
    fail(Code::bad_file, "[{}] JSON at offset {}: got {}, want well-formed JSON", where, at,
         at < text.size() ? shown(text.substr(at, 24)) : std::string("the end"));
  } catch (const json::exception& e) { fail(Code::bad_file, "[{}] JSON: got {}", where, shown(e.what())); }
}

nlohmann::json read_json(const std::string& path, i64 max_bytes) {
  MappedFile file(path);
  if (file.size() > max_bytes)
    fail(Code::bad_file, "[{}] got {} bytes, want at most {} for this kind of file", path, file.size(), max_bytes);
  auto json = parse_json(file.text(), path);
  file.check_whole();
  return json;
}

}  // namespace plait::io
