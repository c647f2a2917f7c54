#include "plait/text/from_gguf.h"

namespace plait::text {

namespace {

constexpr i64 kNoId = (i64{1} << 32) - 1;

std::optional<i64> special_id(const io::GgufFile& file, std::string_view key, i64 num_tokens) {
  const auto id = file.integer(key);
  if (!id || *id == kNoId || *id == -1) return std::nullopt;
  if (*id < 0 || *id >= num_tokens)
    fail(Code::bad_file, "[{}] {}: got {}, want 0 to {}", file.path(), key, *id, num_tokens - 1);
  return id;
}

/// A list takes more memory than the file: its length is looked at first.
void check_count(const io::GgufFile& file, std::string_view key, i64 least, i64 most) {
  const auto* list = file.find(key);
  if (list != nullptr && (list->count < least || list->count > most))
    fail(Code::bad_file, "[{}] {}: got {} items, want {} to {}", file.path(), key, list->count, least, most);
}

void read_tokens(const io::GgufFile& file, Vocabulary& v) {
  check_count(file, "tokenizer.ggml.tokens", 0, kMaxTokens);
  const auto texts = file.texts("tokenizer.ggml.tokens");
  if (!texts) fail(Code::bad_file, "[{}] got no key \"tokenizer.ggml.tokens\"", file.path());
  v.tokens.assign(texts->begin(), texts->end());
  const auto num_tokens = static_cast<i64>(v.tokens.size());
  check_count(file, "tokenizer.ggml.token_type", num_tokens, num_tokens);
  const auto types = file.integers("tokenizer.ggml.token_type");
  if (!types) {
    v.types.assign(v.tokens.size(), TokenType::normal);
    return;
  }
  v.types.reserve(types->size());
  for (size_t id = 0; id < types->size(); id++) {
    const i64 t = (*types)[id];
    if (t < 1 || t > 6)
      fail(Code::bad_file, "[{}] tokenizer.ggml.token_type: got {} for id {}, want 1 to 6", file.path(), t, id);
    v.types.push_back(static_cast<TokenType>(t));
    const bool added = t == static_cast<i64>(TokenType::control) || t == static_cast<i64>(TokenType::user_defined) ||
                       t == static_cast<i64>(TokenType::unknown);
    if (added) v.added.push_back({.id = static_cast<i64>(id)});
  }
}

void read_byte_level(const io::GgufFile& file, Vocabulary& v) {
  v.alphabet = Vocabulary::Alphabet::bytes;
  v.order = Vocabulary::Order::merges;
  const std::string pre(file.text("tokenizer.ggml.pre").value_or("default"));
  auto splits = splits_of_name(pre);
  if (!splits)
    fail(Code::bad_file, "[{}] tokenizer.ggml.pre: got the pre-tokenizer \"{}\", want one of: {}", file.path(),
         valid_utf8(pre), known_split_names());
  v.splits = std::move(*splits);
  v.ignore_merges = pre == "llama-bpe" || pre == "llama3" || pre == "llama-v3" || pre == "falcon3" || pre == "pixtral";
  if (file.flag("tokenizer.ggml.add_space_prefix").value_or(false))
    v.splits.insert(v.splits.begin(), {.kind = SplitStep::Kind::prefix_space});
  check_count(file, "tokenizer.ggml.merges", 0, kMaxMerges);
  const auto merges = file.texts("tokenizer.ggml.merges");
  if (!merges) fail(Code::bad_file, "[{}] got no key \"tokenizer.ggml.merges\"", file.path());
  v.merges = resolve_merges(*merges, TextIndex(v.tokens), file.path());
}

void read_scored(const io::GgufFile& file, Vocabulary& v) {
  v.alphabet = Vocabulary::Alphabet::code_points;
  v.order = Vocabulary::Order::scores;
  const auto num_tokens = static_cast<i64>(v.tokens.size());
  check_count(file, "tokenizer.ggml.scores", num_tokens, num_tokens);
  auto scores = file.numbers("tokenizer.ggml.scores");
  if (!scores) fail(Code::bad_file, "[{}] got no key \"tokenizer.ggml.scores\"", file.path());
  v.scores = std::move(*scores);
  v.byte_fallback = true;
  v.fuse_unknown = true;
  v.meta_is_space = true;
  const bool space_prefix = file.flag("tokenizer.ggml.add_space_prefix").value_or(true);
  v.strip_first_space = space_prefix;
  constexpr const char* kMeta = "\xE2\x96\x81";
  if (space_prefix) v.normalizer.push_back({.kind = NormalStep::Kind::prepend, .to = kMeta});
  v.normalizer.push_back({.kind = NormalStep::Kind::replace, .from = " ", .to = kMeta});
}

}  // namespace

Vocabulary vocabulary_from_gguf(const io::GgufFile& file) {
  Vocabulary v;
  v.source = file.path();
  const auto model = file.text("tokenizer.ggml.model");
  if (!model) fail(Code::bad_file, "[{}] got no key \"tokenizer.ggml.model\"", file.path());
  const bool scored = *model == "llama";
  if (!scored && *model != "gpt2")
    fail(Code::bad_file, "[{}] tokenizer.ggml.model: got \"{}\", want gpt2 or llama", file.path(), valid_utf8(*model));
  read_tokens(file, v);
  if (scored)
    read_scored(file, v);
  else
    read_byte_level(file, v);

  const i64 n = static_cast<i64>(v.tokens.size());
  v.bos = special_id(file, "tokenizer.ggml.bos_token_id", n);
  v.eos = special_id(file, "tokenizer.ggml.eos_token_id", n);
  const auto unknown = special_id(file, "tokenizer.ggml.unknown_token_id", n);
  if (scored) v.unknown = unknown;  // byte-level models leave out what no token covers
  for (const char* key : {"tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"})
    if (const auto id = special_id(file, key, n)) v.ends.push_back(*id);
  const bool add_bos = file.flag("tokenizer.ggml.add_bos_token").value_or(scored || v.ignore_merges);
  if (add_bos && v.bos) v.prefix = {*v.bos};
  if (file.flag("tokenizer.ggml.add_eos_token").value_or(false) && v.eos) v.suffix = {*v.eos};
  v.chat_template = std::string(file.text("tokenizer.chat_template").value_or(""));
  file.files()[0].check_whole();
  return v;
}

}  // namespace plait::text
