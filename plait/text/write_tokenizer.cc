#include "plait/text/write_tokenizer.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace plait::text {

namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kMeta = "\xE2\x96\x81";

std::string merge_text(const Vocabulary& v, Merge m) { return v.tokens[m.left] + " " + v.tokens[m.right]; }

/// Less for later merges; what no merge makes comes after all of them.
std::vector<float> scores_of(const Vocabulary& v) {
  if (v.order == Vocabulary::Order::scores) return v.scores;
  const TextIndex index(v.tokens);
  std::vector<float> scores(v.tokens.size(), -static_cast<float>(v.merges.size()) - 1);
  for (size_t i = v.merges.size(); i-- > 0;)
    if (const auto id = index.find(v.tokens[v.merges[i].left] + v.tokens[v.merges[i].right]))
      scores[*id] = -static_cast<float>(i);
  return scores;
}

/// All pairs that make a token, by score, then by id.
std::vector<Merge> merges_of(const Vocabulary& v) {
  if (v.order == Vocabulary::Order::merges) return v.merges;
  const TextIndex index(v.tokens);
  struct Made {
    float score;
    Merge merge;
  };
  std::vector<Made> made;
  for (size_t id = 0; id < v.tokens.size(); id++) {
    if (v.types[id] != TokenType::normal && v.types[id] != TokenType::user_defined) continue;
    const std::string_view t = v.tokens[id];
    if (t.find(' ') != t.npos) continue;  // a space is U+2581 by the time that merges are looked for
    for (size_t cut = 1; cut < t.size(); cut++) {
      if ((static_cast<unsigned char>(t[cut]) & 0xc0) == 0x80) continue;  // inside a character
      const auto left = index.find(t.substr(0, cut)), right = index.find(t.substr(cut));
      if (left && right) made.push_back({v.scores[id], {*left, *right}});
    }
  }
  std::stable_sort(made.begin(), made.end(), [](const Made& a, const Made& b) {
    return std::tuple(-a.score, a.merge.left, a.merge.right) < std::tuple(-b.score, b.merge.left, b.merge.right);
  });
  std::vector<Merge> merges;
  for (auto& m : made) merges.push_back(m.merge);
  return merges;
}

bool adds_space(const Vocabulary& v) {
  return std::ranges::any_of(v.normalizer, [](auto& s) { return s.kind == NormalStep::Kind::prepend; }) ||
         std::ranges::any_of(v.splits, [](auto& s) {
           return s.kind == SplitStep::Kind::metaspace && s.prepend != SplitStep::Prepend::never;
         });
}

Json pre_tokenizer_of(const Vocabulary& v) {
  Json steps = Json::array();
  auto byte_level = [](bool space, bool regex) {
    return Json{{"type", "ByteLevel"}, {"add_prefix_space", space}, {"trim_offsets", true}, {"use_regex", regex}};
  };
  const bool bytes = v.alphabet == Vocabulary::Alphabet::bytes;
  bool written = false;  // the step that writes bytes in GPT-2's alphabet, which must be the last
  for (size_t i = 0; i < v.splits.size(); i++) {
    const SplitStep& s = v.splits[i];
    switch (s.kind) {
      case SplitStep::Kind::gpt2:
        written = i + 1 == v.splits.size();
        steps.push_back(written ? byte_level(false, true)
                                : Json{{"type", "Split"},
                                       {"pattern", {{"Regex", kGpt2Pattern}}},
                                       {"behavior", "Isolated"},
                                       {"invert", false}});
        break;
      case SplitStep::Kind::digits:
        steps.push_back({{"type", "Digits"}, {"individual_digits", s.individually}});
        break;
      case SplitStep::Kind::pattern:
      case SplitStep::Kind::literal: {
        constexpr const char* kBehaviors[] = {"Isolated", "Removed", "MergedWithPrevious", "MergedWithNext",
                                              "Contiguous"};
        const char* kind = s.kind == SplitStep::Kind::pattern ? "Regex" : "String";
        steps.push_back({{"type", "Split"},
                         {"pattern", {{kind, s.text}}},
                         {"behavior", kBehaviors[static_cast<int>(s.behavior)]},
                         {"invert", s.invert}});
        break;
      }
      case SplitStep::Kind::prefix_space:
        if (i != 0 || v.splits.size() != 2 || v.splits[1].kind != SplitStep::Kind::gpt2)
          fail(Code::usage, "[{}] a space before each word goes with GPT-2's pattern alone", v.source);
        steps.push_back(byte_level(true, true));
        written = true;
        i++;
        break;
      case SplitStep::Kind::metaspace: {
        constexpr const char* kSchemes[] = {"always", "first", "never"};
        steps.push_back({{"type", "Metaspace"},
                         {"replacement", kMeta},
                         {"prepend_scheme", kSchemes[static_cast<int>(s.prepend)]},
                         {"split", s.cut}});
        break;
      }
    }
  }
  if (bytes && !written) steps.push_back(byte_level(false, false));
  if (steps.empty()) return nullptr;
  return steps.size() == 1 ? steps[0] : Json{{"type", "Sequence"}, {"pretokenizers", steps}};
}

