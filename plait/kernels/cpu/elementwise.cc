// add, bias ("t f, f -> t f" and the like), finish (exact sum or number -> number), cast, gelu, gelu_mul,
// silu_mul, scale (attribute by), read (a copy). Results are f32, or bf16 rounded once; `read` keeps its type.
#include "plait/kernels/cpu/functions.h"
#include "plait/kernels/cpu/ops.h"
#include "plait/kernels/cpu/rows.h"

namespace plait::kernels {

namespace {

struct Choice {
  const char* op;
  Map map;
  size_t operands;
};
constexpr Choice kChoices[] = {{"add", Map::add, 2},           {"bias", Map::add, 2},          {"cast", Map::copy, 1},
                               {"gelu", Map::gelu, 1},         {"silu_mul", Map::silu_mul, 2}, {"finish", Map::copy, 1},
                               {"gelu_mul", Map::gelu_mul, 2}, {"scale", Map::scale, 1}};

Result<Run> prepare_copy(const Args& a) {
  if (a.in.size() != 1 || a.in[0].dtype != a.out[0].dtype) return Result<Run>::no("a copy with another type");
  auto w = walk_of(a);
  if (!w) return Result<Run>::no(w.why());
  return Run([w = *w](Context& c) {
    w.run(c, [&](std::byte* out, std::byte* in, std::byte*, i64 n) {
      std::memcpy(out, in, static_cast<size_t>(n * w.operand[0].bytes));
    });
  });
}

}  // namespace

Result<Run> prepare_elementwise(const Args& a, Isa isa) {
  PLAIT_CHECK(a.out.size() == 1, "{}: {} outputs", a.op, a.out.size());
  if (a.op == "read") return prepare_copy(a);
  const Choice* choice = nullptr;
  for (const Choice& c : kChoices)
    if (a.op == c.op) choice = &c;
  if (choice == nullptr || a.in.size() != choice->operands) return Result<Run>::no("not one of these ops");
  if (!is_real(a.out[0].dtype)) return Result<Run>::no(fmt::format("a result of {}", name_of(a.out[0].dtype)));
  Map map = choice->map;
  float c = 1;
  if (a.op == "finish" && a.in[0].dtype == DType::i64) {
    PLAIT_CHECK(a.exponent > -100 && a.exponent < 120, "{}: exponent {}", a.op, a.exponent);
    map = Map::finish;
    c = std::bit_cast<float>(static_cast<std::uint32_t>(127 - a.exponent) << 23);
  } else {
    for (const View& v : a.in)
      if (v.dtype != DType::f32) return Result<Run>::no(fmt::format("an operand of {}", name_of(v.dtype)));
  }
  if (map == Map::scale) c = static_cast<float>(a.attr("by"));
  auto w = walk_of(a);
  if (!w) return Result<Run>::no(w.why());
  MapFn f = functions(isa).map[static_cast<size_t>(map)][type_index(a.out[0].dtype)];
  return Run([w = *w, f, c](Context& x) {
    w.run(x, [&](std::byte* out, std::byte* p, std::byte* q, i64 n) { f(p, q, out, n, c); });
  });
}

}  // namespace plait::kernels
