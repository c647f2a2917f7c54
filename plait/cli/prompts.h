// Prompts of a file of JSON lines, for `plait generate --prompts`.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "plait/kernels/sample.h"
#include "plait/text/tokenizer.h"

namespace plait::cli {

/// What a line says, over what the command's options say.
struct PromptLine {
  nlohmann::ordered_json id;  // as it is in the line; null: none
  std::vector<i64> tokens;    // of the prompt; BOS alone where it is empty
  i64 max_tokens = 128;
  kernels::SamplingOptions sampling;
  std::vector<std::string> stop;  // texts that end the text, and are no part of it
};

/// The ids of a prompt: as it is, or as a user's message in the model's chat template, after a system message if there
/// is one.
std::vector<i64> prompt_tokens(const text::Tokenizer& t, const std::string& prompt, bool chat,
                               const std::string& system = {});

/// One JSON object a line: "prompt" (a text) or "messages" (a list of {"role", "content"}), and optionally "id",
/// "max_tokens", "temperature", "top_k", "top_p", "min_p", "seed", "stop" (a text or a list). Empty lines are left out.
///   otherwise  what a line does not say
///   chat       prompts are users' messages
///   errors  bad_file: file and line, what is wrong with which key; an unknown key
std::vector<PromptLine> read_prompts(const std::string& lines, const std::string& file, const text::Tokenizer& t,
                                     const PromptLine& otherwise, bool chat);

}  // namespace plait::cli
