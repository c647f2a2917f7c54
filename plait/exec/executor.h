// A Program with its memory, as one rank runs it: states, inputs, an arena planned at the bounds, and for each binding
// of the symbols (T, R) a list of prepared calls. Running a bound program allocates nothing.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "plait/comm/communicator.h"
#include "plait/exec/cost.h"
#include "plait/exec/program.h"
#include "plait/exec/reshard.h"
#include "plait/kernels/kernel.h"

namespace plait {

struct Fusion;

/// Bound sizes of the symbols, with the edges that data gives (sequence starts of T).
struct Symbols {
  std::map<char, i64> size;
  std::vector<i64> token_edges, sequence_edges;  // of T, where a plan cuts it; empty: one leaf, one sequence
  bool operator<(const Symbols& o) const {
    return std::tie(size, token_edges, sequence_edges) < std::tie(o.size, o.token_edges, o.sequence_edges);
  }
};
Sizes bound_sizes(const Graph& g, const Symbols& s);

struct ExecutorOptions {
  bool reference = false;       // only reference kernels, everything row-major
  DType sum_wire = DType::i64;  // bf16: sums travel narrow (needs f32 sums)
  bool fuse = true;             // runs of calls by fused kernels (fusion.h), unless values are watched
};

/// Communicators by the axes along which their ranks differ; may return null for a rank alone.
using FindCommunicator = std::function<comm::Communicator*(const std::vector<bool>& along)>;
/// All axis sets along which the reshards of a sharded graph move something, each once.
std::vector<std::vector<bool>> communicating_axes(const ShardedGraph& s);

/// How a state lies in a rank's memory.
struct StateShape {
  DType dtype;
  Layout layout = Layout::rows;
  Box box;
  i64 n = 0, k = 0;  // of panels
  i64 bytes = 0;
};

/// Shapes of the states of a sharded graph; which op reads each is looked up once. Keeps a reference to the graph.
class StateShapes {
 public:
  StateShapes(const ShardedGraph& s, const ExecutorOptions& o);
  StateShape of(const std::string& name, i64 rank) const;

 private:
  struct Use {
    bool product = false, panels = true, keys = false;
    std::vector<bool> row_dims;  // of a product's weight: which dims are outputs
  };
  const ShardedGraph& s_;
  Sizes sizes_;
  Binding binding_;
  std::map<ValueId, Use> uses_;
};

/// Bytes of every value's part on a rank, at given symbols.
std::vector<i64> value_bytes(const ShardedGraph& s, const Binding& b, i64 rank);

/// Where temporaries lie in the arena: an offset for each value (-1: not there). Planned for the largest part that any
/// of the bounds gives: where data cuts T, the longest batch need not be the one that gives this rank most.
struct Arena {
  std::vector<i64> offset, value_bytes;
  i64 bytes = 0;
};
Arena plan_arena(const Program& p, std::span<const Symbols> bounds);

/// A rank's states, which programs that work on the same ones share (micro and update).
class States {
 public:
  /// The state of that name, made with this shape if it is new; one of another shape is our bug.
  const View& at(const std::string& name, const StateShape& shape);
  const View& at(const std::string& name) const;
  /// Makes these in one piece of memory, one after the other: weights, so that small ones share huge pages, and the
  /// sums of a bucket, which travel as one.
  void make_together(const std::vector<std::pair<std::string, StateShape>>& states);
  i64 bytes() const { return bytes_; }

 private:
  void add(const std::string& name, const StateShape& shape, void* data);
  std::map<std::string, View> states_;
  std::vector<Buffer> memory_;
  i64 bytes_ = 0;
};

struct Profile {
  double kernel_s = 0, comm_s = 0;  // comm: everything from start to wait, waiting included
  i64 runs = 0;
};

/// A call that ran, or calls that one fused kernel did in one go.
struct CallEvent {
  size_t item = 0;                // of Executor::items()
  double begin_s = 0, end_s = 0;  // on the steady clock, which all processes of a machine share
  double wait_s = 0;              // of that, waiting for peers
};

/// What an executor did, run by run.
struct Recording {
  struct Run {
    Symbols symbols;
    size_t first = 0;  // of its events
  };
  std::vector<Run> runs;
  std::vector<CallEvent> events;
};

class Executor {
 public:
  /// states: shared with other executors of this rank, of which the one with buckets comes first; null: of its own
  Executor(Program program, std::vector<Symbols> bounds, ExecutorOptions options, FindCommunicator find,
           std::shared_ptr<States> states = nullptr);
  ~Executor();
  const Program& program() const { return program_; }

  const View& state(const std::string& name) const;
  /// Row-major memory of an input at the bounds; fill the first elements before a run.
  template <class T>
  T* input(const std::string& name) const {
    return static_cast<T*>(input_data(name));
  }

  /// Selects the calls for these symbols, preparing them when they are new. Error(does_not_fit) beyond the bounds.
  void bind(const Symbols& s);
  /// An input as the symbols that are bound now have it: this rank's part.
  const View& input_part(const std::string& name) const;
  void run(kernels::Context& context);

  /// A value of the last run, by its label; valid until the next run. Only what the host reads is sure to be there.
  const View& output(const std::string& label) const;

  /// Called after each call with every value it made (for `verify`); null: not at all.
  using Watch = std::function<void(const Call&, ValueId, const View&)>;
  void watch(Watch w) { watch_ = std::move(w); }

  /// What runs, in order, as bound now.
  struct Item {
    size_t first = 0, count = 1;  // calls of the program
    std::string kernel;           // that was chosen; empty: nothing is done
    const Fusion* fusion = nullptr;
  };
  std::vector<Item> items() const;
  Work work(const Item& item, const Attended& attended) const;
  /// Appends every run from now on; null: none (nothing is measured for it then).
  void record(Recording* recording) { recording_ = recording; }

  /// Called before each call of the program with its number (for faults); null: not at all.
  void before_calls(std::function<void(size_t)> f) { before_call_ = std::move(f); }

  i64 arena_bytes() const { return arena_.bytes; }
  i64 state_bytes() const { return states_->bytes(); }
  const Profile& profile() const { return profile_; }
  void reset_profile();
  /// Calls of a run as bound now: kernels (a fused one counts once), starts and waits.
  i64 calls() const;
  /// Which kernel each call took; fused ones with the calls that they stand for.
  std::string kernels_text() const;

 private:
  struct Bound;
  void* input_data(const std::string& name) const;
  std::unique_ptr<Bound> prepare(const Symbols& s);
  View view(ValueId v, const Binding& b) const;
  std::unique_ptr<Reshard> prepare_bucket(const Call& c, std::vector<View>& views) const;
  void prepare_fused(Bound& bound, const std::vector<kernels::Args>& args) const;
  bool fuses() const { return options_.fuse && !options_.reference && !watch_; }

  Program program_;
  std::vector<Symbols> bounds_;
  ExecutorOptions options_;
  FindCommunicator find_;
  Arena arena_;
  Buffer memory_;
  std::shared_ptr<States> states_;
  std::map<std::string, Buffer> inputs_;
  std::map<Symbols, std::unique_ptr<Bound>> bound_;
  Bound* now_ = nullptr;
  const Symbols* symbols_ = nullptr;  // of now_
  Watch watch_;
  std::function<void(size_t)> before_call_;
  Recording* recording_ = nullptr;
  Profile profile_;
};

}  // namespace plait
