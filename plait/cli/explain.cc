// plait explain: what lies where and what crosses ranks, worked out from the configuration alone.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "plait/cli/explain_train.h"
#include "plait/cli/table.h"
#include "plait/io/output_file.h"

namespace plait::cli {

namespace {

using Json = nlohmann::ordered_json;
using serve::RankMemory;
using serve::ServingPlan;

struct Options {
  ModelOptions model;
  TrainExplainOptions train;
  bool graph = false, sharded = false, program = false, json = false;
  i64 rank = 0, tokens = 512;
  std::string save_plan;
};

/// What a collective is for, by the label of the value that it moves.
std::string human_cause(const std::string& label) {
  const std::pair<const char*, const char*> kNames[] = {
      {"embedding", "embedding"},
      {"positions", "learned positions"},
      {"embedding.out", "embedding"},
      {"attention.in", "attention input"},
      {"attention.out", "attention output"},
      {"q", "queries"},
      {"k", "keys"},
      {"v", "values"},
      {"wo", "attention output (wo)"},
      {"ffn.in", "FFN input"},
      {"down", "FFN output (down)"},
      {"output.in", "input of the output product"},
      {"out", "layer output"},
      {"rows.out", "rows whose logits are wanted"},
      {"output", "logits for the sampler"},
      {"logits", "logits for the sampler"},
  };
  for (auto& [from, to] : kNames)
    if (label == from) return to;
  return label;
}

struct Phase {
  std::vector<serve::CollectiveRow> rows;
  serve::Balance balance;
};

/// A longer prefill goes in runs of the chunk, the last one shorter.
Phase phase_of(const ServingPlan& p, i64 tokens, i64 cached) {
  const i64 chunk = p.bounds.size.at('T'), runs = tokens / chunk;
  Phase out;
  if (runs > 0) out.rows = serve::collectives(p, chunk);
  for (auto& r : out.rows) r.count *= runs;
  if (tokens % chunk > 0)
    for (auto& r : serve::collectives(p, tokens % chunk)) out.rows.push_back(r);
  out.balance = serve::balance(p, tokens, cached);
  for (auto& r : out.rows) r.cause = human_cause(r.cause);
  return out;
}

Json json_of(const std::vector<serve::CollectiveRow>& rows) {
  Json j = Json::array();
  for (auto& r : rows)
    j.push_back({{"op", r.op},
                 {"axis", r.axis},
                 {"cause", r.cause},
                 {"per_layer", r.per_layer},
                 {"count", r.count},
                 {"bytes", r.bytes}});
  return j;
}

Json json_of(const ServingPlan& p, const io::ModelFiles& files, const Options& o, const Phase& decode,
             const Phase& prefill) {
  const ModelConfig& c = p.config;
  Json j;
  j["schema_version"] = 1;
  j["model"] = {{"path", files.path()},
                {"format", files.format_name()},
                {"family", c.family},
                {"layers", c.layers},
                {"hidden", c.D},
                {"query_heads", c.N},
                {"kv_heads", c.K},
                {"head_dim", c.H},
                {"ffn", c.F},
                {"vocabulary", c.V},
                {"positions", c.max_positions},
                {"tied_embedding", c.tied}};
  j["dtype"] = p.dtype;
  j["reduce"] = p.options.reduce;
  j["context"] = p.context;
  j["context_shrunk"] = p.context_shrunk;
  j["sequences"] = p.sequences();
  j["plan"] = p.options.plan.text();
  j["ranks"] = Json::array();
  const Mesh mesh = p.options.plan.mesh();
  for (i64 r = 0; r < p.world(); r++) {
    const RankMemory& m = p.memory[static_cast<size_t>(r)];
    j["ranks"].push_back(
        {{"coords", mesh.describe(r)},
         {"weights", {{"embedding", m.embedding}, {"attention", m.attention}, {"ffn", m.ffn}, {"norms", m.norms}}},
         {"weights_bytes", m.weights()},
         {"kv_bytes", m.kv},
         {"arena_bytes", m.arena},
         {"input_bytes", m.inputs},
         {"comm_bytes", m.comm},
         {"total_bytes", m.total()}});
  }
  j["prefill_tokens"] = o.tokens;
  j["collectives"] = {{"decode", json_of(decode.rows)}, {"prefill", json_of(prefill.rows)}};
  for (auto& [name, phase] : {std::pair{"decode", &decode}, std::pair{"prefill", &prefill}})
    j["balance"][name] = {{"flops", phase->balance.flops}, {"speed_up", phase->balance.speed_up}};
  return j;
}

/// "0-3,8" of ascending ranks.
std::string ranges_text(const std::vector<i64>& ranks) {
  std::string s;
  for (size_t i = 0; i < ranks.size();) {
    size_t e = i;
    while (e + 1 < ranks.size() && ranks[e + 1] == ranks[e] + 1) e++;
    s += (s.empty() ? "" : ",") + (e == i ? fmt::format("{}", ranks[i]) : fmt::format("{}-{}", ranks[i], ranks[e]));
    i = e + 1;
  }
  return s;
}

/// A long list ends in "..." and how many there are.
std::string shortened(const std::string& ranges, size_t ranks) {
  constexpr size_t kMost = 24;
  if (ranges.size() <= kMost) return ranges;
  return fmt::format("{},... ({} ranks)", ranges.substr(0, ranges.rfind(',', kMost)), ranks);
}

constexpr size_t kMostRows = 12;  // of the table of ranks

std::vector<i64> parts_of(const RankMemory& m) {
  return {m.embedding, m.attention, m.ffn, m.norms, m.kv, m.arena, m.inputs, m.comm, m.total()};
}

std::string memory_text(const ServingPlan& p) {
  Table t("lrrrrrrrrr",
          {"rank", "embedding", "attention", "FFN", "norms", "KV cache", "arena", "inputs", "comm", "total"});
  auto add = [&](std::string name, const std::vector<i64>& parts) {
    std::vector<std::string> cells{std::move(name)};
    for (i64 b : parts) cells.push_back(human_bytes(b));
    t.row(cells);
  };
  std::vector<std::pair<std::vector<i64>, std::vector<i64>>> kinds;  // parts, ranks that have them
  for (i64 r = 0; r < p.world(); r++) {
    auto parts = parts_of(p.memory[static_cast<size_t>(r)]);
    auto it = std::find_if(kinds.begin(), kinds.end(), [&](auto& k) { return k.first == parts; });
    if (it == kinds.end()) it = kinds.insert(kinds.end(), {parts, {}});
    it->second.push_back(r);
  }
  if (kinds.size() <= kMostRows) {
    for (auto& [parts, ranks] : kinds) add(shortened(ranges_text(ranks), ranks.size()), parts);
    return t.text(2);
  }
  auto low = kinds[0].first, high = low;
  for (auto& [parts, ranks] : kinds)
    for (size_t i = 0; i < parts.size(); i++) {
      low[i] = std::min(low[i], parts[i]);
      high[i] = std::max(high[i], parts[i]);
    }
  add("least", low);
  add("most", high);
  return t.text(2);
}

std::string collectives_text(const std::vector<serve::CollectiveRow>& rows) {
  if (rows.empty()) return "  none\n";
  Table t("lllrrrr", {"collective", "axis", "of", "a layer", "count", "bytes a rank", "in all"});
  i64 count = 0, bytes = 0;
  for (auto& r : rows) {
    t.row({r.op, r.axis, r.cause, r.per_layer > 0 ? fmt::format("{}", r.per_layer) : "", fmt::format("{}", r.count),
           human_bytes(r.bytes), human_bytes(r.bytes * r.count)});
    count += r.count;
    bytes += r.bytes * r.count;
  }
  if (rows.size() > 1) t.row({"in all", "", "", "", fmt::format("{}", count), "", human_bytes(bytes)});
  return t.text(2);
}

std::string balance_text(const serve::Balance& b, const std::string& what) {
  const double most = *std::max_element(b.flops.begin(), b.flops.end());
  const double least = *std::min_element(b.flops.begin(), b.flops.end());
  double sum = 0;
  for (double f : b.flops) sum += f;
  return fmt::format("  {}: {:.4g} to {:.4g} flops a rank, mean {:.4g}; at most {:.2f} times as fast as 1 rank\n", what,
                     least, most, sum / static_cast<double>(b.flops.size()), b.speed_up);
}

std::string text_of(const ServingPlan& p, const io::ModelFiles& files, const Options& o, const Phase& decode,
                    const Phase& prefill) {
  const ModelConfig& c = p.config;
  std::string s = fmt::format(
      "{}: {}, {} layers, width {}, {} query heads and {} KV heads of {}, FFN {}, vocabulary {}{}\n"
      "weights {}, sums {}, {}context {} positions{} (the model has {})\n\n",
      files.path(), c.family, c.layers, c.D, c.N, c.K, c.H, c.F, c.V, c.tied ? ", tied embedding" : "", p.dtype,
      p.options.reduce, p.sequences() > 1 ? fmt::format("{} sequences, each ", p.sequences()) : "", p.context,
      p.context_shrunk ? ", shrunk to fit --max-rank-memory" : "", c.max_positions);
  s += "Plan\n";
  std::string plan = p.options.plan.text();
  for (size_t i = 0; i < plan.size();) {
    size_t e = std::min(plan.find('\n', i), plan.size());
    if (e > i) s += "  " + plan.substr(i, e - i) + "\n";
    i = e + 1;
  }
  s += fmt::format("\nMemory of {} rank{}\n", p.world(), p.world() == 1 ? "" : "s") + memory_text(p);
  const i64 chunk = p.bounds.size.at('T');
  s += fmt::format("\nCollectives of a prefill of {} tokens{}\n", o.tokens,
                   o.tokens > chunk ? fmt::format(" in runs of {}", chunk) : "") +
       collectives_text(prefill.rows);
  s += "\nCollectives of a decode step\n" + collectives_text(decode.rows);
  s += "\nBalance of products and attention\n";
  s += balance_text(prefill.balance, fmt::format("prefill of {} tokens", o.tokens));
  s += balance_text(decode.balance, fmt::format("decode step after {} tokens", o.tokens));
  return s;
}

/// Renamed into place when whole; a pipe or a device is written as it is.
void save(const std::string& path, const std::string& text) {
  if (std::filesystem::exists(path) && !std::filesystem::is_regular_file(path)) {
    std::ofstream out(path, std::ios::binary);
    out << text << std::flush;
    if (!out) fail(Code::bad_file, "[{}] cannot be written", path);
    return;
  }
  io::OutputFile out(path);
  out.write(text.data(), static_cast<i64>(text.size()));
  out.commit();
}

void print(const std::string& s) { std::fwrite(s.data(), 1, s.size(), stdout); }

int explain(const Options& o) {
  if (o.graph + o.sharded + o.program > 1) fail(Code::usage, "--graph, --sharded and --program: want one of them");
  if (o.json && (o.graph || o.sharded || o.program))
    fail(Code::usage, "--json does not go with --graph, --sharded and --program: those are texts of their own");
  io::ModelFiles files(o.model.model);
  if (o.train.train) return explain_train(files, plan_of(o.model), o.model.serving.dtype, o.train, o.tokens, o.json);
  ServingPlan p = serving_plan(files, o.model);
  if (o.tokens < 1 || o.tokens > p.context)
    fail(Code::usage, "--tokens {}: want 1 to the context, {}", o.tokens, p.context);
  if (o.rank < 0 || o.rank >= p.world()) fail(Code::usage, "--rank {}: want 0 to {}", o.rank, p.world() - 1);
  if (!o.save_plan.empty()) save(o.save_plan, p.options.plan.text());
  if (o.graph) {
    print(p.sharded->graph.text());
  } else if (o.sharded) {
    print(p.sharded->text());
  } else if (o.program) {
    print(partition(p.sharded, o.rank).text());
  } else {
    const Phase decode = phase_of(p, 1, o.tokens);
    const Phase prefill = phase_of(p, o.tokens, (o.tokens + 1) / 2);  // causal: a token reads half of them on average
    print(o.json ? json_of(p, files, o, decode, prefill).dump(2) + "\n" : text_of(p, files, o, decode, prefill));
  }
  return 0;
}

}  // namespace

void add_explain(Program& p) {
  auto o = std::make_shared<Options>();
  OptionList options = p.parser.command("explain", "What lies where and what crosses ranks, before a run");
  add_layout_options(options, o->model);
  options.group("Memory");
  options.add("--max-num-seqs", o->model.serving.sequences, "Sequences that are written together, each with a context");
  add_train_options(options, o->train);
  options.group("Training");
  options.add("--document", o->train.document, "Tokens of a document of the micro-batch");
  options.group("Output");
  options.add("--tokens", o->tokens, "Tokens of the prefill, in the cache of the decode step, or of a micro-batch");
  options.flag("--graph", o->graph, "The model as a graph, as if for one device");
  options.flag("--sharded", o->sharded, "The graph with placements and reshards");
  options.flag("--program", o->program, "The calls of one rank");
  options.add("--rank", o->rank, "Whose program");
  options.add("--save-plan", o->save_plan, "Write the plan as a file for --plan");
  options.flag("--json", o->json, "One JSON object");
  options.footer(
      "Nothing runs and no weight is read: a config.json is enough.\n\n"
      "Examples:\n"
      "  plait explain SmolLM2-135M-Instruct.Q4_1 -tp 4\n"
      "  plait explain Llama-3.1-405B/config.json -tp 64 --max-rank-memory 80GiB --json\n"
      "  plait explain --train config.json -tp 4 --sequence-parallel -dp 2");
  options.chosen([&p, o] { p.chosen = [o] { return explain(*o); }; });
}

}  // namespace plait::cli
