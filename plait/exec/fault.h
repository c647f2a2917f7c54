// A fault put into one rank on purpose, for tests of what happens then.
//
//   rank:where:what     1:decode:3:wo:kill    0:all_reduce:hang    1:load:throw    1:step:2:slow
//
// where: a phase (load, prefill, decode, decode:3 for its third step; of training load, step, step:2), a name, or both.
// A name is an op (matmul), a label with or without its layer (layers.3.wo, wo), a collective (all_reduce: when this
// rank has published its part and waits), or what a caller does beside its programs (sample). The first place that fits
// has the fault; what is slow is so at every place (1 ms at each, or 0.1 ms at every kernel of a phase).
#pragma once
#include <initializer_list>
#include <string>
#include <vector>

#include "plait/exec/program.h"

namespace plait {

struct Fault {
  enum class Kind { throws, hang, exit, kill, slow };
  i64 rank = 0;
  std::string phase, name;  // one may be empty; phase "training" for a step of it
  i64 step = 0;             // of the phase; 0: any
  Kind kind = Kind::throws;
  /// errors  usage: no such rank or phase; a rank that is a thread cannot exit or be killed by itself
  void check(i64 ranks, bool processes, std::initializer_list<std::string_view> phases) const;
};
/// errors  usage
Fault parse_fault(const std::string& text);

/// The fault in its rank.
class FaultInjector {
 public:
  /// programs: that the rank runs; beside: the name of what it does beside them.
  ///   errors  usage: nothing has that name
  FaultInjector(Fault fault, std::initializer_list<const Program*> programs, std::string_view beside = {});
  /// The rank enters a phase, or the next step of it.
  void enter(std::string_view phase, i64 step);
  /// The rank is about to do a call of a program, or something beside it.
  void before_call(size_t program, size_t call);
  void before(std::string_view name);

 private:
  void strike(std::string_view where);
  Fault fault_;
  bool here_ = false;                    // in the phase and step
  std::vector<std::vector<bool>> hits_;  // by program and call
};

}  // namespace plait
