// Pre-tokenizers: text is cut into words, which are then encoded each by itself.
//
// A pre-tokenizer is a list of steps; each cuts the pieces that the one before left (the components of Hugging Face's
// tokenizers, from which the names and the behaviours at a match are taken). The GPT-2 pattern is scanned by hand, any
// other pattern by PCRE2. `splits_of_name` knows the names that GGUF files use.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plait/text/regex.h"

namespace plait::text {

/// What becomes of a match: a piece of its own, dropped, joined to a neighbour, or joined to adjacent matches.
enum class Behavior { isolated, removed, merged_with_previous, merged_with_next, contiguous };

struct SplitStep {
  enum class Kind {
    gpt2,          // the pattern of GPT-2
    digits,        // numbers (\p{N}), each by itself if `individually`, else in runs
    pattern,       // a regular expression
    literal,       // a fixed text
    prefix_space,  // a space before every piece that does not begin with one
    metaspace      // spaces become U+2581, one is set before a piece by `prepend`, and pieces begin at it if `cut`
  };
  enum class Prepend { always, first, never };

  Kind kind = Kind::gpt2;
  std::string text;  // pattern or literal
  Behavior behavior = Behavior::isolated;
  bool invert = false;
  bool individually = false;
  Prepend prepend = Prepend::always;
  bool cut = true;
  bool operator==(const SplitStep&) const = default;
};

/// A text and the pieces of it, in order.
struct Pieces {
  struct Span {
    i64 begin, end;
  };
  std::string text;
  std::vector<Span> spans;
  bool at_start = true;  // the text begins where the input began (for Prepend::first)
};

class Splitter {
 public:
  /// errors  bad_file: a pattern that does not compile
  explicit Splitter(std::vector<SplitStep> steps);
  void split(Pieces& pieces) const;
  bool empty() const { return steps_.empty(); }

 private:
  std::vector<SplitStep> steps_;
  std::vector<std::optional<Regex>> patterns_;  // one a step
};

extern const char* const kGpt2Pattern;

/// The steps behind a name such as `gpt-2`, `smollm`, `llama-bpe`, `qwen2`; nullopt for a name that is not known.
std::optional<std::vector<SplitStep>> splits_of_name(std::string_view name);
/// The first name of these steps; nullopt where they have none.
std::optional<std::string> name_of_splits(const std::vector<SplitStep>& steps);
/// The known names, for messages.
std::string known_split_names();

}  // namespace plait::text
