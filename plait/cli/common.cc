#include "plait/cli/common.h"

#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <sstream>

#include "plait/text/from_gguf.h"
#include "plait/text/tokenizer_json.h"

namespace plait::cli {

void add_layout_options(OptionList& options, ModelOptions& o) {
  options.required("MODEL", o.model, "Hugging Face folder, config.json, GGUF file, or a name in the cache");
  options.group("Layout");
  options.add("--tensor-parallel-size,--tp", o.tp,
              "Ranks that share every layer; any number up to the query heads (also -tp)");
  add_plan_options(options, o);
}

void add_plan_options(OptionList& options, ModelOptions& o) {
  options.group("Layout");
  options.add("--tensor-split", o.tensor_split, "Unequal ranks: their weights, e.g. 3,1");
  options.add("--plan", o.plan_file, "Plan file (TOML) instead of the options above");
  options.flag("--sequence-parallel", o.sequence_parallel, "Norms and residuals cut over tokens as well");
  options.flag("--strict", o.serving.strict, "A reshard that the plan did not ask for is an error");
  options.group("Numbers");
  options.add("--dtype", o.serving.dtype, "auto (as the file), f32 or bf16");
  options.add("--reduce", o.serving.reduce, "Sums across ranks: exact (same bits on any number of ranks), f32 or bf16");
  options.group("Memory");
  options.add("-c,--max-model-len", o.serving.context, "Positions of the KV cache; 0: min(model's, 4096)");
  options.add("--max-rank-memory", o.max_rank_memory, "Refuse (exit code 3) what needs more on a rank, e.g. 60MiB");
  options.group("Debugging");
  options.flag("--reference", o.serving.reference, "Only scalar reference kernels");
  options.flag("!--no-fuse", o.serving.fuse, "Every call by itself, without fused kernels: the same bits, slower");
}

void add_run_options(OptionList& options, ModelOptions& o) {
  options.group("Running");
  options.add("-t,--threads", o.threads, "Threads of a rank; 0: allowed cores / ranks");
  options.add("--deadline", o.deadline_s, "Seconds that a rank waits for another before it gives up");
  options.choice("--ranks", o.ranks, {"thread", "process"},
                 "Ranks are threads of one process (thread), or processes (process)");
  options.group("Debugging");
  options.add("--fault", o.fault,
              "Put a fault into a rank: rank:where:throw|hang|exit|kill|slow, where e.g. load, decode:3, "
              "step:2, wo, all_reduce");
}

namespace {
std::vector<i64> parse_split(const std::string& s) {
  std::vector<i64> w;
  std::stringstream in(s);
  for (std::string part; std::getline(in, part, ',');) {
    size_t used = 0;
    i64 v = -1;
    try {
      v = std::stoll(part, &used);
    } catch (const std::exception&) {}
    if (used != part.size() || v < 0 || v > (1 << 20))
      fail(Code::usage, "--tensor-split {}: got '{}', want whole numbers such as 3,1", s, part);
    w.push_back(v);
  }
  return w;
}
}  // namespace

Plan plan_of(const ModelOptions& o) {
  if (!o.plan_file.empty()) {
    if (o.tp != 1 || !o.tensor_split.empty() || o.sequence_parallel)
      fail(Code::usage, "--plan already says the layout: leave out --tp, --tensor-split and --sequence-parallel");
    const io::MappedFile file(o.plan_file);
    Plan plan = Plan::parse(file.text(), o.plan_file);
    file.check_whole();
    return plan;
  }
  if (o.tp < 1) fail(Code::usage, "--tensor-parallel-size {}: want 1 or more", o.tp);
  std::vector<i64> weights = parse_split(o.tensor_split);
  i64 tp = o.tp;
  if (!weights.empty()) {
    if (tp == 1) tp = static_cast<i64>(weights.size());
    if (tp != static_cast<i64>(weights.size()))
      fail(Code::usage, "--tensor-split has {} weights for {} ranks", weights.size(), tp);
  }
  Plan p = tensor_parallel(tp, std::move(weights));
  if (o.sequence_parallel) p.axes[0].dims += "T";
  p.verify();
  return p;
}

serve::ServingPlan serving_plan(const io::ModelFiles& files, const ModelOptions& o) {
  serve::ServingOptions s = o.serving;
  s.plan = plan_of(o);
  if (!o.max_rank_memory.empty()) s.max_rank_memory = parse_bytes(o.max_rank_memory, "--max-rank-memory");
  return serve::make_serving_plan(files, s);
}

serve::EngineOptions engine_options(const ModelOptions& o) {
  serve::EngineOptions e;
  e.threads = o.threads;
  e.deadline_s = o.deadline_s;
  if (!(o.deadline_s > 0) || o.deadline_s > 86400)
    fail(Code::usage, "--deadline {}: want seconds, up to a day", o.deadline_s);
  e.processes = o.ranks == "process";
  if (!o.fault.empty()) e.fault = parse_fault(o.fault);
  e.stuck = [](const Error& error) {
    std::fprintf(stderr, "plait: %s\n", error.what());
    _exit(static_cast<int>(error.code()));
  };
  return e;
}

i64 parse_bytes(const std::string& text, std::string_view what) {
  size_t used = 0;
  double v = -1;
  try {
    v = std::stod(text, &used);
  } catch (const std::exception&) {}
  const std::string unit = text.substr(std::min(used, text.size()));
  const std::pair<const char*, double> units[] = {{"", 1},     {"B", 1},       {"KB", 1e3},      {"MB", 1e6},
                                                  {"GB", 1e9}, {"KiB", 1024},  {"MiB", 1048576}, {"GiB", 1073741824},
                                                  {"K", 1024}, {"M", 1048576}, {"G", 1073741824}};
  for (auto& [name, factor] : units)
    if (used > 0 && unit == name && v >= 0 && v * factor < 9e18) return static_cast<i64>(v * factor);
  fail(Code::usage, "{} {}: want a size such as 60MiB or 1.5GB", what, text);
}

std::unique_ptr<text::Tokenizer> open_tokenizer(const io::ModelFiles& files) {
  if (files.gguf() != nullptr)
    return std::make_unique<text::Tokenizer>(text::Tokenizer::from(text::vocabulary_from_gguf(*files.gguf())));
  auto json = files.tokenizer_json();
  if (!json) fail(Code::bad_file, "[{}] no tokenizer.json beside the model", files.path());
  return std::make_unique<text::Tokenizer>(
      text::Tokenizer::from(text::vocabulary_from_folder(json->substr(0, json->find_last_of('/')))));
}

std::string read_text_file(const std::string& path) {
  if (path == "-") return {std::istreambuf_iterator<char>(std::cin), {}};
  std::ifstream in(path, std::ios::binary);
  if (!in) fail(Code::bad_file, "[{}] cannot be opened", path);
  std::ostringstream s;
  s << in.rdbuf();
  if (in.bad()) fail(Code::bad_file, "[{}] cannot be read", path);
  return s.str();
}

std::string human_bytes(i64 bytes) {
  if (bytes < 10000) return fmt::format("{} B", bytes);
  if (bytes < i64{10} << 20) return fmt::format("{:.1f} KiB", static_cast<double>(bytes) / 1024);
  if (bytes < i64{10} << 30) return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
  return fmt::format("{:.2f} GiB", static_cast<double>(bytes) / (1 << 30));
}

}  // namespace plait::cli
