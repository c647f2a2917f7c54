// Chat templates: the text that a model wants for a conversation, from the Jinja template in its files.
//
// The subset: output, if/elif/else, for (with else, `if`, unpacking, loop.*, break, continue), set (also of names in
// a namespace and as a block), comments, white space control; all operators of Jinja, slices, filters, tests and
// methods as listed in template_library.cc; namespace, range, raise_exception. Rendering is as Hugging Face's
// transformers do it: trim_blocks and lstrip_blocks on, tojson without HTML escapes. What is not known (macros,
// imports, other filters) is an error that names it and its line. A template comes with a model file and is not
// trusted: steps, memory, depth and output are bounded. Source: the template documentation of Jinja 3.1; jinja2 itself
// is the oracle of the tests.
#pragma once
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "plait/text/tokenizer.h"

namespace plait::text {

struct ChatMessage {
  std::string role;  // system, user, assistant ...
  std::string content;
};

struct ChatLimits {
  i64 steps = 2'000'000;             // expressions and statements evaluated
  i64 memory_bytes = i64{80} << 20;  // all values made, dead ones included
  i64 output_bytes = i64{16} << 20;
};

class ChatTemplate {
 public:
  ///   errors  bad_file: the construct that is wrong or not supported, with its line
  explicit ChatTemplate(std::string_view source);
  ~ChatTemplate();
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;

  /// `variables` is an object; its members are the names that the template sees.
  ///   errors  usage: the template refuses the conversation (raise_exception); bad_file: anything else that fails
  std::string render(const nlohmann::ordered_json& variables, const ChatLimits& limits = {}) const;

 private:
  struct Tree;
  std::unique_ptr<const Tree> tree_;
};

struct ChatOptions {
  bool add_generation_prompt = true;  // end with the beginning of the assistant's turn
  std::string bos_token, eos_token;   // as the template writes them; empty: undefined
  ChatLimits limits;
};

std::string render_chat(std::string_view source, const std::vector<ChatMessage>& messages,
                        const ChatOptions& options = {});

/// With the template and the special tokens of a tokenizer.
///   errors  bad_file: the model has no chat template
std::string render_chat(const Tokenizer& tokenizer, const std::vector<ChatMessage>& messages,
                        bool add_generation_prompt = true);

/// Its ids. BOS stands once where the model wants one, whether the template or the tokenizer puts it.
std::vector<i64> encode_chat(const Tokenizer& tokenizer, const std::vector<ChatMessage>& messages);

}  // namespace plait::text
