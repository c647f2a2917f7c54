// A fault put into one rank on purpose, for tests of what happens then.
//
//   rank:where:what     1:decode:3:wo:kill    0:all_reduce:hang    1:load:throw    1:mlp:slow
//
// where: a phase (load, prefill, decode, decode:3 for its third step), a name, or both. A name is an op (matmul), a
// label with or without its layer (layers.3.wo, wo), a collective (all_reduce: when this rank has published its part
// and waits), or sample. The first place that fits has the fault; what is slow is so at every place (1 ms at each, or
// 0.1 ms at every kernel of a phase).
#pragma once
#include <string>
#include <vector>

#include "plait/exec/program.h"

namespace plait::serve {

struct Fault {
  enum class Kind { throws, hang, exit, kill, slow };
  i64 rank = 0;
  std::string phase, name;  // one may be empty
  i64 step = 0;             // of the phase; 0: any
  Kind kind = Kind::throws;
  /// Whether only a rank that is a process of its own can have it.
  bool needs_process() const { return kind == Kind::exit || kind == Kind::kill; }
};
/// errors  usage
Fault parse_fault(const std::string& text);

/// The fault in its rank.
class FaultInjector {
 public:
  /// errors  usage: nothing in the program has that name
  FaultInjector(Fault fault, const Program& program);
  /// The rank enters a phase, or the next step of it.
  void enter(std::string_view phase, i64 step);
  /// The rank is about to do a call of the program, or something beside it.
  void before_call(size_t call);
  void before(std::string_view name);

 private:
  void strike(std::string_view where);
  Fault fault_;
  bool here_ = false;       // in the phase and step
  std::vector<bool> hits_;  // by call
};

}  // namespace plait::serve
