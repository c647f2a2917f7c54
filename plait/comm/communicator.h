// Collectives over a group of ranks, as in MPI: every call is `start` + `wait`.
//
// Sums of integers give the same bits in any order; sums of f32, f64 and bf16 (summed in f32, rounded once) are made in
// rank order. `one` takes the owner's bits: of the contributions exactly one is non-zero (all bytes zero elsewhere, so
// the join is a bitwise or: -0 stays -0). Nothing but communication buffers is shared and no pointer crosses ranks.
//   errors  every wait has a deadline and sees failed peers; it then throws Error(rank_lost) that names the peer, and
//           the communicator is poisoned: every later call throws at once. The message names who is in which operation.
#pragma once
#include <span>

#include "plait/tensor/dtype.h"

namespace plait::comm {

enum class Join : std::uint8_t { sum, max, one };

/// Numbers a started operation; valid until waited for. Operations of a communicator are waited for in order of start.
struct Request {
  i64 id = -1;
};

/// What this rank did on its communicators since the last reset: for `bench` and `--json`.
struct Counters {
  i64 operations = 0, bytes = 0;  // payload handed in
  double wait_s = 0, copy_s = 0;  // waiting for peers; copying and adding (of payloads worth timing)
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual i64 rank() const = 0;
  virtual i64 size() const = 0;

  // Buffers belong to the caller and are left alone between start and wait; `in` may equal `out`. `count(s)` in
  // elements. `what` names the operation in errors (a static or otherwise long-lived string).
  virtual Request start_all_reduce(const void* in, void* out, i64 count, DType t, Join join, const char* what) = 0;
  /// counts[r] elements end on rank r; in holds all of them in rank order.
  virtual Request start_reduce_scatter(const void* in, void* out, std::span<const i64> counts, DType t, Join join,
                                       const char* what) = 0;
  /// in holds counts[rank()], out all of them in rank order.
  virtual Request start_all_gather(const void* in, void* out, std::span<const i64> counts, DType t,
                                   const char* what) = 0;
  /// sends[r] elements go to rank r, receives[r] come from it; both sides packed in rank order.
  virtual Request start_all_to_all(const void* in, std::span<const i64> sends, void* out, std::span<const i64> receives,
                                   DType t, const char* what) = 0;
  virtual Request start_broadcast(void* data, i64 count, DType t, i64 root, const char* what) = 0;
  virtual Request start_send(const void* data, i64 bytes, i64 to, const char* what) = 0;
  virtual Request start_recv(void* data, i64 bytes, i64 from, const char* what) = 0;
  virtual void wait(Request r) = 0;
  virtual void barrier(const char* what) = 0;

  /// Where a kernel may write this rank's contribution to the NEXT operation, `in` of which is then this pointer and is
  /// not copied; nullptr when there is no such place now. Valid until that start; out must not lie in it.
  virtual void* staging(i64 bytes) {
    (void)bytes;
    return nullptr;
  }

  /// Bytes of this rank's part of the communication buffers.
  virtual i64 buffer_bytes() const = 0;
  virtual Counters counters() const = 0;
  virtual void reset_counters() = 0;
};

}  // namespace plait::comm
