#include "plait/text/tokenizer.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace plait::text {

// What one call of encode carries along.
struct EncodeState {
  std::vector<i64> ids;
  std::vector<Symbol> symbols;
  JoinScratch scratch;
  bool after_unknown = false;  // the last id is the unknown token, of the same word
};

namespace {

constexpr std::string_view kMeta = "\xE2\x96\x81";
constexpr i64 kMaxText = i64{1} << 30;
// Tokens longer than this take no part in joins by score (their splits are tried one by one).
constexpr size_t kMaxScoredToken = 1024;

bool is_special_type(TokenType t) { return t == TokenType::control || t == TokenType::unknown; }

// Names that models give to the token that ends a turn or a text, where the file does not say it.
constexpr std::string_view kEndNames[] = {"<|endoftext|>", "<|im_end|>",      "<|end|>",       "<|eot_id|>",
                                          "<|eom_id|>",    "<|end_of_text|>", "<end_of_turn>", "<EOT>",
                                          "<|return|>",    "<|end_of_turn|>"};

}  // namespace

Tokenizer Tokenizer::from(Vocabulary vocabulary) { return Tokenizer(std::move(vocabulary)); }

Tokenizer::Tokenizer(Vocabulary vocabulary) : v_(std::move(vocabulary)) {
  check();
  index_ = TextIndex(v_.tokens);
  splitter_.emplace(v_.splits);
  make_pieces();
  make_symbols();
  make_joins();
  make_added();
  find_boundaries();
  find_ends();
}

void Tokenizer::check() const {
  const i64 n = vocab_size();
  if (n == 0) fail(Code::bad_file, "[{}] got no tokens", v_.source);
  if (n > kMaxTokens) fail(Code::bad_file, "[{}] got {} tokens, want at most {}", v_.source, n, kMaxTokens);
  if (static_cast<i64>(v_.types.size()) != n)
    fail(Code::bad_file, "[{}] got {} token types, want {}", v_.source, v_.types.size(), n);
  for (TokenType t : v_.types)
    if (t < TokenType::normal || t > TokenType::byte)
      fail(Code::bad_file, "[{}] got token type {}, want 1 to 6", v_.source, static_cast<int>(t));
  if (v_.order == Vocabulary::Order::scores) {
    if (static_cast<i64>(v_.scores.size()) != n)
      fail(Code::bad_file, "[{}] got {} scores, want {}", v_.source, v_.scores.size(), n);
    for (float s : v_.scores)
      if (std::isnan(s)) fail(Code::bad_file, "[{}] got a score that is not a number", v_.source);
  }
  auto check_named = [&](i64 id, const char* what) {
    if (id < 0 || id >= n) fail(Code::bad_file, "[{}] {}: got id {}, want 0 to {}", v_.source, what, id, n - 1);
  };
  for (const Merge& m : v_.merges) check_named(std::max(m.left, m.right), "merge");
  for (const AddedToken& a : v_.added) check_named(a.id, "added token");
  for (i64 id : v_.prefix) check_named(id, "prefix");
  for (i64 id : v_.suffix) check_named(id, "suffix");
  for (i64 id : v_.ends) check_named(id, "end of generation");
  if (v_.bos) check_named(*v_.bos, "bos");
  if (v_.eos) check_named(*v_.eos, "eos");
  if (v_.unknown) check_named(*v_.unknown, "unknown token");
  for (const NormalStep& s : v_.normalizer)
    if (s.kind == NormalStep::Kind::replace && s.from.empty())
      fail(Code::bad_file, "[{}] normalizer Replace: got an empty text to replace", v_.source);
}

void Tokenizer::make_pieces() {
  size_t bytes = 0;
  for (const std::string& t : v_.tokens) bytes += t.size();
  if (bytes > static_cast<size_t>(kMaxText)) fail(Code::bad_file, "[{}] got tokens of {} bytes", v_.source, bytes);
  pieces_.reserve(bytes);
  piece_begin_.reserve(v_.tokens.size() + 1);
  piece_begin_.push_back(0);
  std::vector<bool> added(v_.tokens.size());
  for (const AddedToken& a : v_.added) added[a.id] = true;
  for (size_t id = 0; id < v_.tokens.size(); id++) {
    const std::string& t = v_.tokens[id];
    const size_t begin = pieces_.size();
    const int byte = v_.types[id] == TokenType::byte ? byte_of_byte_token(t) : -1;
    if (byte >= 0) {
      pieces_ += static_cast<char>(byte);
    } else if (added[id] && (v_.alphabet == Vocabulary::Alphabet::bytes || is_special_type(v_.types[id]))) {
      pieces_ += t;
    } else if (v_.alphabet == Vocabulary::Alphabet::bytes) {
      for (i64 at = 0; at < static_cast<i64>(t.size());) {
        const CodePoint p = code_point_at(t, at);
        const int b = byte_of_character(p.value);
        if (b < 0) {  // not in the alphabet: the token stands for itself
          pieces_.resize(begin);
          pieces_ += t;
          break;
        }
        pieces_ += static_cast<char>(b);
        at += p.bytes;
      }
    } else if (v_.meta_is_space) {
      for (size_t i = 0; i < t.size();) {
        const bool meta = std::string_view(t).substr(i).starts_with(kMeta);
        pieces_ += meta ? ' ' : t[i];
        i += meta ? kMeta.size() : 1;
      }
    } else {
      pieces_ += t;
    }
    piece_begin_.push_back(static_cast<std::uint32_t>(pieces_.size()));
  }
}

