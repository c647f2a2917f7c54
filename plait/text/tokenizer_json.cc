#include "plait/text/tokenizer_json.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "plait/io/json_text.h"
#include "plait/io/mapped_file.h"

namespace plait::text {

namespace {

using nlohmann::json;

constexpr i64 kMaxTokenizerBytes = i64{48} << 20;
constexpr size_t kMostItems = 65536;
constexpr size_t kMostSteps = 64;  // of a normalizer, of a pre-tokenizer
constexpr std::string_view kMeta = "\xE2\x96\x81";

// A value with the way to it, so that every error says where.
class Node {
 public:
  Node(const json& j, std::string where) : j_(&j), where_(std::move(where)) {}

  const json& raw() const { return *j_; }
  [[noreturn]] void wrong(std::string_view want) const {
    std::string got = j_->dump(-1, ' ', false, json::error_handler_t::replace);
    if (got.size() > 60) got = got.substr(0, 60) + "...";
    fail(Code::bad_file, "[{}] got {}, want {}", where_, valid_utf8(got), want);
  }
  bool has(const char* key) const { return j_->is_object() && j_->contains(key) && !(*j_)[key].is_null(); }
  Node at(const char* key) const {
    if (!j_->is_object()) wrong("an object");
    const auto it = j_->find(key);
    if (it == j_->end()) fail(Code::bad_file, "[{}] got no key \"{}\"", where_, key);
    return Node(*it, where_ + "." + key);
  }
  std::vector<Node> items() const {
    if (!j_->is_array() || j_->size() > kMostItems) wrong(fmt::format("a list of at most {} items", kMostItems));
    std::vector<Node> out;
    out.reserve(j_->size());
    for (size_t i = 0; i < j_->size(); i++) out.emplace_back((*j_)[i], fmt::format("{}[{}]", where_, i));
    return out;
  }
  const std::string& text() const {
    if (!j_->is_string()) wrong("a text");
    return j_->get_ref<const std::string&>();
  }
  bool flag() const {
    if (!j_->is_boolean()) wrong("true or false");
    return j_->get<bool>();
  }
  bool flag(const char* key, bool otherwise) const { return has(key) ? at(key).flag() : otherwise; }
  i64 id() const {
    if (!j_->is_number_integer()) wrong("an id");
    const bool fits = !j_->is_number_unsigned() || j_->get<u64>() < u64{kMaxTokens};
    if (!fits || j_->get<i64>() < 0 || j_->get<i64>() >= kMaxTokens)
      wrong(fmt::format("an id from 0 to {}", kMaxTokens - 1));
    return j_->get<i64>();
  }
  std::string type() const { return at("type").text(); }
  const std::string& where() const { return where_; }

