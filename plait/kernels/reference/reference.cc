#include "plait/kernels/reference/reference.h"

namespace plait::kernels {

namespace {

using Table = std::map<std::string, std::vector<Kernel>, std::less<>>;

template <class R>
Table make_table() {
  Table table;
  for (auto family : {reference::product_kernels<R>, reference::elementwise_kernels<R>, reference::norm_kernels<R>,
                      reference::head_norm_kernels<R>, reference::row_kernels<R>, reference::rope_kernels<R>,
                      reference::attention_kernels<R>, reference::cross_entropy_kernels<R>})
    for (const Kernel& k : family()) table[k.op].push_back(k);
  return table;
}

}  // namespace

std::span<const Kernel> reference_kernels(std::string_view op, DType real) {
  static const Table f32 = make_table<float>(), f64 = make_table<double>();
  PLAIT_CHECK(real == DType::f32 || real == DType::f64, "references are f32 or f64, not {}", name_of(real));
  const Table& table = real == DType::f32 ? f32 : f64;
  auto i = table.find(op);
  return i == table.end() ? std::span<const Kernel>{} : std::span<const Kernel>(i->second);
}

}  // namespace plait::kernels
