#include "plait/models/builder.h"

#include <cmath>
#include <numeric>

#include "plait/models/family.h"

namespace plait {

namespace {

/// The largest block among the weights of this name in all layers: no leaf may end inside one.
i64 largest_block(const ModelConfig& c, const BuildOptions& o, const char* name) {
  i64 block = 1;
  for (i64 l = 0; o.weight_dtype && l < c.layers; l++)
    block = std::max(block, info(o.weight_dtype(fmt::format("layers.{}.{}", l, name))).block);
  return block;
}

}  // namespace

std::map<char, Leaf> leaf_table(const ModelConfig& c, const BuildOptions& o) {
  const i64 block = largest_block(c, o, "wo"), heads = block / std::gcd(c.H, block);  // columns of wo: heads x H
  const i64 usual = c.F >= 2048 ? 128 : std::max<i64>(32, (c.F + 256) / 512 * 32);
  const i64 ffn = round_up(usual, largest_block(c, o, "down"));
  std::map<char, Leaf> dims = {
      {'T', {0, 256}},       {'R', {0, 0}},   {'D', {c.D, 0}},   {'N', {c.N, heads}},
      {'K', {c.K, 1}},       {'H', {c.H, 0}}, {'F', {c.F, ffn}}, {'V', {c.V, c.V < 4096 ? 32 : 256}},
      {'C', {o.slots, 128}}, {'1', {1, 0}}};
  for (auto& [dim, leaf] : o.leaves) {
    auto it = dims.find(dim);
    PLAIT_CHECK(it != dims.end() && leaf > 0, "leaf of {} for dim {}", leaf, dim);
    it->second.leaf = leaf;
  }
  return dims;
}

Builder::Builder(Graph& graph, const ModelConfig& config, const BuildOptions& options, bool with_cache)
    : g(graph), c(config), o(options), cached(with_cache) {
  g.name = c.family;
  g.real = o.real, g.compute = o.compute, g.sum = o.sum;
  g.layers = c.layers;
  g.dims = leaf_table(c, o);
  ids = g.input("ids", "T");
  position = g.input("position", "T");
  sequence = g.input("sequence", "T");
  if (!cached) {
    g.dims.erase('C');
    g.dims.erase('R');
    return;
  }
  PLAIT_CHECK(o.page > 0 && o.slots > 0 && o.slots % o.page == 0 && o.sequences > 0 && o.pages > 0,
              "cache of {} slots in pages of {}, {} sequences of {} pages", o.slots, o.page, o.sequences, o.pages);
  g.dims['B'] = {o.sequences, 0};
  g.dims['P'] = {o.pages, 0};
  slot_ = g.input("slot", "T");
  table_ = g.input("table", "BP");
}

void Builder::begin_layer(i64 l) {
  g.layer = l;
  prefix_ = fmt::format("layers.{}.", l);
}

ValueId Builder::weight(const std::string& name) {
  const std::string state = full(name);
  if (auto it = g.named.find(state); it != g.named.end()) return it->second;  // a tied embedding
  std::string dims = weight_row(c, state).dims;
  const auto bar = dims.find('|');
  if (bar == std::string::npos) return g.state(state, dims);
  dims.erase(bar, 1);
  return g.state(state, dims, o.weight_dtype ? o.weight_dtype(state) : o.compute);
}

ValueId Builder::operand(const std::string& name) {
  const ValueId w = weight(name);
  return cached ? w : g.operand(w);
}

ValueId Builder::product(const std::string& name, ValueId x, const std::string& rule, Elem elem) {
  return g.one("matmul", {x, operand(name)}, {.rule = rule, .label = full(name), .elem = elem});
}

ValueId Builder::biased(const std::string& name, ValueId x, const std::string& rule, Elem elem,
                        const std::string& label) {
  const std::string bias = name + ".bias";
  return g.one("bias", {x, weight(bias)}, {.rule = rule, .label = full(label.empty() ? bias : label), .elem = elem});
}

ValueId Builder::residual(const std::string& name, ValueId x, ValueId y) {
  return g.one("add", {x, y}, {.label = full(name)});
}

std::map<std::string, double> Builder::next_site(double p) {
  if (number_ == kNone) {
    number_ = g.input("number", "T");
    step_ = g.input("step", "1");
  }
  return {{"seed", static_cast<double>(o.seed)}, {"site", static_cast<double>(sites_++)}, {"p", p}};
}

ValueId Builder::dropout(const std::string& label, ValueId x, double p) {
  if (cached || p == 0) return x;
  auto site = next_site(p);
  return g.one("dropout", {x, number_, step_}, {.x = std::move(site), .label = full(label)});
}

ValueId Builder::attention(ValueId q, ValueId k, ValueId v, i64 window) {
  std::map<std::string, double> how = {
      {"scale", c.attention_scale > 0 ? c.attention_scale : 1 / std::sqrt(static_cast<double>(c.H))}};
  if (window > 0) how["window"] = static_cast<double>(window);
  const std::string out = full("attention.out");
  if (!cached && c.attention_dropout > 0) {
    auto site = next_site(c.attention_dropout);
    site.merge(how);
    return g.apply("attention_dropout", {q, k, v, position, sequence, number_, step_},
                   {.x = std::move(site), .label = out})[0];
  }
  if (!cached) return g.apply("attention", {q, k, v, position, sequence}, {.x = how, .label = out})[0];
  auto written = [&](const char* name, ValueId rows) {
    const std::string cache = full(name);
    return g.one("kv_write", {g.state(cache, "CKH", o.compute), rows, slot_}, {.alias = cache, .label = cache});
  };
  const ValueId kc = written("cache.k", k), vc = written("cache.v", v);  // [C K H]
  how["page"] = static_cast<double>(o.page);
  return g.one("attention_paged", {q, kc, vc, position, sequence, table_}, {.x = how, .label = out});
}

}  // namespace plait
