#include "plait/exec/reshard.h"

#include <algorithm>
#include <cstring>

namespace plait {

namespace {

i64 width(DType t) { return bytes_of(t, 1); }

/// f(from bytes, to bytes, elements) for runs that are contiguous in both.
template <class F>
void for_each_run(const View& a, const View& b, const Box& part, F f) {
  if (volume(part) == 0) return;
  PLAIT_CHECK(a.layout == Layout::rows && b.layout == Layout::rows, "only row-major values are resharded");
  const size_t dims = part.size();
  size_t outer = dims;  // trailing dims that are whole in both run together
  i64 run = 1;
  while (outer > 0) {
    size_t d = outer - 1;
    run *= part[d].size();
    outer = d;
    if (!(part[d] == a.box[d] && part[d] == b.box[d])) break;
  }
  std::vector<i64> x;
  for (auto r : part) x.push_back(r.begin);
  for (;;) {
    f(static_cast<std::byte*>(a.data) + a.at(x) * width(a.dtype),
      static_cast<std::byte*>(b.data) + b.at(x) * width(b.dtype), run);
    size_t d = outer;
    for (; d > 0; d--) {
      if (++x[d - 1] < part[d - 1].end) break;
      x[d - 1] = part[d - 1].begin;
    }
    if (d == 0) return;
  }
}

template <class T>
void join(const std::byte* from, std::byte* to, i64 n, comm::Join j) {
  auto* x = reinterpret_cast<const T*>(from);
  auto* y = reinterpret_cast<T*>(to);
  if (j == comm::Join::sum)
    for (i64 i = 0; i < n; i++) y[i] = static_cast<T>(y[i] + x[i]);
  else
    for (i64 i = 0; i < n; i++) y[i] = std::max(y[i], x[i]);
}

void join_run(DType t, const std::byte* from, std::byte* to, i64 n, comm::Join j) {
  if (j == comm::Join::one) {
    for (i64 i = 0; i < n * width(t); i++) to[i] |= from[i];
    return;
  }
  switch (t) {
    case DType::f32:
      return join<float>(from, to, n, j);
    case DType::f64:
      return join<double>(from, to, n, j);
    case DType::i32:
      return join<std::int32_t>(from, to, n, j);
    case DType::i64:
      return join<i64>(from, to, n, j);
    case DType::i128:
      return join<i128>(from, to, n, j);
    default:
      PLAIT_CHECK(false, "no join of {}", name_of(t));
  }
}

/// Narrow elements into f32: stored, or added to what is there.
void unpack_wire(DType wire, const std::byte* from, float* to, i64 n, bool store) {
  float part[256];
  for (i64 i = 0; i < n; i += 256) {
    i64 m = std::min<i64>(256, n - i);
    to_f32(wire, from + i * width(wire), part, m);
    for (i64 k = 0; k < m; k++) to[i + k] = store ? part[k] : to[i + k] + part[k];
  }
}

}  // namespace

const char* name_of(Reshard::Method m) {
  constexpr const char* kNames[] = {"local", "all_reduce", "reduce_scatter", "all_gather", "exchange"};
  return kNames[static_cast<int>(m)];
}

void copy_box(const View& from, const View& to, const Box& part) {
  for_each_run(from, to, part, [&](const std::byte* a, std::byte* b, i64 n) {
    std::memcpy(b, a, static_cast<size_t>(n * width(from.dtype)));
  });
}

Reshard::Reshard(const Binding& b, const Placement& have, const Placement& want, Shape shape, i64 rank,
                 comm::Communicator* comm, const char* what)
    : shape_(std::move(shape)), comm_(comm), what_(what) {
  const auto group = b.mesh().group(rank, axes_moved(have, want));
  const size_t n = group.size();
  for (size_t a = 0; a < have.size(); a++)
    if (have[a].join != Joined::copy && have[a].join != want[a].join) {
      joins_ = true;
      join_ = have[a].join == Joined::sum   ? comm::Join::sum
              : have[a].join == Joined::max ? comm::Join::max
                                            : comm::Join::one;
    }
  std::vector<Box> has, wants;
  std::vector<std::vector<Move>> moves;
  for (size_t r = 0; r < n; r++) {
    if (group[r] == rank) me_ = static_cast<i64>(r);
    has.push_back(b.box(have, shape_.dims, group[r]));
    wants.push_back(b.box(want, shape_.dims, group[r]));
    moves.push_back(reshard(b, have, want, shape_.dims, group[r]));
    for (auto& m : moves.back())
      for (i64& f : m.from) {
        auto it = std::lower_bound(group.begin(), group.end(), f);
        PLAIT_CHECK(it != group.end() && *it == f, "a reshard reads outside its group");
        f = it - group.begin();
      }
  }
  // What every rank gets: from itself alone, from all at once, or one piece from one.
  bool local = true, reduce = joins_, same_have = true, same_want = true, single = true, whole_pieces = true;
  for (size_t r = 0; r < n; r++) {
    same_have &= has[r] == has[0];
    same_want &= wants[r] == wants[0];
    for (auto& m : moves[r]) {
      local &= m.from.size() == 1 && m.from[0] == static_cast<i64>(r);
      reduce &= m.from.size() == n;
      single &= m.from.size() == 1;
      for (i64 f : m.from) whole_pieces &= m.into == has[static_cast<size_t>(f)];
    }
    reduce &= moves[r].size() <= 1 && (volume(wants[r]) == 0 || (moves[r].size() == 1 && moves[r][0].into == wants[r]));
  }
  i64 scattered = 0;
  for (auto& w : wants) scattered += volume(w);
  i64 gathered = 0;
  for (auto& h : has) gathered += volume(h);
  const i64 have_volume = volume(has[static_cast<size_t>(me_)]);
  if (local)
    method_ = Method::local;
  else if (reduce && same_have && same_want && wants[0] == has[0])
    method_ = Method::all_reduce;
  else if (reduce && same_have && scattered == volume(has[0]))
    method_ = Method::reduce_scatter;
  else if (single && whole_pieces && same_want && !joins_ && gathered == volume(wants[0]))
    method_ = Method::all_gather;
  else
    method_ = Method::exchange;
  PLAIT_CHECK(method_ == Method::local || comm_ != nullptr, "{} of {} has no communicator", name_of(method_), what_);

  const auto me = static_cast<size_t>(me_);
  send_counts_.assign(n, 0);
  receive_counts_.assign(n, 0);
  auto send = [&](size_t to, const Box& box) {
    sends_.push_back({static_cast<i64>(to), box, false});
    send_counts_[to] += volume(box);
  };
  auto receive = [&](size_t from, const Box& box, bool first) {
    receives_.push_back({static_cast<i64>(from), box, first});
    receive_counts_[from] += volume(box);
  };
  switch (method_) {
    case Method::local:
      for (auto& m : moves[me]) receive(me, m.into, true);
      return;
    case Method::all_reduce:
      send(me, has[me]);
      receive(me, wants[me], true);
      break;
    case Method::reduce_scatter:
      for (size_t r = 0; r < n; r++) send(r, wants[r]);
      receive(me, wants[me], true);
      break;
    case Method::all_gather:
      send(me, has[me]);
      for (size_t r = 0; r < n; r++) receive(r, has[r], true);
      break;
    case Method::exchange: {
      i64 covered = 0;  // what nobody gives me of a sum is zero
      for (auto& m : moves[me]) covered += volume(m.into);
      clear_ = joins_ || covered < volume(wants[me]);
      for (size_t to = 0; to < n; to++)
        for (auto& m : moves[to])
          for (i64 f : m.from) {
            Box piece = m.into & has[static_cast<size_t>(f)];
            if (f == me_) send(to, piece);
            if (to == me) receive(static_cast<size_t>(f), piece, f == m.from[0]);
          }
      // Packed by rank: sends are already in order of `to`; receives come in order of moves, joined in that order.
      break;
    }
  }
  for (auto& p : sends_) payload_ += volume(p.box);
  i64 received = 0;
  for (auto& p : receives_) received += volume(p.box);
  // The tensor itself is the packed form when its one piece is all of it, or pieces are whole outer slices in order.
  const bool plain = shape_.wire == shape_.dtype;
  auto outer_slices = [&](const std::vector<Piece>& pieces, const Box& whole) {
    i64 at = 0;
    for (auto& p : pieces) {
      if (volume(p.box) == 0) continue;
      size_t d = 0;
      while (d < whole.size() && whole[d].size() == 1) d++;
      for (size_t i = d + 1; i < whole.size(); i++)
        if (!(p.box[i] == whole[i])) return false;
      View v{nullptr, shape_.dtype, Layout::rows, whole};
      std::vector<i64> x;
      for (auto r : p.box) x.push_back(r.begin);
      if (v.at(x) != at) return false;
      at += volume(p.box);
    }
    return at == volume(whole);
  };
  in_place_in_ = plain && have_volume == payload_ && outer_slices(sends_, has[me]);
  in_place_out_ =
      plain && method_ != Method::exchange && received == volume(wants[me]) && outer_slices(receives_, wants[me]);
  if (!in_place_in_) send_ = Buffer(payload_ * width(shape_.wire));
  if (!in_place_out_) receive_ = Buffer(received * width(shape_.wire));
}

Reshard::Reshard(i64 elements, DType dtype, comm::Communicator* comm, const char* what)
    : shape_{"", Type::sum, dtype, dtype},
      comm_(comm),
      what_(what),
      method_(Method::all_reduce),
      payload_(elements),
      in_place_in_(true),
      in_place_out_(true) {
  PLAIT_CHECK(comm_ != nullptr, "a bucket from {} on has no communicator", what_);
}

void Reshard::pack(const View& in, const std::vector<Piece>& pieces) {
  std::byte* to = send_.data();
  for (auto& p : pieces)
    for_each_run(in, in, p.box, [&](const std::byte* a, const std::byte*, i64 n) {
      if (shape_.wire == shape_.dtype)
        std::memcpy(to, a, static_cast<size_t>(n * width(in.dtype)));
      else
        from_f32(shape_.wire, reinterpret_cast<const float*>(a), to, n);
      to += n * width(shape_.wire);
    });
}

void Reshard::start(const View& in, const View& out) {
  in_ = in;
  out_ = out;
  if (method_ == Method::local) return join_local();
  if (!in_place_in_) pack(in, sends_);
  const void* from = in_place_in_ ? in.data : send_.data();
  void* to = in_place_out_ ? out.data : receive_.data();
  switch (method_) {
    case Method::all_reduce:
      request_ = comm_->start_all_reduce(from, to, payload_, shape_.wire, join_, what_);
      break;
    case Method::reduce_scatter:
      request_ = comm_->start_reduce_scatter(from, to, send_counts_, shape_.wire, join_, what_);
      break;
    case Method::all_gather:
      request_ = comm_->start_all_gather(from, to, receive_counts_, shape_.wire, what_);
      break;
    case Method::exchange:
      request_ = comm_->start_all_to_all(from, send_counts_, to, receive_counts_, shape_.wire, what_);
      break;
    case Method::local:
      break;
  }
}

void Reshard::wait() {
  if (method_ == Method::local) return;
  comm_->wait(request_);
  if (!in_place_out_) unpack(out_);
}

void Reshard::unpack(const View& out) {
  if (clear_ && out.elements() > 0) std::memset(out.data, 0, static_cast<size_t>(out.elements() * width(out.dtype)));
  std::vector<const std::byte*> next(receive_counts_.size());
  const std::byte* at = receive_.data();
  for (size_t r = 0; r < next.size(); r++) {
    next[r] = at;
    at += receive_counts_[r] * width(shape_.wire);
  }
  for (auto& p : receives_) {
    const std::byte*& from = next[static_cast<size_t>(p.rank)];
    for_each_run(out, out, p.box, [&](const std::byte*, std::byte* to, i64 n) {
      if (shape_.wire != shape_.dtype)
        unpack_wire(shape_.wire, from, reinterpret_cast<float*>(to), n, p.first || !joins_);
      else if (p.first || !joins_)
        std::memcpy(to, from, static_cast<size_t>(n * width(out.dtype)));
      else
        join_run(out.dtype, from, to, n, join_);
      from += n * width(shape_.wire);
    });
  }
}

/// Slices and "owner keeps": what is not mine to give is zero.
void Reshard::join_local() {
  i64 covered = 0;
  for (auto& p : receives_) covered += volume(p.box);
  if (covered < out_.elements()) std::memset(out_.data, 0, static_cast<size_t>(out_.elements() * width(out_.dtype)));
  for (auto& p : receives_) copy_box(in_, out_, p.box);
}

}  // namespace plait
