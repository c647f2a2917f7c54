#include "plait/text/split.h"

#include <algorithm>

#include "plait/text/utf8.h"

namespace plait::text {

const char* const kGpt2Pattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

namespace {

using Span = Pieces::Span;

struct Part {
  Span span;
  bool match;
};

enum class Class { letter, number, space, other };

Class class_of(std::int32_t c) {
  if (is_letter(c)) return Class::letter;
  if (is_number(c)) return Class::number;
  return is_white_space(c) ? Class::space : Class::other;
}

i64 contraction_bytes(std::string_view s) {
  for (std::string_view c : {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"})
    if (s.starts_with(c)) return static_cast<i64>(c.size());
  return 0;
}

// End of the word that begins at `at`, by kGpt2Pattern.
i64 gpt2_word_end(std::string_view s, i64 at) {
  const i64 size = static_cast<i64>(s.size());
  if (s[at] == '\'')
    if (const i64 n = contraction_bytes(s.substr(at))) return at + n;
  i64 i = at + (s[at] == ' ' ? 1 : 0);
  Class k = i < size ? class_of(code_point_at(s, i).value) : Class::space;
  if (k != Class::space) {
    while (i < size) {
      const CodePoint p = code_point_at(s, i);
      if (class_of(p.value) != k) break;
      i += p.bytes;
    }
    return i;
  }
  i64 last = at;  // begin of the last space of the run
  for (i = at; i < size;) {
    const CodePoint p = code_point_at(s, i);
    if (!is_white_space(p.value)) break;
    last = i;
    i += p.bytes;
  }
  return i == size || last == at ? i : last;
}

void add_parts(std::vector<Part>& out, i64& done, i64 begin, i64 end) {
  if (done < begin) out.push_back({{done, begin}, false});
  out.push_back({{begin, end}, true});
  done = end;
}

void apply(Behavior behavior, const std::vector<Part>& parts, std::vector<Span>& out) {
  const size_t first = out.size();
  bool previous = false;
  switch (behavior) {
    case Behavior::isolated:
      for (const Part& p : parts) out.push_back(p.span);
      return;
    case Behavior::removed:
      for (const Part& p : parts)
        if (!p.match) out.push_back(p.span);
      return;
    case Behavior::contiguous:
      for (const Part& p : parts) {
        if (p.match == previous && out.size() > first)
          out.back().end = p.span.end;
        else
          out.push_back(p.span);
        previous = p.match;
      }
      return;
    case Behavior::merged_with_previous:
      for (const Part& p : parts) {
        if (p.match && !previous && out.size() > first)
          out.back().end = p.span.end;
        else
          out.push_back(p.span);
        previous = p.match;
      }
      return;
    case Behavior::merged_with_next:
      for (size_t i = parts.size(); i-- > 0;) {
        const Part& p = parts[i];
        if (p.match && !previous && out.size() > first)
          out.back().begin = p.span.begin;
        else
          out.push_back(p.span);
        previous = p.match;
      }
      std::reverse(out.begin() + static_cast<i64>(first), out.end());
      return;
  }
}

void find_parts(const SplitStep& step, const std::optional<Regex>& regex, std::string_view text, Span s,
                std::vector<Part>& parts) {
  i64 done = s.begin;
  switch (step.kind) {
    case SplitStep::Kind::digits:
      for (i64 at = s.begin; at < s.end;) {
        const CodePoint p = code_point_at(text.substr(0, s.end), at);
        if (is_number(p.value)) add_parts(parts, done, at, at + p.bytes);
        at += p.bytes;
      }
      break;
    case SplitStep::Kind::pattern:
      regex->each(text, s.begin, s.end, [&](i64 b, i64 e) { add_parts(parts, done, b, e); });
      break;
    case SplitStep::Kind::literal:
      for (i64 at = s.begin;;) {
        const size_t hit = text.substr(0, s.end).find(step.text, at);
        if (hit == std::string_view::npos) break;
        at = static_cast<i64>(hit + step.text.size());
        add_parts(parts, done, static_cast<i64>(hit), at);
      }
      break;
    default:
      PLAIT_CHECK(false, "step {} finds no parts", static_cast<int>(step.kind));
  }
  if (done < s.end) parts.push_back({{done, s.end}, false});
  if (step.invert)
    for (Part& p : parts) p.match = !p.match;
}

constexpr std::string_view kMeta = "\xE2\x96\x81";

// Steps that change the text: every piece is written anew by `write(piece, index, out)`.
template <class F>
void rewrite(Pieces& pieces, F write) {
  std::string text;
  text.reserve(pieces.text.size() + pieces.spans.size());
  for (size_t i = 0; i < pieces.spans.size(); i++) {
    Span& s = pieces.spans[i];
    const i64 begin = static_cast<i64>(text.size());
    write(std::string_view(pieces.text).substr(s.begin, s.end - s.begin), i, text);
    s = {begin, static_cast<i64>(text.size())};
  }
  pieces.text = std::move(text);
}

void prefix_space(Pieces& pieces) {
  rewrite(pieces, [](std::string_view piece, size_t, std::string& out) {
    if (!piece.starts_with(' ')) out += ' ';
    out += piece;
  });
}

void metaspace(const SplitStep& step, Pieces& pieces) {
  rewrite(pieces, [&](std::string_view piece, size_t index, std::string& out) {
    const bool here = step.prepend == SplitStep::Prepend::always ||
                      (step.prepend == SplitStep::Prepend::first && index == 0 && pieces.at_start);
    if (here && !piece.starts_with(' ') && !piece.starts_with(kMeta)) out += kMeta;
    for (char c : piece) {
      if (c == ' ')
        out += kMeta;
      else
        out += c;
    }
  });
  if (!step.cut) return;
  SplitStep cut{.kind = SplitStep::Kind::literal, .text = std::string(kMeta), .behavior = Behavior::merged_with_next};
  std::vector<Span> spans;
  std::vector<Part> parts;
  for (const Span& s : pieces.spans) {
    parts.clear();
    find_parts(cut, std::nullopt, pieces.text, s, parts);
    apply(cut.behavior, parts, spans);
  }
  pieces.spans = std::move(spans);
}

SplitStep pattern_step(const char* text) { return {.kind = SplitStep::Kind::pattern, .text = text}; }

struct Named {
  const char* names;  // separated by spaces
  std::vector<SplitStep> (*steps)();
};

// Which names share a pattern: llama.cpp's table of pre-tokenizers (src/llama-vocab.cpp).
const Named kNamed[] = {
    {"gpt-2 gpt2 phi-2 jina-es jina-de jina-v2-es jina-v2-de mpt olmo jais roberta-bpe",
     [] { return std::vector<SplitStep>{{}}; }},
    {"smollm starcoder refact command-r codeshell exaone minerva-7b",
     [] {
       return std::vector<SplitStep>{{.kind = SplitStep::Kind::digits, .individually = true}, {}};
     }},
    {"llama-bpe llama3 llama-v3 falcon3 pixtral dbrx smaug-bpe",
     [] {
       return std::vector<SplitStep>{pattern_step(
           R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)")};
     }},
    {"qwen2 stablelm2 deepseek-r1-qwen megrez",
     [] {
       return std::vector<SplitStep>{pattern_step(
           R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)")};
     }},
    {"deepseek-coder",
     [] {
       return std::vector<SplitStep>{pattern_step(R"([\r\n])"), pattern_step(R"(\s?\p{L}+)"),
                                     pattern_step(R"(\s?\p{P}+)"), pattern_step(R"([一-龥ࠀ-一가-퟿]+)"),
                                     pattern_step(R"(\p{N})")};
     }},
    {"default",
     [] {
       return std::vector<SplitStep>{
           pattern_step(R"([\p{P}\$\+<=>\^~\|]+)"), {}, pattern_step(R"(\p{N}+)"), pattern_step("[0-9][0-9][0-9]")};
     }},
};

}  // namespace

Splitter::Splitter(std::vector<SplitStep> steps) : steps_(std::move(steps)) {
  for (SplitStep& s : steps_) {
    if (s.kind == SplitStep::Kind::pattern && s.text == kGpt2Pattern && s.behavior == Behavior::isolated && !s.invert)
      s = SplitStep{};
    if (s.kind == SplitStep::Kind::literal && s.text.empty()) fail(Code::bad_file, "[pre_tokenizer] got an empty text");
    if (s.kind == SplitStep::Kind::digits) s.behavior = s.individually ? Behavior::isolated : Behavior::contiguous;
    patterns_.push_back(s.kind == SplitStep::Kind::pattern ? std::optional<Regex>(s.text) : std::nullopt);
  }
}

void Splitter::split(Pieces& pieces) const {
  std::vector<Span> spans;
  std::vector<Part> parts;
  for (size_t i = 0; i < steps_.size(); i++) {
    const SplitStep& step = steps_[i];
    if (step.kind == SplitStep::Kind::prefix_space) {
      prefix_space(pieces);
      continue;
    }
    if (step.kind == SplitStep::Kind::metaspace) {
      metaspace(step, pieces);
      continue;
    }
    spans.clear();
    for (const Span& s : pieces.spans) {
      if (step.kind == SplitStep::Kind::gpt2) {
        const std::string_view piece = std::string_view(pieces.text).substr(0, s.end);
        for (i64 at = s.begin; at < s.end;) {
          const i64 end = gpt2_word_end(piece, at);
          spans.push_back({at, end});
          at = end;
        }
        continue;
      }
      parts.clear();
      find_parts(step, patterns_[i], pieces.text, s, parts);
      apply(step.behavior, parts, spans);
    }
    std::swap(pieces.spans, spans);
  }
  std::erase_if(pieces.spans, [](const Span& s) { return s.begin == s.end; });
}

std::optional<std::vector<SplitStep>> splits_of_name(std::string_view name) {
  for (const Named& n : kNamed) {
    std::string_view names = n.names;
    while (!names.empty()) {
      const size_t space = std::min(names.find(' '), names.size());
      if (names.substr(0, space) == name) return n.steps();
      names.remove_prefix(std::min(space + 1, names.size()));
    }
  }
  return std::nullopt;
}

std::optional<std::string> name_of_splits(const std::vector<SplitStep>& steps) {
  // One step may be written in several ways.
  auto plain = [](std::vector<SplitStep> list) {
    for (SplitStep& s : list) {
      if (s.kind == SplitStep::Kind::pattern && s.behavior == Behavior::isolated && !s.invert) {
        if (s.text == kGpt2Pattern) s = {};
        if (s.text == R"(\p{N})") s = {.kind = SplitStep::Kind::digits, .individually = true};
      }
      // A pattern that covers every text may as well name what is left over: removed, inverted.
      if (s.kind == SplitStep::Kind::pattern && s.behavior == Behavior::removed && s.invert) {
        s.behavior = Behavior::isolated;
        s.invert = false;
      }
    }
    return list;
  };
  for (const Named& n : kNamed)
    if (plain(n.steps()) == plain(steps)) {
      const std::string_view names = n.names;
      return std::string(names.substr(0, names.find(' ')));
    }
  return std::nullopt;
}

std::string known_split_names() {
  std::string all;
  for (const Named& n : kNamed) all += (all.empty() ? "" : " ") + std::string(n.names);
  return all;
}

}  // namespace plait::text
