// plait tokenize: text to token ids and back.
#include <cstdio>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "plait/cli/common.h"
#include "plait/cli/table.h"
#include "plait/text/utf8.h"

namespace plait::cli {

namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::string model, file;
  std::optional<std::string> text;
  std::vector<std::string> decode;
  bool special = false, bare = false, ids_only = false, json = false;
};

std::string input_text(const Options& o) {
  if (o.text && !o.file.empty()) fail(Code::usage, "TEXT and --file: want one of them");
  if (o.text) return *o.text;
  if (!o.file.empty()) return read_text_file(o.file);
  return {std::istreambuf_iterator<char>(std::cin), {}};
}

/// "1 2,3" -> ids; from standard input when none are given.
std::vector<i64> ids_of(const std::vector<std::string>& words) {
  std::string all;
  for (auto& w : words) all += w + " ";
  if (words.size() == 1 && words[0] == "-") all.assign(std::istreambuf_iterator<char>(std::cin), {});
  std::vector<i64> ids;
  const std::string_view separators = ", \t\r\n[]";
  for (size_t i = all.find_first_not_of(separators); i != std::string::npos; i = all.find_first_not_of(separators, i)) {
    size_t e = std::min(all.find_first_of(separators, i), all.size());
    const std::string word = all.substr(i, e - i);
    size_t used = 0;
    i64 id = -1;
    try {
      id = std::stoll(word, &used);
    } catch (const std::exception&) {}
    if (used != word.size() || id < 0) fail(Code::usage, "--decode: got '{}', want token ids", word);
    ids.push_back(id);
    i = e;
  }
  return ids;
}

/// A token in one line: line ends, tabs and quotes escaped, bytes that are no text as \xNN.
std::string quoted(std::string_view bytes) {
  std::string s = "'";
  for (i64 i = 0; i < static_cast<i64>(bytes.size());) {
    auto c = text::code_point_at(bytes, i);
    const auto at = static_cast<size_t>(i);
    if (c.valid && c.value >= 32 && c.value != 127 && c.value != '\'' && c.value != '\\')
      s += bytes.substr(at, static_cast<size_t>(c.bytes));
    else if (c.value == '\n')
      s += "\\n";
    else if (c.value == '\t')
      s += "\\t";
    else if (c.value == '\'' || c.value == '\\')
      s += std::string("\\") + static_cast<char>(c.value);
    else
      s += fmt::format("\\x{:02x}", static_cast<unsigned char>(bytes[at]));
    i += c.bytes;
  }
  return s + "'";
}

int decode(const Options& o, const text::Tokenizer& t) {
  if (o.text || !o.file.empty()) fail(Code::usage, "--decode takes ids: leave out TEXT and --file");
  const std::vector<i64> ids = ids_of(o.decode);
  const std::string s = t.decode(ids, !o.special);
  if (o.json) {
    Json j = {{"schema_version", 1}, {"ids", ids}, {"text", s}};
    std::printf("%s\n", j.dump(2, ' ', false, Json::error_handler_t::replace).c_str());
    return 0;
  }
  std::fwrite(s.data(), 1, s.size(), stdout);
  std::printf("\n");
  return 0;
}

int tokenize(const Options& o) {
  io::ModelFiles files(o.model);
  auto tokenizer = open_tokenizer(files);
  const text::Tokenizer& t = *tokenizer;
  if (!o.decode.empty()) return decode(o, t);
  const std::vector<i64> ids = t.encode(input_text(o), {.add_special = !o.bare, .parse_special = o.special});
  if (o.json) {
    Json j = {{"schema_version", 1}, {"count", ids.size()}, {"ids", ids}, {"tokens", Json::array()}};
    for (i64 id : ids)
      j["tokens"].push_back(
          {{"id", id}, {"token", t.text_of(id)}, {"text", t.bytes_of(id)}, {"special", t.is_special(id)}});
    std::printf("%s\n", j.dump(2, ' ', false, Json::error_handler_t::replace).c_str());
    return 0;
  }
  if (o.ids_only) {
    std::string line;
    for (i64 id : ids) line += (line.empty() ? "" : " ") + std::to_string(id);
    std::printf("%s\n", line.c_str());
    return 0;
  }
  Table table("rl", {"id", "token"});
  for (i64 id : ids) table.row({std::to_string(id), t.is_special(id) ? t.text_of(id) : quoted(t.bytes_of(id))});
  std::printf("%s%zu tokens\n", ids.empty() ? "" : table.text().c_str(), ids.size());
  return 0;
}

}  // namespace

void add_tokenize(Program& p) {
  auto o = std::make_shared<Options>();
  OptionList options = p.parser.command("tokenize", "Text to token ids and back");
  options.required("MODEL", o->model, "Hugging Face folder, GGUF file, or a name in the cache");
  options.add("TEXT", o->text, "The text; without it and --file: standard input");
  options.group("Input");
  options.add("-f,--file", o->file, "File with the text");
  options.flag("--special", o->special,
               "Encoding: special tokens that stand in the text are recognised; decoding: they are written");
  options.flag("--no-bos", o->bare, "Without the tokens that the model puts around a text, such as BOS");
  options.words("--decode", o->decode, "Token ids (spaces or commas between them; -: from standard input) to text");
  options.group("Output");
  options.flag("--ids", o->ids_only, "Only the ids, in one line");
  options.flag("--json", o->json, "One JSON object");
  options.footer(
      "Examples:\n"
      "  plait tokenize SmolLM2-135M-Instruct.Q4_1 \"Hello world\"\n"
      "  plait tokenize stories260K.gguf --decode 1 403 407 261 378");
  options.chosen([&p, o] { p.chosen = [o] { return tokenize(*o); }; });
}

}  // namespace plait::cli