 private:
  const json* j_;
  std::string where_;
};

[[noreturn]] void unknown(const Node& n, std::string_view kind) {
  fail(Code::bad_file, "[{}] got the {} \"{}\", which is not supported", n.where(), kind, n.type());
}

std::string text_pattern(const Node& n) {
  const Node pattern = n.at("pattern");
  if (!pattern.has("String")) pattern.wrong("{\"String\": ...}");
  return pattern.at("String").text();
}

void read_normalizer(const Node& n, std::vector<NormalStep>& out) {
  const std::string type = n.type();
  if (type == "Sequence") {
    for (const Node& part : n.at("normalizers").items()) read_normalizer(part, out);
  } else if (type == "Prepend") {
    out.push_back({.kind = NormalStep::Kind::prepend, .to = n.at("prepend").text()});
  } else if (type == "Replace") {
    out.push_back({.kind = NormalStep::Kind::replace, .from = text_pattern(n), .to = n.at("content").text()});
  } else if (type == "NFC" || type == "NFD" || type == "NFKC" || type == "NFKD") {
    const Form form = type == "NFC" ? Form::nfc : type == "NFD" ? Form::nfd : type == "NFKC" ? Form::nfkc : Form::nfkd;
    out.push_back({.kind = NormalStep::Kind::form, .form = form});
  } else {
    unknown(n, "normalizer");
  }
}

Behavior behavior_of(const Node& n) {
  const std::string& name = n.text();
  if (name == "Isolated") return Behavior::isolated;
  if (name == "Removed") return Behavior::removed;
  if (name == "MergedWithPrevious") return Behavior::merged_with_previous;
  if (name == "MergedWithNext") return Behavior::merged_with_next;
  if (name == "Contiguous") return Behavior::contiguous;
  n.wrong("Isolated, Removed, MergedWithPrevious, MergedWithNext or Contiguous");
}

void expect_meta(const Node& n) {
  if (n.at("replacement").text() != kMeta) n.at("replacement").wrong("U+2581");
}

void read_pre_tokenizer(const Node& n, Vocabulary& v) {
  const std::string type = n.type();
  if (type == "Sequence") {
    for (const Node& part : n.at("pretokenizers").items()) read_pre_tokenizer(part, v);
  } else if (type == "ByteLevel") {
    v.alphabet = Vocabulary::Alphabet::bytes;
    if (n.flag("add_prefix_space", true)) v.splits.push_back({.kind = SplitStep::Kind::prefix_space});
    if (n.flag("use_regex", true)) v.splits.push_back({.kind = SplitStep::Kind::gpt2});
  } else if (type == "Digits") {
    v.splits.push_back({.kind = SplitStep::Kind::digits, .individually = n.flag("individual_digits", false)});
  } else if (type == "Split") {
    SplitStep step{.behavior = behavior_of(n.at("behavior")), .invert = n.flag("invert", false)};
    const bool pattern = n.at("pattern").has("Regex");
    step.kind = pattern ? SplitStep::Kind::pattern : SplitStep::Kind::literal;
    step.text = pattern ? n.at("pattern").at("Regex").text() : text_pattern(n);
    v.splits.push_back(std::move(step));
  } else if (type == "Metaspace") {
    expect_meta(n);
    SplitStep step{.kind = SplitStep::Kind::metaspace, .cut = n.flag("split", true)};
    if (n.has("prepend_scheme")) {
      const std::string& scheme = n.at("prepend_scheme").text();
      if (scheme != "always" && scheme != "first" && scheme != "never")
        n.at("prepend_scheme").wrong("always, first or never");
      step.prepend = scheme == "always"  ? SplitStep::Prepend::always
                     : scheme == "first" ? SplitStep::Prepend::first
                                         : SplitStep::Prepend::never;
    } else if (!n.flag("add_prefix_space", true)) {
      step.prepend = SplitStep::Prepend::never;
    }
    v.splits.push_back(step);
  } else {
    unknown(n, "pre_tokenizer");
  }
}

void read_decoder(const Node& n, Vocabulary& v) {
  const std::string type = n.type();
  if (type == "Sequence") {
    for (const Node& part : n.at("decoders").items()) read_decoder(part, v);
  } else if (type == "ByteLevel" || type == "Fuse") {
    const bool bytes = v.alphabet == Vocabulary::Alphabet::bytes;
    if (bytes != (type == "ByteLevel")) n.wrong(bytes ? "ByteLevel" : "a decoder for tokens that are not byte-level");
  } else if (type == "ByteFallback") {
    if (!v.byte_fallback) n.wrong("a model with byte_fallback for the decoder ByteFallback");
  } else if (type == "Replace") {
    if (text_pattern(n) != kMeta || n.at("content").text() != " ") n.wrong("U+2581 replaced by a space");
    v.meta_is_space = true;
  } else if (type == "Strip") {
    const auto count = [&](const char* key) { return n.at(key).id(); };
    if (n.at("content").text() != " " || count("start") > 1 || count("stop") != 0) n.wrong("one space at the start");
    v.strip_first_space = count("start") == 1;
  } else if (type == "Metaspace") {
    expect_meta(n);
    v.meta_is_space = true;
    v.strip_first_space =
        n.has("prepend_scheme") ? n.at("prepend_scheme").text() != "never" : n.flag("add_prefix_space", true);
  } else {
    unknown(n, "decoder");
  }
}

void read_post_processor(const Node& n, Vocabulary& v) {
  const std::string type = n.type();
  if (type == "Sequence") {
    for (const Node& part : n.at("processors").items()) read_post_processor(part, v);
  } else if (type == "TemplateProcessing") {
    bool text_seen = false;
    for (const Node& part : n.at("single").items()) {
      if (part.has("Sequence")) {
        if (text_seen) part.wrong("one text in the template");
        text_seen = true;
      } else {
        const std::string& name = part.at("SpecialToken").at("id").text();
        for (const Node& id : n.at("special_tokens").at(name.c_str()).at("ids").items())
          (text_seen ? v.suffix : v.prefix).push_back(id.id());
      }
    }
  } else if (type != "ByteLevel") {
    unknown(n, "post_processor");
  }
}

void place_token(Vocabulary& v, i64 id, const std::string& text, const Node& where, i64 limit) {
  if (id >= limit)
    fail(Code::bad_file, "[{}] got id {} for \"{}\", want less than {}", where.where(), id, valid_utf8(text), limit);
  if (id >= static_cast<i64>(v.tokens.size())) v.tokens.resize(id + 1);
  std::string& slot = v.tokens[id];
  if (!slot.empty() && slot != text)
    fail(Code::bad_file, "[{}] got id {} for both \"{}\" and \"{}\"", where.where(), id, valid_utf8(slot),
         valid_utf8(text));
  slot = text;
}

void read_model(const Node& model, const Node& root, Vocabulary& v) {
  if (model.has("type") && model.type() != "BPE") unknown(model, "model");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (model.has(key) && !model.at(key).text().empty()) model.at(key).wrong("nothing; this is not supported");
  if (model.has("dropout") && model.at("dropout").raw() != json(0.0)) model.at("dropout").wrong("no dropout");
  v.fuse_unknown = model.flag("fuse_unk", false);
  v.byte_fallback = model.flag("byte_fallback", false);
  v.ignore_merges = model.flag("ignore_merges", false);

  const json& vocab = model.at("vocab").raw();
  if (!vocab.is_object()) model.at("vocab").wrong("an object");
  const i64 num_added = root.has("added_tokens") ? static_cast<i64>(root.at("added_tokens").raw().size()) : 0;
  // Ids may have gaps, but a huge id must not make a huge table.
  const i64 limit = std::min(kMaxTokens, 2 * (static_cast<i64>(vocab.size()) + num_added) + 65536);
  v.tokens.reserve(vocab.size() + num_added);
  for (auto it = vocab.begin(); it != vocab.end(); ++it) {
    if (it.key().empty()) fail(Code::bad_file, "[{}.vocab] got an empty token", model.where());
    place_token(v, Node(it.value(), model.where() + ".vocab").id(), it.key(), model, limit);
  }

  std::vector<bool> special;
  if (root.has("added_tokens"))
    for (const Node& t : root.at("added_tokens").items()) {
      const i64 id = t.at("id").id();
      const std::string& text = t.at("content").text();
      if (text.empty()) continue;
      place_token(v, id, text, t, limit);
      v.added.push_back({.id = id,
                         .normalized = t.flag("normalized", false),
                         .single_word = t.flag("single_word", false),
                         .strip_left = t.flag("lstrip", false),
                         .strip_right = t.flag("rstrip", false)});
      special.push_back(t.flag("special", false));
    }

  v.types.assign(v.tokens.size(), TokenType::normal);
  for (size_t id = 0; id < v.tokens.size(); id++) {
    if (v.tokens[id].empty()) v.types[id] = TokenType::unused;
    if (v.byte_fallback && byte_of_byte_token(v.tokens[id]) >= 0) v.types[id] = TokenType::byte;
  }
  for (size_t i = 0; i < v.added.size(); i++)
    v.types[v.added[i].id] = special[i] ? TokenType::control : TokenType::user_defined;

  const TextIndex index(v.tokens);
  if (model.has("unk_token")) {
    const auto id = index.find(model.at("unk_token").text());
    if (!id) model.at("unk_token").wrong("a token of the vocabulary");
    v.unknown = *id;
    if (v.types[*id] == TokenType::control) v.types[*id] = TokenType::unknown;
  }
  const json& merges = model.at("merges").raw();
  if (!merges.is_array()) model.at("merges").wrong("a list");
  if (merges.empty() || merges[0].is_string()) {
    std::vector<std::string_view> texts;
    texts.reserve(merges.size());
    for (const json& m : merges) {
      if (!m.is_string()) Node(m, model.where() + ".merges").wrong("a text");
      texts.push_back(m.get_ref<const std::string&>());
    }
    v.merges = resolve_merges(texts, index, v.source);
  } else {
    v.merges.reserve(merges.size());
    for (const json& m : merges) {
      if (!m.is_array() || m.size() != 2 || !m[0].is_string() || !m[1].is_string())
        Node(m, model.where() + ".merges").wrong("two texts");
      v.merges.push_back(resolve_merge(m[0].get_ref<const std::string&>(), m[1].get_ref<const std::string&>(),
                                       static_cast<i64>(v.merges.size()), index, v.source));
    }
  }
}

// A special token in tokenizer_config.json is a text or an object with `content`.
std::optional<i64> named_token(const Node& config, const char* key, const TextIndex& index) {
  if (!config.has(key)) return std::nullopt;
  const Node value = config.at(key);
  const auto id = index.find(value.raw().is_object() ? value.at("content").text() : value.text());
  if (!id) value.wrong("a token of the vocabulary");
  return *id;
}

void read_config(const Node& config, Vocabulary& v) {
  const TextIndex index(v.tokens);
  v.bos = named_token(config, "bos_token", index);
  v.eos = named_token(config, "eos_token", index);
  if (!config.has("chat_template")) return;
  const Node chat = config.at("chat_template");
  if (!chat.raw().is_array()) {
    v.chat_template = chat.text();
    return;
  }
  for (const Node& one : chat.items())  // named templates: the default one
    if (one.at("name").text() == "default") v.chat_template = one.at("template").text();
}

/// eos_token_id of config.json or generation_config.json: an id or a list of them; -1 and 2^32 - 1 mean none.
void read_ends(const Node& config, Vocabulary& v) {
  if (!config.has("eos_token_id")) return;
  const Node eos = config.at("eos_token_id");
  for (const Node& id : eos.raw().is_array() ? eos.items() : std::vector<Node>{eos})
    if (id.raw() != -1 && id.raw() != std::numeric_limits<std::uint32_t>::max()) v.ends.push_back(id.id());
}

/// A file of the folder; nullopt when there is none.
std::optional<io::MappedFile> open_file(const std::filesystem::path& path, i64 max_bytes) {
  if (std::error_code e; !std::filesystem::exists(path, e)) return std::nullopt;
  io::MappedFile file(path.string());
  if (file.size() > max_bytes)
    fail(Code::bad_file, "[{}] got {} bytes, want at most {} for this kind of file", path.string(), file.size(),
         max_bytes);
  return file;
}

}  // namespace

Vocabulary vocabulary_from_tokenizer_json(std::string_view tokenizer, std::string_view config,
                                          const std::string& source) {
  // Lists of merges make trees of several times their text: those of Gemma, two texts each, of eleven times.
  const json j = io::parse_json(tokenizer, source, io::kMaxTreeBytes + 8 * static_cast<i64>(tokenizer.size()));
  const Node root(j, source);
  if (!j.is_object()) root.wrong("an object");
  Vocabulary v;
  v.source = source;
  v.alphabet = Vocabulary::Alphabet::code_points;
  read_model(root.at("model"), root, v);
  if (root.has("normalizer")) read_normalizer(root.at("normalizer"), v.normalizer);
  if (root.has("pre_tokenizer")) read_pre_tokenizer(root.at("pre_tokenizer"), v);
  if (v.normalizer.size() > kMostSteps || v.splits.size() > kMostSteps)
    fail(Code::bad_file, "[{}] got {} steps of the normalizer and {} of the pre_tokenizer, want at most {}", source,
         v.normalizer.size(), v.splits.size(), kMostSteps);
  if (!root.has("decoder")) fail(Code::bad_file, "[{}] got no decoder", source);
  const Node decoder = root.at("decoder");
  if (v.alphabet == Vocabulary::Alphabet::bytes && decoder.type() != "ByteLevel") decoder.wrong("the type ByteLevel");
  read_decoder(decoder, v);
  if (root.has("post_processor")) read_post_processor(root.at("post_processor"), v);
  if (!config.empty()) {
    const json c = io::parse_json(config, source + ": tokenizer_config.json");
    read_config(Node(c, source + ": tokenizer_config.json"), v);
  }
  return v;
}

Vocabulary vocabulary_from_folder(const std::string& folder) {
  const std::filesystem::path dir(folder);
  const auto path = (dir / "tokenizer.json").string();
  const auto tokenizer = open_file(path, kMaxTokenizerBytes);
  if (!tokenizer) fail(Code::bad_file, "[{}] got no such file", path);
  const auto config = open_file(dir / "tokenizer_config.json", io::kMaxConfigBytes);
  Vocabulary v = vocabulary_from_tokenizer_json(tokenizer->text(), config ? config->text() : "", path);
  tokenizer->check_whole();
  if (config) config->check_whole();
  if (const auto chat = open_file(dir / "chat_template.jinja", io::kMaxConfigBytes)) {
    v.chat_template = chat->text();
    chat->check_whole();
  }
  for (const char* name : {"config.json", "generation_config.json"})
    if (const auto file = (dir / name).string(); std::filesystem::exists(file)) {
      const json j = io::read_json(file);
      read_ends(Node(j, file), v);
    }
  return v;
}

}  // namespace plait::text
