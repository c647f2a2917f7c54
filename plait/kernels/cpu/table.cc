// The kernels of each op, in order of preference: the executor takes the first whose prepare does not decline.
#include "plait/kernels/kernel.h"

#if __has_include("plait/kernels/cpu/matmul.h")
#include "plait/kernels/cpu/matmul.h"
#else
namespace plait::kernels {
inline std::span<const Kernel> matmul_kernels() { return {}; }
}  // namespace plait::kernels
#endif

namespace plait::kernels {

namespace {

using Table = std::map<std::string, std::vector<Kernel>, std::less<>>;

Table make_table() {
  Table table;
  for (const Kernel& k : matmul_kernels()) table[k.op].push_back(k);
  return table;
}

}  // namespace

std::span<const Kernel> cpu_kernels(std::string_view op) {
  static const Table table = make_table();
  auto i = table.find(op);
  return i == table.end() ? std::span<const Kernel>{} : std::span<const Kernel>(i->second);
}

}  // namespace plait::kernels
