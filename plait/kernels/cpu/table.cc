// The kernels of each op, in order of preference: the executor takes the first whose prepare does not decline.
#include "plait/kernels/cpu/matmul.h"
#include "plait/kernels/cpu/ops.h"
#include "plait/kernels/kernel.h"

namespace plait::kernels {

namespace {

/// A preparation for the chosen instruction set.
template <Result<Run> (*Prepare)(const Args&, Isa)>
Result<Run> chosen(const Args& a) {
  return Prepare(a, isa());
}

constexpr Kernel kTable[] = {
    {"add", "elementwise", chosen<prepare_elementwise>},
    {"attention_paged", "blocks of positions", chosen<prepare_attention_paged>},
    {"bias", "elementwise", chosen<prepare_elementwise>},
    {"cast", "elementwise", chosen<prepare_elementwise>},
    {"embedding", "rows", chosen<prepare_embedding>},
    {"finish", "elementwise", chosen<prepare_elementwise>},
    {"gelu", "elementwise", chosen<prepare_elementwise>},
    {"gelu_mul", "elementwise", chosen<prepare_elementwise>},
    {"head_rms_norm", "rows", chosen<prepare_head_norm>},
    {"kv_write", "rows", chosen<prepare_kv_write>},
    {"layer_norm", "rows", chosen<prepare_norm>},
    {"read", "copy", chosen<prepare_elementwise>},
    {"rms_norm", "rows", chosen<prepare_norm>},
    {"rope", "rows", chosen<prepare_rope>},
    {"scale", "elementwise", chosen<prepare_elementwise>},
    {"silu_mul", "elementwise", chosen<prepare_elementwise>},
    {"take_rows", "rows", chosen<prepare_take_rows>},
};

using Table = std::map<std::string, std::vector<Kernel>, std::less<>>;

Table make_table() {
  Table table;
  for (const Kernel& k : matmul_kernels()) table[k.op].push_back(k);
  for (const Kernel& k : kTable) table[k.op].push_back(k);
  return table;
}

}  // namespace

std::span<const Kernel> cpu_kernels(std::string_view op) {
  static const Table table = make_table();
  auto i = table.find(op);
  return i == table.end() ? std::span<const Kernel>{} : std::span<const Kernel>(i->second);
}

}  // namespace plait::kernels
