#include "plait/cli/prompts.h"

#include <limits>

#include "plait/io/json_text.h"
#include "plait/text/chat_template.h"

namespace plait::cli {

namespace {

using nlohmann::json;

constexpr i64 kMostLines = i64{1} << 20, kMostStops = 64, kMostTokens = i64{1} << 30;

/// One line: its values by key, each checked.
class Line {
 public:
  Line(const json& object, std::string where) : j_(object), where_(std::move(where)) {
    if (!j_.is_object()) fail(Code::bad_file, "[{}] got {}, want an object", where_, shown(j_));
  }
  bool has(const char* key) const { return j_.contains(key) && !j_.at(key).is_null(); }
  const json& at(const char* key) const { return j_.at(key); }
  const std::string& where() const { return where_; }

  static std::string shown(const json& v) {
    std::string s = v.dump(-1, ' ', true, json::error_handler_t::replace);
    return s.size() > 80 ? s.substr(0, 77) + "..." : s;
  }
  [[noreturn]] void wrong(const char* key, const json& got, const std::string& want) const {
    fail(Code::bad_file, "[{}] {}: got {}, want {}", where_, key, shown(got), want);
  }
  const std::string& text(const char* key, const json& v) const {
    if (!v.is_string()) wrong(key, v, "a text");
    return v.get_ref<const std::string&>();
  }
  i64 integer(const char* key, i64 low, i64 high) const {
    const json& v = at(key);
    const bool fits = v.is_number_integer() && !(v.is_number_unsigned() && v.get<u64>() > static_cast<u64>(INT64_MAX));
    if (!fits || v.get<i64>() < low || v.get<i64>() > high)
      wrong(key, v, fmt::format("an integer from {} to {}", low, high));
    return v.get<i64>();
  }
  float number(const char* key) const {
    const json& v = at(key);
    if (!v.is_number() || !(std::abs(v.get<double>()) <= std::numeric_limits<float>::max())) wrong(key, v, "a number");
    return v.get<float>();
  }
  void only(std::initializer_list<std::string_view> known) const {
    for (auto it = j_.begin(); it != j_.end(); ++it)
      if (std::find(known.begin(), known.end(), it.key()) == known.end())
        fail(Code::bad_file, "[{}] got the key {}, want one of: {}", where_, shown(json(it.key())),
             fmt::join(known, ", "));
  }

 private:
  const json& j_;
  std::string where_;
};

std::vector<text::ChatMessage> messages_of(const Line& line) {
  const json& list = line.at("messages");
  if (!list.is_array() || list.empty()) line.wrong("messages", list, "a list of messages");
  std::vector<text::ChatMessage> messages;
  for (const json& m : list) {
    if (!m.is_object() || !m.contains("role") || !m.contains("content"))
      line.wrong("messages", m, "{\"role\": ..., \"content\": ...}");
    const Line one(m, line.where());
    one.only({"role", "content"});
    messages.push_back({one.text("role", one.at("role")), one.text("content", one.at("content"))});
  }
  return messages;
}

/// Ids of a prompt, or BOS where there are none.
std::vector<i64> begun(std::vector<i64> ids, const text::Tokenizer& t) {
  if (!ids.empty()) return ids;
  if (!t.bos() && !t.eos()) fail(Code::usage, "an empty prompt, and the model has no BOS to begin with");
  return {t.bos() ? *t.bos() : *t.eos()};
}

PromptLine read_line(const Line& line, const text::Tokenizer& t, PromptLine out, bool chat) {
  line.only({"id", "prompt", "messages", "max_tokens", "temperature", "top_k", "top_p", "min_p", "seed", "stop"});
  if (line.has("prompt") == line.has("messages"))
    fail(Code::bad_file, "[{}] got {}, want \"prompt\" or \"messages\"", line.where(),
         line.has("prompt") ? "both" : "neither");
  try {
    out.tokens = line.has("prompt") ? prompt_tokens(t, line.text("prompt", line.at("prompt")), chat)
                                    : begun(text::encode_chat(t, messages_of(line)), t);
  } catch (const Error& e) {
    if (std::string_view(e.what()).starts_with("[" + line.where())) throw;
    fail(Code::bad_file, "[{}] {}", line.where(), e.what());
  }
  if (line.has("id")) out.id = line.at("id");
  if (line.has("max_tokens")) out.max_tokens = line.integer("max_tokens", 1, kMostTokens);
  if (line.has("top_k")) out.sampling.top_k = line.integer("top_k", 0, kMostTokens);
  if (line.has("seed")) out.sampling.seed = static_cast<u64>(line.integer("seed", 0, std::numeric_limits<i64>::max()));
  for (auto [key, to] : {std::pair{"temperature", &out.sampling.temperature},
                         {"top_p", &out.sampling.top_p},
                         {"min_p", &out.sampling.min_p}})
    if (line.has(key)) *to = line.number(key);
  try {
    kernels::check_sampling(out.sampling);
  } catch (const Error& e) { fail(Code::bad_file, "[{}] {}", line.where(), e.what()); }
  if (!line.has("stop")) return out;
  const json& stop = line.at("stop");
  out.stop.clear();
  for (const json& s : stop.is_array() ? stop : json::array({stop})) {
    if (line.text("stop", s).empty()) line.wrong("stop", s, "a text that is not empty");
    out.stop.push_back(s.get<std::string>());
  }
  if (static_cast<i64>(out.stop.size()) > kMostStops)
    line.wrong("stop", stop, fmt::format("at most {} texts", kMostStops));
  return out;
}

}  // namespace

std::vector<i64> prompt_tokens(const text::Tokenizer& t, const std::string& prompt, bool chat,
                               const std::string& system) {
  if (!chat) return begun(t.encode(prompt, {.add_special = true, .parse_special = false}), t);
  std::vector<text::ChatMessage> messages;
  if (!system.empty()) messages.push_back({"system", system});
  messages.push_back({"user", prompt});
  return begun(text::encode_chat(t, messages), t);
}

std::vector<PromptLine> read_prompts(const std::string& lines, const std::string& file, const text::Tokenizer& t,
                                     const PromptLine& otherwise, bool chat) {
  std::vector<PromptLine> all;
  i64 number = 0;
  for (size_t at = 0; at < lines.size();) {
    const size_t end = std::min(lines.find('\n', at), lines.size());
    const std::string_view line = std::string_view(lines).substr(at, end - at);
    at = end + 1;
    number++;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const std::string where = fmt::format("{}:{}", file, number);
    if (static_cast<i64>(all.size()) == kMostLines)
      fail(Code::bad_file, "[{}] got more than {} prompts", where, kMostLines);
    const json j = io::parse_json(line, where);
    all.push_back(read_line(Line(j, where), t, otherwise, chat));
  }
  if (all.empty()) fail(Code::bad_file, "[{}] got no line, want one JSON object a prompt", file);
  return all;
}

}  // namespace plait::cli