// The symbols a word is made of before joins. Under Order::scores a character that only occurs inside tokens gets a
// symbol past the vocabulary, since two such neighbours may still join.
void Tokenizer::make_symbols() {
  byte_symbol_.fill(kNoSymbol);
  byte_token_.fill(kNoSymbol);
  const bool scores = v_.order == Vocabulary::Order::scores;
  for (std::uint32_t id = 0; id < v_.tokens.size(); id++) {
    const std::string& t = v_.tokens[id];
    if (v_.types[id] == TokenType::byte || v_.byte_fallback)
      if (const int b = byte_of_byte_token(t); b >= 0) byte_token_[b] = id;
    if (t.empty() || t.size() > 4 || (scores && (is_special_type(v_.types[id]) || v_.types[id] == TokenType::byte)))
      continue;
    const CodePoint p = code_point_at(t, 0);
    if (!p.valid || p.bytes != static_cast<std::int32_t>(t.size())) continue;
    if (v_.alphabet == Vocabulary::Alphabet::bytes) {
      if (const int b = byte_of_character(p.value); b >= 0) byte_symbol_[b] = id;
    } else if (p.value < 0x80) {
      byte_symbol_[p.value] = id;
    } else {
      character_symbol_[p.value] = id;
    }
  }
}

void Tokenizer::make_joins() {
  std::vector<JoinTable::Join> joins;
  if (v_.order == Vocabulary::Order::merges) {
    joins.reserve(v_.merges.size());
    std::string join;
    for (std::uint32_t rank = 0; rank < v_.merges.size(); rank++) {
      const Merge m = v_.merges[rank];
      join.assign(v_.tokens[m.left]).append(v_.tokens[m.right]);
      const auto id = index_.find(join);
      if (!id) fail(Code::bad_file, "[{}] merge {}: got \"{}\", which is no token", v_.source, rank, valid_utf8(join));
      joins.push_back({m.left, m.right, rank, *id});
    }
    joins_ = JoinTable(joins);
    return;
  }
  // Equal scores get equal ranks: then the leftmost place decides.
  std::vector<std::uint32_t> order(v_.tokens.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return v_.scores[a] > v_.scores[b]; });
  std::vector<std::uint32_t> rank(v_.tokens.size());
  for (size_t i = 1; i < order.size(); i++)
    rank[order[i]] = rank[order[i - 1]] + (v_.scores[order[i]] != v_.scores[order[i - 1]] ? 1 : 0);

  std::uint32_t next = static_cast<std::uint32_t>(v_.tokens.size());
  auto joinable = [&](std::uint32_t id) { return !is_special_type(v_.types[id]) && v_.types[id] != TokenType::byte; };
  auto symbol_of = [&](std::string_view s) -> std::uint32_t {
    if (const auto id = index_.find(s); id && joinable(*id)) return *id;
    const CodePoint p = code_point_at(s, 0);
    const bool whole = p.valid && p.bytes == static_cast<std::int32_t>(s.size());
    if (!whole || v_.alphabet == Vocabulary::Alphabet::bytes) return kNoSymbol;
    std::uint32_t& symbol =
        p.value < 0x80 ? byte_symbol_[p.value] : character_symbol_.try_emplace(p.value, kNoSymbol).first->second;
    if (symbol == kNoSymbol) symbol = next++;
    return symbol;
  };
  joins.reserve(6 * v_.tokens.size());
  for (std::uint32_t id = 0; id < v_.tokens.size(); id++) {
    const std::string_view t = v_.tokens[id];
    if (!joinable(id) || t.size() > kMaxScoredToken || !is_utf8(t)) continue;
    for (i64 at = 0; at < static_cast<i64>(t.size());) {
      at += code_point_at(t, at).bytes;
      if (at == static_cast<i64>(t.size())) break;
      const std::uint32_t left = symbol_of(t.substr(0, at));
      if (left == kNoSymbol) continue;
      const std::uint32_t right = symbol_of(t.substr(at));
      if (right != kNoSymbol) joins.push_back({left, right, rank[id], id});
    }
  }
  joins_ = JoinTable(joins);
}