Json normalizer_of(const Vocabulary& v) {
  Json steps = Json::array();
  for (const NormalStep& s : v.normalizer) {
    constexpr const char* kForms[] = {"NFC", "NFD", "NFKC", "NFKD"};
    if (s.kind == NormalStep::Kind::prepend)
      steps.push_back({{"type", "Prepend"}, {"prepend", s.to}});
    else if (s.kind == NormalStep::Kind::replace)
      steps.push_back({{"type", "Replace"}, {"pattern", {{"String", s.from}}}, {"content", s.to}});
    else
      steps.push_back({{"type", kForms[static_cast<int>(s.form)]}});
  }
  if (steps.empty()) return nullptr;
  return steps.size() == 1 ? steps[0] : Json{{"type", "Sequence"}, {"normalizers", steps}};
}

Json decoder_of(const Vocabulary& v) {
  if (v.alphabet == Vocabulary::Alphabet::bytes)
    return {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}, {"use_regex", true}};
  Json steps = Json::array();
  if (v.meta_is_space) steps.push_back({{"type", "Replace"}, {"pattern", {{"String", kMeta}}}, {"content", " "}});
  if (v.byte_fallback) steps.push_back({{"type", "ByteFallback"}});
  steps.push_back({{"type", "Fuse"}});
  if (v.strip_first_space) steps.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  return {{"type", "Sequence"}, {"decoders", steps}};
}

Json post_processor_of(const Vocabulary& v) {
  if (v.prefix.empty() && v.suffix.empty()) return nullptr;
  Json special = Json::object(), single = Json::array(), pair = Json::array();
  auto tokens = [&](const std::vector<i64>& ids, int type, Json& out) {
    for (i64 id : ids) {
      const std::string& text = v.tokens[static_cast<size_t>(id)];
      out.push_back({{"SpecialToken", {{"id", text}, {"type_id", type}}}});
      special[text] = {{"id", text}, {"ids", {id}}, {"tokens", {text}}};
    }
  };
  auto text = [&](const char* name, int type, Json& out) {
    tokens(v.prefix, type, out);
    out.push_back({{"Sequence", {{"id", name}, {"type_id", type}}}});
    tokens(v.suffix, type, out);
  };
  text("A", 0, single);
  text("A", 0, pair);
  text("B", 1, pair);
  return {{"type", "TemplateProcessing"}, {"single", single}, {"pair", pair}, {"special_tokens", special}};
}

}  // namespace

void write_tokenizer(const Vocabulary& v, i64 num_tokens, io::GgufWriter& w) {
  const bool bytes = v.alphabet == Vocabulary::Alphabet::bytes;
  w.set_text("tokenizer.ggml.model", bytes ? "gpt2" : "llama");
  if (bytes) {
    std::vector<SplitStep> splits = v.splits;
    const bool space = !splits.empty() && splits[0].kind == SplitStep::Kind::prefix_space;
    if (space) splits.erase(splits.begin());
    const auto name = name_of_splits(splits);
    if (!name)
      fail(Code::usage, "[{}] got a pre-tokenizer that GGUF has no name for, want that of one of: {}", v.source,
           known_split_names());
    w.set_text("tokenizer.ggml.pre", *name);
    if (space) w.set_flag("tokenizer.ggml.add_space_prefix", true);
  } else {
    w.set_flag("tokenizer.ggml.add_space_prefix", adds_space(v));
  }
  if (static_cast<i64>(v.tokens.size()) > num_tokens)
    fail(Code::bad_file, "[{}] got {} tokens, want at most the {} rows of the embedding", v.source, v.tokens.size(),
         num_tokens);
  std::vector<std::string> padding;
  std::vector<std::string_view> tokens(v.tokens.begin(), v.tokens.end());
  std::vector<std::int32_t> types;
  for (auto t : v.types) types.push_back(static_cast<std::int32_t>(t));
  padding.reserve(static_cast<size_t>(num_tokens));
  tokens.resize(static_cast<size_t>(num_tokens));
  types.resize(static_cast<size_t>(num_tokens), static_cast<std::int32_t>(TokenType::unused));
  for (size_t id = 0; id < tokens.size(); id++)
    if (tokens[id].empty()) tokens[id] = padding.emplace_back(fmt::format("[PAD{}]", id));
  w.set_texts("tokenizer.ggml.tokens", tokens);
  w.set_i32s("tokenizer.ggml.token_type", types);
  if (bytes) {
    std::vector<std::string> merges;
    for (Merge m : v.merges) merges.push_back(merge_text(v, m));
    w.set_texts("tokenizer.ggml.merges", std::vector<std::string_view>(merges.begin(), merges.end()));
  } else {
    auto scores = scores_of(v);
    scores.resize(static_cast<size_t>(num_tokens), -static_cast<float>(v.merges.size()) - 1);
    w.set_f32s("tokenizer.ggml.scores", scores);
  }
  auto id = [&](const char* name, std::optional<i64> value) {
    if (value) w.set_u32(fmt::format("tokenizer.ggml.{}_token_id", name), static_cast<std::uint32_t>(*value));
  };
  const auto further = std::ranges::find_if(v.ends, [&](i64 end) { return end != v.eos; });
  std::optional<i64> eos = v.eos;
  if (!eos && !v.ends.empty()) eos = v.ends[0];
  id("bos", v.bos);
  id("eos", eos);
  id("unknown", v.unknown);
  if (further != v.ends.end() && *further != eos) id("eot", *further);
  auto has = [](const std::vector<i64>& ids, std::optional<i64> one) {
    return one && std::ranges::find(ids, *one) != ids.end();
  };
  if (v.bos) w.set_flag("tokenizer.ggml.add_bos_token", has(v.prefix, v.bos));
  if (v.eos) w.set_flag("tokenizer.ggml.add_eos_token", has(v.suffix, v.eos));
  if (!v.chat_template.empty()) w.set_text("tokenizer.chat_template", v.chat_template);
}

