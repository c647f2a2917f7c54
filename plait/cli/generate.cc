// plait generate: text from a prompt, streamed to stdout.
#include <unistd.h>
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "plait/cli/common.h"
#include "plait/cli/generate_prompts.h"
#include "plait/text/stream_decoder.h"

namespace plait::cli {

namespace {

using Clock = std::chrono::steady_clock;
double since(Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); }

struct Options {
  ModelOptions model;
  std::optional<std::string> prompt;
  std::string file, system, prompts;
  bool chat = false, json = false, quiet = false, ignore_eos = false;
  i64 max_tokens = 128, sequences = 8;
  kernels::SamplingOptions sampling;
};

// The signal handler's flag: the one thing that a handler can reach.
std::atomic<bool> interrupted{false};

void on_interrupt(int) {
  if (interrupted.exchange(true)) _exit(130);
}

std::string prompt_text(const Options& o) {
  if (o.prompt && !o.file.empty()) fail(Code::usage, "--prompt and --file: want one of them");
  if (o.prompt) return *o.prompt;
  if (!o.file.empty()) return read_text_file(o.file);
  return {std::istreambuf_iterator<char>(std::cin), {}};
}

nlohmann::ordered_json report(const Options& o, const serve::Engine& e, const serve::Generated& g, i64 prompt,
                              const std::string& text, double first_token_s) {
  nlohmann::ordered_json j;
  j["schema_version"] = 1;
  j["tokens"] = g.tokens;
  j["prompt_tokens"] = prompt;
  j["text"] = text;
  j["finish_reason"] = g.finish_reason;
  j["plan"] = e.plan().options.plan.text();
  j["dtype"] = e.plan().dtype;
  j["reduce"] = o.model.serving.reduce;
  double load = 0;
  for (auto& r : e.reports()) load = std::max(load, r.load_s);
  j["timings"] = {{"load_s", load},
                  {"prefill_tokens_per_s", static_cast<double>(prompt) / g.prefill_s},
                  {"decode_tokens_per_s", g.decoded > 0 ? static_cast<double>(g.decoded) / g.decode_s : 0.0},
                  {"first_token_s", first_token_s}};
  for (auto& r : e.reports())
    j["ranks"].push_back({{"coords", r.coords},
                          {"weights_bytes", r.memory.weights()},
                          {"kv_bytes", r.memory.kv},
                          {"arena_bytes", r.memory.arena},
                          {"comm_bytes", r.memory.comm},
                          {"compute_s", r.compute_s},
                          {"comm_s", r.comm_s},
                          {"wait_s", r.wait_s}});
  return j;
}

int generate(const Options& o, Clock::time_point begin) {
  io::ModelFiles files(o.model.model);
  auto tokenizer = open_tokenizer(files);
  kernels::check_sampling(o.sampling);
  if (o.max_tokens < 1) fail(Code::usage, "--max-tokens {}: want 1 or more", o.max_tokens);
  if (!o.system.empty() && !o.chat) fail(Code::usage, "--system goes with --chat");
  std::vector<i64> prompt = prompt_tokens(*tokenizer, prompt_text(o), o.chat, o.system);
  serve::Engine engine(files, serving_plan(files, o.model), engine_options(o.model));
  const i64 room = engine.plan().context - static_cast<i64>(prompt.size());
  if (room < 1)
    fail(Code::does_not_fit, "the prompt has {} tokens, the context {}: nothing can follow (see --max-model-len)",
         prompt.size(), engine.plan().context);
  if (engine.plan().context_shrunk && !o.quiet)
    std::fprintf(stderr, "plait: context shrunk to %lld positions to fit --max-rank-memory\n",
                 static_cast<long long>(engine.plan().context));

  std::signal(SIGINT, on_interrupt);
  serve::Request request;
  request.prompt = prompt;
  request.max_tokens = std::min(o.max_tokens, room);
  request.sampling = o.sampling;
  request.interrupted = &interrupted;
  if (!o.ignore_eos) request.is_end = [&](i64 id) { return tokenizer->is_end_of_generation(id); };
  const bool begins_text = std::ranges::all_of(prompt, [&](i64 id) { return tokenizer->is_special(id); });
  text::StreamDecoder decoder(*tokenizer, {.skip_special = true, .begins_text = begins_text});
  std::string text;
  double first_token_s = 0;
  auto emit = [&](const std::string& piece) {
    text += piece;
    if (o.json) return;
    std::fwrite(piece.data(), 1, piece.size(), stdout);
    std::fflush(stdout);
  };
  request.on_token = [&](i64 id) {
    if (first_token_s == 0) first_token_s = since(begin);
    emit(decoder.push(id));
  };
  serve::Generated result;
  engine.run([&](serve::Session& s) {
    serve::Generated g = serve::generate(s, request);
    if (s.rank() == 0) result = std::move(g);
  });
  emit(decoder.finish());
  if (o.json) {
    std::printf("%s\n", report(o, engine, result, static_cast<i64>(prompt.size()), text, first_token_s)
                            .dump(2, ' ', false, nlohmann::json::error_handler_t::replace)
                            .c_str());
    return 0;
  }
  std::printf("\n");
  if (!o.quiet) {
    double load = 0;
    for (auto& r : engine.reports()) load = std::max(load, r.load_s);
    std::fprintf(
        stderr,
        "\n%lld ranks x %lld threads, %s: load %.2f s, first token after %.2f s, prefill %.0f tokens/s, decode %.1f "
        "tokens/s (%s)\n",
        static_cast<long long>(engine.plan().world()), static_cast<long long>(engine.threads()),
        engine.plan().dtype.c_str(), load, first_token_s, static_cast<double>(prompt.size()) / result.prefill_s,
        result.decoded > 0 ? static_cast<double>(result.decoded) / result.decode_s : 0.0, result.finish_reason.c_str());
    for (auto& r : engine.reports())
      std::fprintf(stderr, "  %-8s weights %s, KV %s, arena %s; kernels %.2f s, communication %.3f s, waiting %.3f s\n",
                   r.coords.c_str(), human_bytes(r.memory.weights()).c_str(), human_bytes(r.memory.kv).c_str(),
                   human_bytes(r.memory.arena).c_str(), r.compute_s, r.comm_s, r.wait_s);
  }
  return 0;
}

int generate_file(const Options& o) {
  if (o.prompt || !o.file.empty() || !o.system.empty() || o.json)
    fail(Code::usage,
         "--prompts takes the place of --prompt, --file and --system, and always writes JSON: leave them out");
  if (o.max_tokens < 1) fail(Code::usage, "--max-tokens {}: want 1 or more", o.max_tokens);
  std::signal(SIGINT, on_interrupt);
  PromptsOptions p{o.prompts, o.sequences, o.chat, o.ignore_eos, o.quiet, {}};
  p.otherwise.max_tokens = o.max_tokens;
  p.otherwise.sampling = o.sampling;
  return generate_prompts(o.model, p, interrupted);
}

}  // namespace