void Tokenizer::make_added() {
  std::vector<AddedTokenFinder::Entry> before, after;
  for (const AddedToken& a : v_.added) {
    AddedTokenFinder::Entry e{v_.tokens[a.id], a, is_special_type(v_.types[a.id])};
    if (a.normalized && !v_.normalizer.empty()) {
      e.text = normalized(e.text);
      after.push_back(std::move(e));
    } else {
      before.push_back(std::move(e));
    }
  }
  before_ = AddedTokenFinder(std::move(before));
  after_ = AddedTokenFinder(std::move(after));
}

// Where no token goes on over the border between another character and U+2581, no join does either: a text that no
// pre-tokenizer cuts can be cut there into words, which changes no id and keeps the heap of the joins small.
void Tokenizer::find_boundaries() {
  if (v_.alphabet != Vocabulary::Alphabet::code_points || v_.ignore_merges || !index_.find(kMeta)) return;
  for (const std::string& t : v_.tokens)
    for (size_t at = t.find(kMeta, 1); at != std::string::npos; at = t.find(kMeta, at + 1))
      if (at < kMeta.size() || t.compare(at - kMeta.size(), kMeta.size(), kMeta) != 0) return;
  meta_begins_word_ = true;
}

void Tokenizer::find_ends() {
  ends_ = v_.ends;
  if (v_.eos) ends_.push_back(*v_.eos);
  for (const AddedToken& a : v_.added)
    if (is_special_type(v_.types[a.id]) && std::ranges::count(kEndNames, std::string_view(v_.tokens[a.id])))
      ends_.push_back(a.id);
  std::ranges::sort(ends_);
}

std::string Tokenizer::normalized(std::string_view text) const {
  std::string s(text);
  // A file's steps could make any amount out of little; real ones make three times as much at most.
  const size_t most = 64 * text.size() + 4096;
  auto check = [&](const std::string& made) {
    if (made.size() > most)
      fail(Code::bad_file, "[{}] normalizer: got {} bytes out of {}, want at most {}", v_.source, made.size(),
           text.size(), most);
  };
  for (const NormalStep& step : v_.normalizer) {
    if (step.kind == NormalStep::Kind::form) {
      s = normalize(s, step.form);
    } else if (step.kind == NormalStep::Kind::prepend) {
      if (!s.empty()) s.insert(0, step.to);
      check(s);
    } else {
      std::string out;
      out.reserve(s.size());
      size_t done = 0;
      for (size_t hit; (hit = s.find(step.from, done)) != std::string::npos; done = hit + step.from.size()) {
        out.append(s, done, hit - done).append(step.to);
        check(out);
      }
      s = out.append(s, done);
    }
  }
  return s;
}

// Bytes that no token covers.
void Tokenizer::add_uncovered(std::string_view bytes, EncodeState& state) const {
  if (v_.byte_fallback &&
      std::ranges::all_of(bytes, [&](char c) { return byte_token_[static_cast<unsigned char>(c)] != kNoSymbol; })) {
    for (char c : bytes) state.ids.push_back(byte_token_[static_cast<unsigned char>(c)]);
    state.after_unknown = false;
  } else if (v_.unknown) {
    if (!(state.after_unknown && v_.fuse_unknown)) state.ids.push_back(*v_.unknown);
    state.after_unknown = true;
  }
}

// The token that a word is, written in the alphabet of the model.
std::optional<i64> Tokenizer::whole_word(std::string_view word) const {
  std::string written;
  if (v_.alphabet == Vocabulary::Alphabet::bytes) {
    for (char c : word) append_utf8(written, character_of_byte(static_cast<unsigned char>(c)));
    word = written;
  }
  const auto id = index_.find(word);
  if (!id || is_special_type(v_.types[*id])) return std::nullopt;
  return *id;
}

void Tokenizer::encode_piece(std::string_view text, i64 begin, i64 end, EncodeState& state) const {
  if (meta_begins_word_) {
    const std::string_view piece = text.substr(0, end);
    for (i64 at = begin;;) {
      while (piece.substr(at).starts_with(kMeta)) at += static_cast<i64>(kMeta.size());
      const size_t next = piece.find(kMeta, at);
      if (next == std::string_view::npos) break;
      encode_word(text, begin, static_cast<i64>(next), state);
      begin = at = static_cast<i64>(next);
    }
  }
  encode_word(text, begin, end, state);
}

