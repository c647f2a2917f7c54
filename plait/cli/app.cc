#include "plait/cli/app.h"

#include <cstdio>

#include "plait/cli/common.h"
#include "plait/comm/local/run_processes.h"

namespace plait::cli {

std::vector<std::string> rewritten(int argc, const char* const* argv) {
  const std::pair<const char*, const char*> kLong[] = {
      {"-tp", "--tensor-parallel-size"}, {"-dp", "--data-parallel-size"}, {"-cp", "--context-parallel-size"}};
  std::vector<std::string> args;
  bool plain = false;
  for (int i = 1; i < argc; i++) {
    std::string a = argv[i];
    plain |= a == "--";
    const std::string before = i > 1 ? argv[i - 1] : "";
    const bool is_text = before == "-p" || before == "--prompt" || before == "--system";
    for (auto& [from, to] : kLong) {
      std::string f = from;
      if (plain || is_text || a.rfind(f, 0) != 0) continue;
      if (a == f || a[f.size()] == '=') a = to + a.substr(f.size());
    }
    args.push_back(a);
  }
  return args;
}

namespace {

int outcome(const Command& command) {
  try {
    return command();
  } catch (const Error& e) {
    std::fflush(stdout);
    std::fprintf(stderr, "plait: %s\n", e.what());
    return static_cast<int>(e.code());
  } catch (const std::exception& e) {
    std::fflush(stdout);
    std::fprintf(stderr, "plait: %s\n", e.what());
    return static_cast<int>(Code::differs);
  }
}

}  // namespace

int run(int argc, const char* const* argv) {
  Parser parser(
      "plait", "0.1.0",
      "Plait lays one transformer language model across many ranks and runs it: the same bits on one rank and on "
      "many.\n\n"
      "Examples:\n"
      "  plait generate model.gguf -tp 2 -p \"Once upon a time\"\n"
      "  plait explain model.gguf -tp 3            what lies where, every collective, before a run\n"
      "  plait verify model.gguf -tp 2             two ranks against one, tensor by tensor\n"
      "  plait bench model.gguf -tp 1,2            tokens/s and where the time goes\n"
      "  plait trace model.gguf -tp 2 -o t.json    a timeline of every rank, for Perfetto\n"
      "  plait score model.gguf text.txt           perplexity of a text\n\n"
      "Exit codes: 0 ok, 1 differs or failed, 2 usage, 3 does not fit, 4 bad file, 5 rank lost, 6 not a number");
  Program program{parser, {}};
  add_generate(program);
  add_score(program);
  add_explain(program);
  add_verify(program);
  add_bench(program);
  add_trace(program);
  add_convert(program);
  add_doctor(program);
  add_tokenize(program);
  if (auto code = parser.parse(rewritten(argc, argv))) return *code;
  if (!program.processes) return outcome(program.chosen);
  comm::Supervised s = comm::supervise([&] { return outcome(program.chosen); });
  if (!s.message.empty()) std::fprintf(stderr, "plait: %s\n", s.message.c_str());
  return s.code;
}

}  // namespace plait::cli
