// plait verify: a plan against one rank, tensor by tensor.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "plait/cli/verify.h"
#include "plait/serve/verify.h"

namespace plait::cli {

namespace {

constexpr const char* kPrompt =
    "The quick brown fox jumps over the lazy dog. Parallel plans must not change a single bit: 1234567890.";

struct Options {
  ModelOptions model;
  std::string prompt = kPrompt;
  i64 max_tokens = 16;
  TrainVerifyOptions train;
  bool json = false, all = false;
};

/// "layers.3.wo" -> "layers.*.wo"
std::string kind_of(const serve::VerifyRow& r) {
  const std::string prefix = fmt::format("layers.{}.", r.layer);
  return r.label.rfind(prefix, 0) == 0 ? "layers.*." + r.label.substr(prefix.size()) : r.label;
}

void print_rows(const std::vector<serve::VerifyRow>& rows) {
  fmt::print("{:<36} {:<16} {:>8} {:>12} {:>10} {:>12}\n", "value", "op", "compared", "elements", "different",
             "max|a-b|");
  for (auto& r : rows)
    fmt::print("{:<36} {:<16} {:>8} {:>12} {:>10} {:>12.3g}\n", r.label, r.op, r.values, r.elements, r.different,
               r.max_abs);
}

std::vector<serve::VerifyRow> by_kind(const std::vector<serve::VerifyRow>& rows) {
  std::vector<serve::VerifyRow> kinds;
  for (auto& r : rows) {
    const std::string k = kind_of(r);
    auto it = std::find_if(kinds.begin(), kinds.end(), [&](auto& x) { return x.label == k; });
    if (it == kinds.end()) {
      kinds.push_back(r);
      kinds.back().label = k;
      continue;
    }
    it->values += r.values;
    it->elements += r.elements;
    it->different += r.different;
    it->max_abs = std::max(it->max_abs, r.max_abs);
    it->max_want = std::max(it->max_want, r.max_want);
  }
  return kinds;
}

nlohmann::ordered_json to_json(const serve::VerifyResult& r) {
  nlohmann::ordered_json j;
  j["schema_version"] = 1;
  j["same"] = r.same;
  j["tolerance"] = r.tolerance;
  for (auto& x : r.rows)
    j["values"].push_back({{"label", x.label},
                           {"op", x.op},
                           {"layer", x.layer},
                           {"compared", x.values},
                           {"elements", x.elements},
                           {"different", x.different},
                           {"max_abs", x.max_abs},
                           {"relative", x.relative()}});
  j["tokens"] = r.tokens;
  j["oracle_tokens"] = r.oracle_tokens;
  j["logits_hash"] = fmt::format("{:016x}", r.logits_hash);
  j["oracle_logits_hash"] = fmt::format("{:016x}", r.oracle_logits_hash);
  j["cache"] = {{"elements", r.cache_compared}, {"different", r.cache_different}};
  j["replicated_weights"] = {{"compared", r.weights_compared}, {"different", r.weights_different}};
  if (r.first)
    j["first_difference"] = {{"label", r.first->label}, {"op", r.first->op},     {"layer", r.first->layer},
                             {"phase", r.first->phase}, {"rank", r.first->rank}, {"where", r.first->where},
                             {"got", r.first->got},     {"want", r.first->want}};
  if (r.first_token_apart) j["first_token_apart"] = {{"index", *r.first_token_apart}, {"margin", r.margin}};
  return j;
}

int verify(const Options& o) {
  io::ModelFiles files(o.model.model);
  if (o.train.train) return verify_train(files, o.model, o.train, o.json);
  if (o.model.ranks != "thread" || !o.model.fault.empty())
    fail(Code::usage, "verify without --train compares values in one memory: want --ranks thread, and no --fault");
  auto tokenizer = open_tokenizer(files);
  serve::VerifyRequest q;
  q.prompt = tokenizer->encode(o.prompt, {.add_special = true, .parse_special = false});
  q.max_tokens = o.max_tokens;
  if (q.prompt.empty()) fail(Code::usage, "an empty prompt");
  if (o.max_tokens < 1) fail(Code::usage, "--max-tokens {}: want 1 or more", o.max_tokens);
  serve::ServingOptions s = o.model.serving;
  s.plan = plan_of(o.model);
  if (!o.model.max_rank_memory.empty()) s.max_rank_memory = parse_bytes(o.model.max_rank_memory, "--max-rank-memory");
  serve::VerifyResult r = serve::verify(files, s, engine_options(o.model), q);
  if (o.json) {
    fmt::print("{}\n", to_json(r).dump(2));
    return r.same ? 0 : 1;
  }
  print_rows(o.all ? r.rows : by_kind(r.rows));
  i64 elements = 0, different = 0, values = 0;
  for (auto& x : r.rows) {
    elements += x.elements;
    different += x.different;
    values += x.values;
  }
  fmt::print("\n{} values, {} elements on {} ranks against one: {} different\n", values, elements, s.plan.world(),
             different);
  fmt::print("KV cache: {} of {} elements different\n", r.cache_different, r.cache_compared);
  fmt::print("weights that several ranks hold: {} parts compared by hash, {} different\n", r.weights_compared,
             r.weights_different);
  fmt::print("logits of {} positions: hash {:016x}, oracle {:016x}\n",
             q.prompt.size() + static_cast<size_t>(q.max_tokens) - 1, r.logits_hash, r.oracle_logits_hash);
  if (r.first_token_apart)
    fmt::print("greedy tokens part at {} of {}; the oracle's top two logits are {:.3g} apart there\n",
               *r.first_token_apart, r.tokens.size(), r.margin);
  else
    fmt::print("greedy tokens: {} the same\n", r.tokens.size());
  if (r.first)
    fmt::print("first difference: {} ({}) of layer {}, {}, rank {}, at {}: got {:.9g}, want {:.9g}\n", r.first->label,
               r.first->op, r.first->layer, r.first->phase, r.first->rank, r.first->where, r.first->got, r.first->want);
  if (r.tolerance > 0)
    fmt::print("--reduce {}: within {} of the largest value counts as the same\n", o.model.serving.reduce, r.tolerance);
  fmt::print("{}\n", r.same ? (r.tolerance > 0 ? "the same within tolerance" : "the same bits") : "DIFFERENT");
  return r.same ? 0 : 1;
}

}  // namespace

void add_verify(Program& p) {
  auto o = std::make_shared<Options>();
  OptionList options =
      p.parser.command("verify", "Compare a plan with one rank, tensor by tensor; exit code 1 when they differ");
  add_layout_options(options, o->model);
  add_run_options(options, o->model);
  options.group("Comparison");
  options.add("-p,--prompt", o->prompt, "Text that both run on");
  options.add("-n,--max-tokens", o->max_tokens, "Greedy tokens that both write");
  options.flag("--all", o->all, "A line for each value of each layer instead of each kind");
  options.flag("--json", o->json, "One JSON object on stdout");
  add_train_options(options, o->train);
  options.group("Training");
  options.add("--steps", o->train.steps, "Training steps");
  options.add("--micro-batches", o->train.micro_batches, "Parts of a step, of the plan; the oracle has one");
  options.footer(
      "Examples:\n  plait verify SmolLM2-135M-Instruct.Q4_1 -tp 2\n  plait verify model.gguf --tensor-split 3,1 "
      "--dtype bf16 --json");
  options.chosen([&p, o] {
    p.chosen = [o] { return verify(*o); };
    p.processes = o->train.train && o->model.ranks == "process";
  });
}

}  // namespace plait::cli