void Tokenizer::encode_word(std::string_view text, i64 begin, i64 end, EncodeState& state) const {
  if (v_.ignore_merges)
    if (const auto id = whole_word(text.substr(begin, end - begin))) {
      state.ids.push_back(*id);
      return;
    }
  // What is left out is so before the joins: its neighbours may join, as in Hugging Face's tokenizers.
  const bool leaves_out = !v_.unknown && !v_.byte_fallback;
  auto& symbols = state.symbols;
  symbols.clear();
  for (i64 at = begin; at < end;) {
    std::uint32_t id = kNoSymbol;
    i64 bytes = 1;
    const unsigned char c = static_cast<unsigned char>(text[at]);
    if (v_.alphabet == Vocabulary::Alphabet::bytes || c < 0x80) {
      id = byte_symbol_[c];
    } else if (const CodePoint p = code_point_at(text.substr(0, end), at); p.valid) {
      bytes = p.bytes;
      if (const auto found = character_symbol_.find(p.value); found != character_symbol_.end()) id = found->second;
    }
    if (id == kNoSymbol && leaves_out) {
      at += bytes;
      continue;
    }
    const std::int32_t i = static_cast<std::int32_t>(symbols.size());
    symbols.push_back({id, static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(at + bytes), i - 1, i + 1});
    at += bytes;
  }
  if (symbols.empty()) return;
  symbols.back().next = -1;
  join_symbols(joins_, symbols, state.scratch);
  state.after_unknown = false;
  for (std::int32_t i = 0; i >= 0; i = symbols[i].next) {
    const Symbol& s = symbols[i];
    if (s.id < v_.tokens.size()) {
      state.ids.push_back(s.id);
      state.after_unknown = false;
    } else {
      add_uncovered(text.substr(s.begin, s.end - s.begin), state);
    }
  }
}

void Tokenizer::encode_segment(std::string_view text, bool at_start, bool parse_special, EncodeState& state) const {
  std::string whole = normalized(text);
  auto encode_pieces = [&](std::string_view part, bool first) {
    Pieces pieces{.text = std::string(part), .spans = {{0, static_cast<i64>(part.size())}}, .at_start = first};
    splitter_->split(pieces);
    for (const auto& s : pieces.spans) encode_piece(pieces.text, s.begin, s.end, state);
  };
  i64 done = 0;
  for (const auto& m : after_.find(whole, parse_special)) {
    if (done < m.begin) encode_pieces(std::string_view(whole).substr(done, m.begin - done), at_start && done == 0);
    state.ids.push_back(m.id);
    done = m.end;
  }
  if (done < static_cast<i64>(whole.size())) encode_pieces(std::string_view(whole).substr(done), at_start && done == 0);
}

std::vector<i64> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  if (static_cast<i64>(text.size()) > kMaxText)
    fail(Code::usage, "[encode] got a text of {} bytes, want at most {}", text.size(), kMaxText);
  EncodeState state;
  state.ids.reserve(text.size() / 3 + 8);
  if (options.add_special) state.ids = v_.prefix;
  i64 done = 0;
  for (const auto& m : before_.find(text, options.parse_special)) {
    if (done < m.begin) encode_segment(text.substr(done, m.begin - done), done == 0, options.parse_special, state);
    state.ids.push_back(m.id);
    done = m.end;
  }
  if (done < static_cast<i64>(text.size())) encode_segment(text.substr(done), done == 0, options.parse_special, state);
  if (options.add_special) state.ids.insert(state.ids.end(), v_.suffix.begin(), v_.suffix.end());
  return std::move(state.ids);
}

void Tokenizer::check_id(i64 id) const {
  if (id < 0 || id >= vocab_size()) fail(Code::usage, "[token] got id {}, want 0 to {}", id, vocab_size() - 1);
}

std::string Tokenizer::decode(std::span<const i64> ids, bool skip_special) const {
  std::string out;
  for (i64 id : ids)
    if (std::string_view bytes = bytes_of(id); !(skip_special && is_special(id))) out += bytes;
  if (v_.strip_first_space && out.starts_with(' ')) out.erase(0, 1);
  return out;
}

std::string_view Tokenizer::bytes_of(i64 id) const {
  check_id(id);
  return std::string_view(pieces_).substr(piece_begin_[id], piece_begin_[id + 1] - piece_begin_[id]);
}

const std::string& Tokenizer::text_of(i64 id) const {
  check_id(id);
  return v_.tokens[id];
}

std::optional<i64> Tokenizer::id_of(std::string_view token) const {
  const auto id = index_.find(token);
  return id ? std::optional<i64>(*id) : std::nullopt;
}

bool Tokenizer::is_special(i64 id) const {
  check_id(id);
  return is_special_type(v_.types[id]);
}

bool Tokenizer::is_end_of_generation(i64 id) const { return std::ranges::binary_search(ends_, id); }

}  // namespace plait::text
