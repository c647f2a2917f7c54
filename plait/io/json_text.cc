#include "plait/io/json_text.h"

#include <nlohmann/json.hpp>
#include <unordered_set>
#include <vector>

#include "plait/io/cursor.h"

namespace plait::io {

namespace {

/// Brackets outside of strings; says nothing about the rest of the syntax.
void check_depth(std::string_view text, std::string_view where) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); i++) {
    char c = text[i];
    if (in_string) {
      if (c == '\\')
        i++;
      else if (c == '"')
        in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxJsonDepth)
        fail(Code::bad_file, "[{}] JSON at offset {}: got deeper nesting, want at most {} levels", where, i,
             kMaxJsonDepth);
    } else if (c == ']' || c == '}') {
      depth--;
    }
  }
}

}  // namespace

nlohmann::json parse_json(std::string_view text, std::string_view where) {
  using nlohmann::json;
  check_depth(text, where);
  if (auto nul = text.find('\0'); nul != text.npos)  // the parser ends there
    fail(Code::bad_file, "[{}] JSON at offset {}: got a NUL byte, want well-formed JSON", where, nul);
  if (text.starts_with("\xef\xbb\xbf"))
    fail(Code::bad_file, "[{}] JSON: got a byte order mark, want plain UTF-8", where);
  std::vector<std::unordered_set<std::string>> keys;
  auto check_keys = [&](int, json::parse_event_t event, json& parsed) {
    if (event == json::parse_event_t::object_start) keys.emplace_back();
    if (event == json::parse_event_t::object_end) keys.pop_back();
    if (event == json::parse_event_t::key && !keys.back().insert(parsed.get_ref<const std::string&>()).second)
      fail(Code::bad_file, "[{}] JSON: got key {} again, want each once in an object", where,
           shown(parsed.get_ref<const std::string&>()));
    return true;
  };
  try {
    return json::parse(text.begin(), text.end(), check_keys);
  } catch (const json::parse_error& e) {
    size_t at = e.byte > 0 ? std::min(e.byte - 1, text.size()) : 0;
    fail(Code::bad_file, "[{}] JSON at offset {}: got {}, want well-formed JSON", where, at,
         at < text.size() ? shown(text.substr(at, 24)) : std::string("the end"));
  } catch (const json::exception& e) { fail(Code::bad_file, "[{}] JSON: {}", where, e.what()); }
}

nlohmann::json read_json(const std::string& path, i64 max_bytes) {
  MappedFile file(path);
  if (file.size() > max_bytes)
    fail(Code::bad_file, "[{}] got {} bytes, want at most {} for this kind of file", path, file.size(), max_bytes);
  return parse_json(file.text(), path);
}

}  // namespace plait::io
