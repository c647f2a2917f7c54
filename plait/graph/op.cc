#include "plait/graph/op.h"

namespace plait {

namespace {
std::map<std::string, Op>& table() {
  static std::map<std::string, Op> ops;
  return ops;
}
}  // namespace

const char* name_of(Type t) {
  constexpr const char* kNames[] = {"num", "index", "sum", "max"};
  return kNames[static_cast<int>(t)];
}

const char* name_of(Class c) {
  constexpr const char* kNames[] = {"forward", "loss", "dgrad", "wgrad", "norm"};
  return kNames[static_cast<int>(c)];
}

int exponent(Class c) {
  constexpr int kExponent[] = {40, 40, 44, 36, 0};  // docs/numerics.md
  return kExponent[static_cast<int>(c)];
}

Registry::Registry(Op op) {
  PLAIT_CHECK(op.out.size() == op.elem.size() || op.elem.size() == 1, "op {}: types and element types", op.name);
  op.elem.resize(op.out.size(), op.elem[0]);
  bool fresh = table().emplace(op.name, op).second;
  PLAIT_CHECK(fresh, "op {} is registered twice", op.name);
}

const Op& Registry::find(const std::string& name) {
  auto it = table().find(name);
  if (it == table().end()) {
    std::string known;
    for (auto& [n, op] : table()) known += (known.empty() ? "" : " ") + n;
    fail(Code::bad_file, "no op '{}'; known: {}", name, known);
  }
  return it->second;
}

const std::map<std::string, Op>& Registry::all() { return table(); }

}  // namespace plait
