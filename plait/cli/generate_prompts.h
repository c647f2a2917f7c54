// plait generate --prompts: several texts together, results as JSON lines.
#pragma once
#include <atomic>

#include "plait/cli/common.h"
#include "plait/cli/prompts.h"

namespace plait::cli {

struct PromptsOptions {
  std::string file;  // "-": standard input
  i64 sequences = 8;
  bool chat = false, ignore_eos = false, quiet = false;
  PromptLine otherwise;  // what a line does not say
};

/// A JSON object a prompt on stdout, in the order of the file. Unless the context is given, it is the longest that a
/// line needs.
int generate_prompts(ModelOptions model, const PromptsOptions& o, const std::atomic<bool>& interrupted);

}  // namespace plait::cli