void add_generate(Program& p) {
  auto begin = Clock::now();
  auto o = std::make_shared<Options>();
  OptionList options = p.parser.command("generate", "Write text that goes on from a prompt");
  add_layout_options(options, o->model);
  add_run_options(options, o->model);
  options.group("Prompt");
  options.add("-p,--prompt", o->prompt, "The prompt; without it and --file: standard input");
  options.add("-f,--file", o->file, "File with the prompt");
  options.flag("--chat", o->chat, "The prompt is a user's message, put into the model's chat template");
  options.add("--system", o->system, "With --chat: a system message before it");
  options.add("--prompts", o->prompts,
              "File of JSON lines (-: standard input), written together: {\"prompt\": ...} or {\"messages\": [...]}, "
              "and id, max_tokens, temperature, top_k, top_p, min_p, seed, stop; results are JSON lines in that order");
  options.add("--max-num-seqs", o->sequences, "With --prompts: most texts that are written together");
  options.group("Output");
  options.add("-n,--max-tokens", o->max_tokens, "Most tokens to write");
  options.group("Sampling");
  options.add("--temperature,--temp", o->sampling.temperature, "0: always the likeliest token");
  options.add("--top-k", o->sampling.top_k, "Only the k likeliest; 0: all");
  options.add("--top-p", o->sampling.top_p, "Only the likeliest that make up this much");
  options.add("--min-p", o->sampling.min_p, "Only those of this share of the likeliest");
  options.add("--seed", o->sampling.seed, "A token is a function of seed, position and logits");
  options.group("Output");
  options.flag("--ignore-eos", o->ignore_eos, "Go on after the end of the text");
  options.flag("--json", o->json, "One JSON object on stdout instead of text");
  options.flag("-q,--quiet", o->quiet, "No figures on stderr");
  options.footer(
      "Examples:\n  plait generate SmolLM2-135M-Instruct.Q4_1 -tp 2 -p \"The capital of France is\" -n 32\n"
      "  plait generate SmolLM2-135M-Instruct.Q4_1 --chat -p \"Why is the sky blue?\"\n  echo "
      "\"Once upon a time\" | plait generate stories260K.gguf --temp 0.8 --seed 7");
  options.chosen([&p, o, begin] {
    p.chosen = [o, begin] { return o->prompts.empty() ? generate(*o, begin) : generate_file(*o); };
    p.processes = o->model.ranks == "process";
  });
}

}  // namespace plait::cli
