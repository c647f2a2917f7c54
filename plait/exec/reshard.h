// One reshard bound to sizes, as this rank runs it: a recognised collective where the ranges allow it, else a general
// exchange of boxes. All ranks of the group come to the same method from the same ranges.
#pragma once
#include <memory>

#include "plait/comm/communicator.h"
#include "plait/graph/graph.h"
#include "plait/placement/placement.h"
#include "plait/tensor/tensor.h"

namespace plait {

class Reshard {
 public:
  /// local: nothing crosses ranks. all_reduce: same box everywhere. reduce_scatter, all_gather: disjoint slices of one
  /// box. exchange: pieces to whoever needs them, joined there.
  enum class Method : std::uint8_t { local, all_reduce, reduce_scatter, all_gather, exchange };

  struct Shape {  // of the value
    std::string dims;
    Type type;
    DType dtype;
    DType wire;  // = dtype, or bf16 for f32 sums under --reduce bf16
  };
  /// comm: of the ranks along `axes_moved(have, want)`; may be null when that is this rank alone.
  Reshard(const Binding& b, const Placement& have, const Placement& want, Shape shape, i64 rank,
          comm::Communicator* comm, const char* what);

  /// Sums that lie one after the other, joined where they lie: `elements` from in.data (= out.data) on.
  Reshard(i64 elements, DType dtype, comm::Communicator* comm, const char* what);

  void start(const View& in, const View& out);
  void wait();

  Method method() const { return method_; }
  /// Elements that this rank hands to the collective.
  i64 payload() const { return payload_; }
  /// Seconds that this rank has waited on the reshard's communicator so far.
  double waited_s() const { return comm_ == nullptr ? 0 : comm_->counters().wait_s; }
  i64 scratch_bytes() const { return send_.bytes() + receive_.bytes(); }

 private:
  struct Piece {
    i64 rank;  // in the group
    Box box;
    bool first;  // of the pieces joined into its move
  };
  void pack(const View& in, const std::vector<Piece>& pieces);
  void unpack(const View& out);
  void join_local();

  Shape shape_;
  comm::Communicator* comm_;
  const char* what_;
  Method method_ = Method::local;
  comm::Join join_ = comm::Join::sum;
  bool joins_ = false;
  bool clear_ = false;  // not every element of the result comes from somebody
  i64 payload_ = 0;
  i64 me_ = 0;                           // in the group
  std::vector<Piece> sends_, receives_;  // in rank order
  std::vector<i64> send_counts_, receive_counts_;
  bool in_place_in_ = false, in_place_out_ = false;  // the packed form is the tensor itself
  Buffer send_, receive_;
  View in_, out_;
  comm::Request request_;
};

const char* name_of(Reshard::Method m);

/// Copies a box from one row-major tensor to another, element types equal.
void copy_box(const View& from, const View& to, const Box& part);

}  // namespace plait
