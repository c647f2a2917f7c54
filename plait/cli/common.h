// What commands share: the options that say which model is laid how, and opening it.
#pragma once
#include <memory>
#include <optional>
#include <string>

#include "plait/cli/options.h"
#include "plait/io/model_files.h"
#include "plait/serve/engine.h"
#include "plait/text/tokenizer.h"

namespace plait::cli {

/// Options of every command that lays a model, with the names that users of vLLM and llama.cpp know.
struct ModelOptions {
  std::string model;
  i64 tp = 1;
  std::string tensor_split, plan_file;
  std::string max_rank_memory;
  i64 threads = 0;
  bool sequence_parallel = false;
  double deadline_s = 30;
  std::string ranks = "thread", fault;
  serve::ServingOptions serving;
};

/// The model and how it is laid; how its plan deviates from the degree; how ranks run.
void add_layout_options(OptionList& options, ModelOptions& o);
void add_plan_options(OptionList& options, ModelOptions& o);
void add_run_options(OptionList& options, ModelOptions& o);

/// The plan that the options ask for. errors  usage: options that contradict each other; bad_file: the plan file
Plan plan_of(const ModelOptions& o);
serve::ServingPlan serving_plan(const io::ModelFiles& files, const ModelOptions& o);
/// A rank that does not stop after another's failure ends the program, with the message.
serve::EngineOptions engine_options(const ModelOptions& o);

/// "60MiB", "1.5GB", "800000"
i64 parse_bytes(const std::string& text, std::string_view what);

std::unique_ptr<text::Tokenizer> open_tokenizer(const io::ModelFiles& files);

/// "-": standard input.
std::string read_text_file(const std::string& path);
std::string human_bytes(i64 bytes);

/// Commands add themselves to the program; the chosen one is run after parsing and returns the exit code.
using Command = std::function<int()>;
struct Program {
  Parser& parser;
  Command chosen;
  bool processes = false;  // it runs ranks that are processes
};
void add_generate(Program& p);
void add_score(Program& p);
void add_explain(Program& p);
void add_verify(Program& p);
void add_bench(Program& p);
void add_trace(Program& p);
void add_convert(Program& p);
void add_doctor(Program& p);
void add_tokenize(Program& p);

}  // namespace plait::cli
