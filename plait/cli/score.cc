// plait score: perplexity of a text.
#include "plait/serve/score.h"

#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "plait/cli/common.h"

namespace plait::cli {

namespace {

double now_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

struct Options {
  ModelOptions model;
  std::string file;
  i64 window = 0, stride = 0, max_tokens = 0;
  bool json = false, quiet = false;
};

constexpr i64 kWindow = 2048, kLogitBytes = i64{64} << 20;

int score(const Options& o) {
  io::ModelFiles files(o.model.model);
  auto tokenizer = open_tokenizer(files);
  for (auto [name, value] : {std::pair{"--window", o.window}, {"--stride", o.stride}, {"--max-tokens", o.max_tokens}})
    if (value < 0) fail(Code::usage, "{} {}: want 0 or more", name, value);
  serve::ScoreRequest request;
  request.tokens = tokenizer->encode(read_text_file(o.file));
  if (o.max_tokens > 0 && o.max_tokens < static_cast<i64>(request.tokens.size()))
    request.tokens.resize(static_cast<size_t>(o.max_tokens));
  const auto around = tokenizer->encode("", {.add_special = true});
  if (!around.empty() && tokenizer->bos() == around[0]) request.bos = around[0];

  ModelOptions model = o.model;
  const ModelConfig config = parse_config(files.config(), files.path());
  i64& context = model.serving.context;
  request.window = o.window > 0 ? o.window : context > 0 ? context : std::min(kWindow, config.max_positions);
  if (context == 0) context = request.window;
  request.stride = o.stride > 0 ? o.stride : std::max<i64>(1, request.window / 2);
  model.serving.logit_rows = std::clamp<i64>(kLogitBytes / (4 * config.V), 1, model.serving.prefill_chunk);
  serve::Engine engine(files, serving_plan(files, model), engine_options(model));

  const i64 all = static_cast<i64>(request.tokens.size());
  const bool terminal = isatty(STDERR_FILENO) == 1;
  double begin = 0, shown = 0;
  serve::Scored result;
  engine.run([&](serve::Session& s) {
    s.barrier("begin");
    if (s.rank() == 0) shown = begin = now_s();
    auto progress = [&](const serve::Scored& x) {
      constexpr double kEvery = 10;
      if (o.quiet || (!terminal && now_s() - shown < kEvery)) return;
      shown = now_s();
      std::fprintf(stderr, "%s%lld of %lld tokens, perplexity %.4f, %.0f tokens/s%s", terminal ? "\r" : "",
                   static_cast<long long>(x.tokens), static_cast<long long>(all),
                   std::exp(x.nats / static_cast<double>(x.tokens)), static_cast<double>(x.tokens) / (shown - begin),
                   terminal ? "   " : "\n");
    };
    const serve::Scored x = serve::score(s, request, progress);
    if (s.rank() == 0) result = x;
  });
  const double seconds = now_s() - begin, tokens = static_cast<double>(result.tokens), mean = result.nats / tokens;
  if (terminal && !o.quiet) std::fprintf(stderr, "\n");
  if (o.json) {
    const nlohmann::ordered_json j = {{"schema_version", 1},
                                      {"model", o.model.model},
                                      {"file", o.file},
                                      {"dtype", engine.plan().dtype},
                                      {"plan", engine.plan().options.plan.text()},
                                      {"window", request.window},
                                      {"stride", request.stride},
                                      {"bos", request.bos.has_value()},
                                      {"windows", result.windows},
                                      {"tokens", result.tokens},
                                      {"computed_tokens", result.fed},
                                      {"nats", result.nats},
                                      {"nats_per_token", mean},
                                      {"perplexity", std::exp(mean)},
                                      {"seconds", seconds},
                                      {"tokens_per_s", tokens / seconds}};
    std::printf("%s\n", j.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace).c_str());
    return 0;
  }
  std::printf("%s, %s: %lld tokens in %lld windows of %lld, stride %lld\n", o.file.c_str(), engine.plan().dtype.c_str(),
              static_cast<long long>(result.tokens), static_cast<long long>(result.windows),
              static_cast<long long>(request.window), static_cast<long long>(request.stride));
  std::printf("%.6f nats a token, perplexity %.4f; %.1f tokens/s\n", mean, std::exp(mean), tokens / seconds);
  return 0;
}

}  // namespace

void add_score(Program& p) {
  auto o = std::make_shared<Options>();
  OptionList options = p.parser.command("score", "Perplexity of a text, by a sliding window");
  add_layout_options(options, o->model);
  add_run_options(options, o->model);
  options.required("FILE", o->file, "The text; -: standard input");
  options.group("Window");
  options.add("--window", o->window, "Tokens that are seen together; 0: --max-model-len, else min(model's, 2048)");
  options.add("--stride", o->stride, "Tokens from window to window, which the next one counts; 0: half the window");
  options.add("-n,--max-tokens", o->max_tokens, "Only the first tokens of the text; 0: all");
  options.group("Output");
  options.flag("--json", o->json, "One JSON object");
  options.flag("-q,--quiet", o->quiet, "No progress on stderr");
  options.footer(
      "Every window begins with a BOS where the model puts one before a text; every token is counted once.\n"
      "Example:\n  plait score SmolLM2-135M-Instruct.Q4_1 wikitext.txt --window 1024 --stride 512");
  options.chosen([&p, o] {
    p.chosen = [o] { return score(*o); };
    p.processes = o->model.ranks == "process";
  });
}

}  // namespace plait::cli
