// A small graph, laid over two ranks and run: the feed-forward part of a Llama layer.
//
//   Graph         what is computed, as if on one device
//   ShardedGraph  the same with a placement for each value, and the reshards that they ask for
//   Program       one rank's list of calls
//
// It prints the three texts, runs the graph on one rank and on two, and compares the bits (exit code 1 if they differ).
// F has 5 leaves of 32, so the two ranks have unequal parts.
//
// Shape letters: T tokens, D model, F ffn.
#include <cstdio>
#include <cstring>

#include "plait/base/random.h"
#include "plait/comm/local/run_ranks.h"
#include "plait/exec/executor.h"
#include "plait/kernels/panels.h"

namespace {

using namespace plait;

constexpr i64 kTokens = 3, kModel = 48, kFfn = 160;

Graph build() {
  Graph g;
  g.name = "ffn";
  g.layers = 1;
  g.layer = 0;
  // Sums over F are cut into leaves of 32, so a plan may cut them. D has none: no plan may cut a sum over it.
  g.dims = {{'T', {0, 0}}, {'D', {kModel, 0}}, {'F', {kFfn, 32}}};
  const ValueId x = g.input("x", "TD", Type::num);
  const ValueId h = g.one("rms_norm", {x, g.state("norm", "D")}, {.x = {{"eps", 1e-5}}, .label = "h"});
  const ValueId gate = g.one("matmul", {h, g.state("gate", "FD")}, {.rule = "t d, f d -> t f", .label = "gate"});
  const ValueId up = g.one("matmul", {h, g.state("up", "FD")}, {.rule = "t d, f d -> t f", .label = "up"});
  const ValueId a = g.one("silu_mul", {gate, up}, {.label = "act"});
  const ValueId y = g.one("matmul", {a, g.state("down", "DF")}, {.rule = "t f, d f -> t d", .label = "down"});
  g.one("read", {g.one("add", {x, y}, {.label = "out"})}, {.label = "result"});
  g.verify();
  return g;
}

/// An element of a weight is a function of its name and its place in the whole, so every rank fills its own part.
void fill(const View& v, const std::string& name, i64 width) {
  const i64 rows = v.box.size() > 1 ? v.size(0) : 1, cols = v.box.back().size();
  const i64 row0 = v.box.size() > 1 ? v.box[0].begin : 0;
  Buffer plain(rows * cols * bytes_of(DType::f32, 1));
  auto* out = reinterpret_cast<float*>(plain.data());
  for (i64 r = 0; r < rows; r++)
    for (i64 c = 0; c < cols; c++)
      out[r * cols + c] = static_cast<float>(
          normal(stream_of(name), static_cast<u64>((row0 + r) * width + v.box.back().begin + c)) / 8);
  if (v.layout == Layout::panels)
    kernels::pack_panels(DType::f32, plain.data(), cols * bytes_of(DType::f32, 1), rows, cols,
                         {0, kernels::panels_of(rows)}, static_cast<std::byte*>(v.data));
  else
    std::memcpy(v.data, plain.data(), static_cast<size_t>(plain.bytes()));
}

/// One rank: its part of the graph, its part of the weights, a run. Returns "result", [T D].
std::vector<float> run_rank(std::shared_ptr<const ShardedGraph> sharded, i64 rank, comm::Communicator* all) {
  kernels::flush_denormals();
  Symbols symbols;  // T is a symbol: planned for at most, and bound to, kTokens
  symbols.size = {{'T', kTokens}};
  Executor executor(partition(sharded, rank), {symbols}, {}, [all](const std::vector<bool>&) { return all; });
  for (auto& [name, v] : sharded->graph.named) {
    const Value& value = sharded->graph.at(v);
    if (value.kind == Kind::state) fill(executor.state(name), name, sharded->graph.size(value.dims.back()));
  }
  auto* x = executor.input<float>("x");
  for (i64 i = 0; i < kTokens * kModel; i++) x[i] = static_cast<float>(normal(stream_of("x"), static_cast<u64>(i)));

  kernels::Team team(1);
  kernels::Context context{team};
  executor.bind(symbols);
  executor.run(context);
  const auto* result = executor.output("result").as<float>();
  return {result, result + kTokens * kModel};
}

std::vector<std::vector<float>> run_all(const std::shared_ptr<const ShardedGraph>& sharded) {
  std::vector<std::vector<float>> results(static_cast<size_t>(sharded->plan.world()));
  comm::run_ranks(sharded->plan.world(), [&](comm::Communicator& c) {
    results[static_cast<size_t>(c.rank())] = run_rank(sharded, c.rank(), &c);
  });
  return results;
}

}  // namespace

int main() {
  const Plan one, two{.axes = {{.name = "tp", .size = 2, .dims = "F"}}};
  auto sharded = std::make_shared<const ShardedGraph>(propagate(build(), two));
  // A ShardedGraph's text begins with its plan and graph, a Program's ends with its sharded graph: shown once here.
  std::printf("---- Graph\n%s\n", sharded->graph.text().c_str());
  const std::string laid = sharded->text();
  std::printf("---- ShardedGraph\n%s\n", laid.substr(laid.find("== steps\n") + 9).c_str());
  for (i64 rank = 0; rank < two.mesh().world(); rank++) {
    const std::string calls = partition(sharded, rank).text();
    std::printf("---- Program of rank %d\n%s\n", static_cast<int>(rank), calls.substr(0, calls.find("of\n")).c_str());
  }

  const auto alone = run_all(std::make_shared<const ShardedGraph>(propagate(build(), one)))[0];
  const auto together = run_all(sharded);
  bool same = true;
  for (auto& r : together) same &= std::memcmp(r.data(), alone.data(), alone.size() * sizeof(float)) == 0;
  std::printf("result[0][0..3] = %.9g %.9g %.9g %.9g\n", alone[0], alone[1], alone[2], alone[3]);
  std::printf("two ranks and one rank: %s\n", same ? "the same bits" : "they DIFFER");
  return same ? 0 : 1;
}