TokenizerFiles tokenizer_files(const Vocabulary& v, i64 max_length) {
  Json added = Json::array();
  std::vector<AddedToken> in_order = v.added;
  std::ranges::sort(in_order, {}, &AddedToken::id);
  for (const AddedToken& t : in_order)
    added.push_back({{"id", t.id},
                     {"content", v.tokens[static_cast<size_t>(t.id)]},
                     {"single_word", t.single_word},
                     {"lstrip", t.strip_left},
                     {"rstrip", t.strip_right},
                     {"normalized", t.normalized},
                     {"special", v.types[static_cast<size_t>(t.id)] != TokenType::user_defined}});
  Json merges = Json::array();
  // Keys of an ordered object are looked for one by one; the text is made by hand.
  std::string vocab_text = "{";
  for (size_t id = 0; id < v.tokens.size(); id++) {
    if (v.tokens[id].empty()) continue;
    vocab_text += (vocab_text.size() > 1 ? "," : "") + Json(v.tokens[id]).dump() + ":" + std::to_string(id);
  }
  vocab_text += "}";
  // One text a merge takes a reader a third of the memory of a list of two.
  const auto pairs = merges_of(v);
  auto has_space = [&](Merge m) {
    return merge_text(v, m).find(' ') != v.tokens[m.left].size() || v.tokens[m.right].find(' ') != std::string::npos;
  };
  const bool texts = std::ranges::none_of(pairs, has_space);
  for (Merge m : pairs) merges.push_back(texts ? Json(merge_text(v, m)) : Json{v.tokens[m.left], v.tokens[m.right]});
  constexpr const char* kVocab = "VOCABULARY";
  Json model = {{"type", "BPE"},
                {"dropout", nullptr},
                {"unk_token", v.unknown ? Json(v.tokens[static_cast<size_t>(*v.unknown)]) : Json()},
                {"continuing_subword_prefix", nullptr},
                {"end_of_word_suffix", nullptr},
                {"fuse_unk", v.fuse_unknown},
                {"byte_fallback", v.byte_fallback},
                {"ignore_merges", v.ignore_merges},
                {"vocab", kVocab}};
  std::string model_text = model.dump();
  model_text.pop_back();
  const std::string mark = fmt::format("\"{}\"", kVocab);
  model_text.replace(model_text.rfind(mark), mark.size(), vocab_text);
  model_text += ",\"merges\":" + merges.dump() + "}";
  Json rest = {{"version", "1.0"},
               {"truncation", nullptr},
               {"padding", nullptr},
               {"added_tokens", added},
               {"normalizer", normalizer_of(v)},
               {"pre_tokenizer", pre_tokenizer_of(v)},
               {"post_processor", post_processor_of(v)},
               {"decoder", decoder_of(v)}};
  TokenizerFiles files;
  files.tokenizer = rest.dump();
  files.tokenizer.pop_back();
  files.tokenizer += ",\"model\":" + model_text + "}\n";
  Json config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                 {"clean_up_tokenization_spaces", false},
                 {"model_max_length", max_length}};
  auto name = [&](const char* key, std::optional<i64> id) {
    if (id) config[key] = v.tokens[static_cast<size_t>(*id)];
  };
  name("bos_token", v.bos);
  name("eos_token", v.eos);
  name("unk_token", v.unknown);
  if (!v.chat_template.empty()) config["chat_template"] = v.chat_template;
  files.config = config.dump(2) + "\n";
  return files;
}

}  // namespace plait::text
