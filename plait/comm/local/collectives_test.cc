// Every collective, against plain computing: types, sizes, group sizes, uneven counts, more than a slot, two in flight.
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <numeric>

#include "plait/base/random.h"
#include "plait/comm/join.h"
#include "plait/comm/local/run_ranks.h"

namespace plait::comm {
namespace {

using Bytes = std::vector<std::byte>;
using Counts = std::vector<i64>;

i64 sum_of(const Counts& c) { return std::accumulate(c.begin(), c.end(), i64{0}); }
i64 width(DType t) { return info(t).block_bytes; }

// Floats of many magnitudes, so that their sum depends on the order; integers of all bits, so that sums wrap.
Bytes data(DType t, i64 count, u64 seed) {
  Bytes b(static_cast<size_t>(bytes_of(t, count)));
  for (i64 i = 0; i < count; i++) {
    double x = (uniform(seed, static_cast<u64>(i)) - 0.5) *
               std::exp2(static_cast<double>(random_bits(seed + 1, static_cast<u64>(i)) % 24));
    auto put = [&](auto v) { std::memcpy(b.data() + i * width(t), &v, sizeof v); };
    if (t == DType::f32) put(static_cast<float>(x));
    if (t == DType::bf16) put(bf16(static_cast<float>(x)));
    if (t == DType::f64) put(x * 1.2345678901234);
    if (t == DType::i32) put(static_cast<std::int32_t>(random_bits(seed, static_cast<u64>(i))));
    if (t == DType::i64) put(random_bits(seed, static_cast<u64>(i)));
    if (t == DType::i128) {
      put(random_bits(seed, static_cast<u64>(i)));
      u64 high = random_bits(seed + 9, static_cast<u64>(i));
      std::memcpy(b.data() + i * 16 + 8, &high, 8);
    }
  }
  return b;
}

template <class T, class F>
void fold(Bytes& acc, const Bytes& x, F f) {
  for (size_t i = 0; i < acc.size() / sizeof(T); i++) {
    T a, b;
    std::memcpy(&a, acc.data() + i * sizeof(T), sizeof(T));
    std::memcpy(&b, x.data() + i * sizeof(T), sizeof(T));
    a = f(a, b);
    std::memcpy(acc.data() + i * sizeof(T), &a, sizeof(T));
  }
}

// The join in rank order, written as plainly as can be.
Bytes joined(const std::vector<Bytes>& parts, DType t, Join join) {
  auto add = [](auto a, auto b) { return static_cast<decltype(a)>(a + b); };
  auto max = [](auto a, auto b) { return b > a ? b : a; };
  if (t == DType::bf16 && join != Join::one) {
    Bytes out(parts[0].size());
    for (size_t i = 0; i < out.size() / 2; i++) {
      float s = 0;
      for (size_t r = 0; r < parts.size(); r++) {
        bf16 v;
        std::memcpy(&v, parts[r].data() + 2 * i, 2);
        auto x = static_cast<float>(v);
        s = r == 0 ? x : join == Join::sum ? s + x : std::max(s, x);
      }
      bf16 v(s);
      std::memcpy(out.data() + 2 * i, &v, 2);
    }
    return out;
  }
  Bytes acc = parts[0];
  for (size_t r = 1; r < parts.size(); r++) {
    auto& x = parts[r];
    if (join == Join::one)
      fold<std::uint8_t>(acc, x, [](auto a, auto b) { return static_cast<std::uint8_t>(a | b); });
    else if (t == DType::f32)
      join == Join::sum ? fold<float>(acc, x, add) : fold<float>(acc, x, max);
    else if (t == DType::f64)
      join == Join::sum ? fold<double>(acc, x, add) : fold<double>(acc, x, max);
    else if (t == DType::i32)
      join == Join::sum ? fold<std::uint32_t>(acc, x, add) : fold<std::int32_t>(acc, x, max);
    else if (t == DType::i64)
      join == Join::sum ? fold<u64>(acc, x, add) : fold<std::int64_t>(acc, x, max);
    else
      fold<unsigned __int128>(acc, x, add);
  }
  return acc;
}

Bytes slice(const Bytes& b, i64 begin, i64 count, i64 unit) {
  auto at = b.begin() + begin * unit;
  return Bytes(at, at + count * unit);
}

i64 before(const Counts& c, i64 r) { return std::accumulate(c.begin(), c.begin() + r, i64{0}); }

// `count` cut unevenly, some parts empty.
Counts uneven(i64 count, i64 n, u64 seed) {
  Counts cuts{0, count};
  for (i64 r = 1; r < n; r++)
    cuts.push_back(static_cast<i64>(random_bits(seed, static_cast<u64>(r)) % static_cast<u64>(count + 1)));
  std::sort(cuts.begin(), cuts.end());
  Counts c;
  for (size_t i = 1; i < cuts.size(); i++) c.push_back(cuts[i] - cuts[i - 1]);
  return c;
}

struct Case {
  DType t;
  Join join;
};
const Case kCases[] = {{DType::f32, Join::sum},  {DType::f64, Join::sum},  {DType::bf16, Join::sum},
                       {DType::i64, Join::sum},  {DType::i128, Join::sum}, {DType::i32, Join::sum},
                       {DType::f32, Join::max},  {DType::f64, Join::max},  {DType::i64, Join::max},
                       {DType::bf16, Join::max}, {DType::i32, Join::max},  {DType::f32, Join::one},
                       {DType::bf16, Join::one}, {DType::i128, Join::one}};

// Contributions for `one`: of each element one rank's is non-zero (-0 among them).
void blank_all_but_one(std::vector<Bytes>& parts, i64 unit) {
  for (size_t e = 0; e < parts[0].size() / static_cast<size_t>(unit); e++)
    for (size_t r = 0; r < parts.size(); r++)
      if (r != (e * 7 + 3) % parts.size())
        std::memset(parts[r].data() + e * static_cast<size_t>(unit), 0, static_cast<size_t>(unit));
}

class Collectives : public testing::TestWithParam<i64> {};

constexpr i64 kSlot = 8192;                                 // small, so that sizes above it stay cheap
const Counts kSizes{0, 1, 3, 8, 20, 21, 576, 5000, 20011};  // 20 floats are the most that a note holds

// One world a group size; all cases through one communicator, in order.
void with_group(i64 n, const std::function<void(Communicator&)>& f) {
  LocalWorld world(n, {.deadline_s = 20, .slot_bytes = kSlot, .mail_bytes = 1024});
  Counts ranks(static_cast<size_t>(n));
  std::iota(ranks.begin(), ranks.end(), i64{0});
  i64 g = world.add_group(ranks);
  run_ranks(world, [&](i64 r) { f(*world.join(g, r)); }, {.limit_s = 120});
}

std::vector<Bytes> everybodys(i64 n, Case k, i64 count, u64 seed) {
  std::vector<Bytes> parts;
  for (i64 r = 0; r < n; r++) parts.push_back(data(k.t, count, seed + 1000 * static_cast<u64>(r)));
  if (k.join == Join::one) blank_all_but_one(parts, width(k.t));
  return parts;
}

TEST_P(Collectives, AllReduce) {
  const i64 n = GetParam();
  for (auto k : kCases)
    for (i64 count : kSizes) {
      auto parts = everybodys(n, k, count, stream_of("all_reduce") + static_cast<u64>(count));
      auto want = joined(parts, k.t, k.join);
      with_group(n, [&](Communicator& c) {
        auto in = parts[static_cast<size_t>(c.rank())];
        Bytes out(in.size());
        c.wait(c.start_all_reduce(in.data(), out.data(), count, k.t, k.join, "apart"));
        c.wait(c.start_all_reduce(in.data(), in.data(), count, k.t, k.join, "in place"));
        if (out != want || in != want)
          fail(Code::differs, "all_reduce {} {} of {}", name_of(k.join), name_of(k.t), count);
      });
    }
}

TEST_P(Collectives, ReduceScatter) {
  const i64 n = GetParam();
  for (auto k : kCases)
    for (i64 count : kSizes) {
      auto parts = everybodys(n, k, count, stream_of("reduce_scatter") + static_cast<u64>(count));
      auto counts = uneven(count, n, static_cast<u64>(count + n));
      auto all = joined(parts, k.t, k.join);
      with_group(n, [&](Communicator& c) {
        auto in = parts[static_cast<size_t>(c.rank())];
        i64 mine = counts[static_cast<size_t>(c.rank())];
        Bytes out(static_cast<size_t>(mine * width(k.t)));
        auto want = slice(all, before(counts, c.rank()), mine, width(k.t));
        c.wait(c.start_reduce_scatter(in.data(), out.data(), counts, k.t, k.join, "apart"));
        c.wait(c.start_reduce_scatter(in.data(), in.data(), counts, k.t, k.join, "in place"));
        in.resize(out.size());
        if (out != want || in != want)
          fail(Code::differs, "reduce_scatter {} {} of {}", name_of(k.join), name_of(k.t), fmt::join(counts, ","));
      });
    }
}

TEST_P(Collectives, AllGather) {
  const i64 n = GetParam();
  for (DType t : {DType::f32, DType::bf16, DType::i128})
    for (i64 count : kSizes) {
      auto whole = data(t, count, stream_of("all_gather"));
      auto counts = uneven(count, n, static_cast<u64>(count * 3 + n));
      with_group(n, [&](Communicator& c) {
        i64 at = before(counts, c.rank()), mine = counts[static_cast<size_t>(c.rank())];
        auto in = slice(whole, at, mine, width(t));
        Bytes out(whole.size()), placed(whole.size()), front(whole.size());
        std::copy(in.begin(), in.end(), placed.begin() + at * width(t));
        std::copy(in.begin(), in.end(), front.begin());
        c.wait(c.start_all_gather(in.data(), out.data(), counts, t, "apart"));
        c.wait(c.start_all_gather(placed.data() + at * width(t), placed.data(), counts, t, "in place"));
        c.wait(c.start_all_gather(front.data(), front.data(), counts, t, "from the front"));
        if (out != whole || placed != whole || front != whole)
          fail(Code::differs, "all_gather {} of {}", name_of(t), fmt::join(counts, ","));
      });
    }
}

TEST_P(Collectives, AllToAll) {
  const i64 n = GetParam();
  for (i64 count : kSizes) {
    std::vector<Counts> sends;
    std::vector<Bytes> from;
    for (i64 r = 0; r < n; r++) {
      // Some ranks send little, so that the members disagree about the number of steps until they meet.
      sends.push_back(uneven(r % 2 == 0 ? count : count / 16, n, static_cast<u64>(100 * count + r)));
      from.push_back(data(DType::f32, sum_of(sends.back()), static_cast<u64>(r) + 5));
    }
    with_group(n, [&](Communicator& c) {
      auto me = static_cast<size_t>(c.rank());
      Counts receives;
      Bytes want;
      for (size_t r = 0; r < static_cast<size_t>(n); r++) {
        receives.push_back(sends[r][me]);
        auto part = slice(from[r], before(sends[r], c.rank()), sends[r][me], 4);
        want.insert(want.end(), part.begin(), part.end());
      }
      Bytes out(want.size()), both(std::max(want.size(), from[me].size()));
      std::copy(from[me].begin(), from[me].end(), both.begin());
      float one = static_cast<float>(c.rank()), sum = 0;
      // The operation behind it is started before the first one knows its steps.
      auto a = c.start_all_to_all(from[me].data(), sends[me], out.data(), receives, DType::f32, "apart");
      auto b = c.start_all_reduce(&one, &sum, 1, DType::f32, Join::sum, "behind");
      auto d = c.start_all_to_all(both.data(), sends[me], both.data(), receives, DType::f32, "in place");
      c.wait(a);
      c.wait(b);
      c.wait(d);
      both.resize(want.size());
      if (out != want || both != want || sum != static_cast<float>(n * (n - 1) / 2))
        fail(Code::differs, "all_to_all of {}", count);
    });
  }
}

TEST_P(Collectives, Broadcast) {
  const i64 n = GetParam();
  with_group(n, [&](Communicator& c) {
    for (i64 count : kSizes)
      for (i64 root = 0; root < n; root++) {
        auto want = data(DType::bf16, count, static_cast<u64>(count + root));
        Bytes b = c.rank() == root ? want : Bytes(want.size());
        c.wait(c.start_broadcast(b.data(), count, DType::bf16, root, "b"));
        if (b != want) fail(Code::differs, "broadcast of {} from {}", count, root);
      }
    Bytes blocks(34 * 700, std::byte{static_cast<unsigned char>(c.rank())});
    c.wait(c.start_broadcast(blocks.data(), 32 * 700, DType::q8_0, n - 1, "blocks"));
    if (blocks != Bytes(blocks.size(), std::byte{static_cast<unsigned char>(n - 1)})) fail(Code::differs, "blocks");
  });
}

TEST_P(Collectives, Messages) {
  const i64 n = GetParam();
  with_group(n, [&](Communicator& c) {
    for (i64 bytes : {i64{0}, i64{1}, i64{1000}, i64{1024}, i64{5000}, i64{40000}}) {
      // Round the ring: everybody sends before anybody has received, more than the mailboxes hold.
      i64 next = (c.rank() + 1) % n, previous = (c.rank() + n - 1) % n;
      auto one = data(DType::i64, bytes / 8 + 1, static_cast<u64>(c.rank()));
      auto two = data(DType::i64, bytes / 8 + 1, static_cast<u64>(c.rank()) + 77);
      auto want_one = data(DType::i64, bytes / 8 + 1, static_cast<u64>(previous));
      auto want_two = data(DType::i64, bytes / 8 + 1, static_cast<u64>(previous) + 77);
      Bytes got_one(one.size()), got_two(two.size());
      want_one.resize(static_cast<size_t>(bytes));
      want_two.resize(static_cast<size_t>(bytes));
      auto a = c.start_send(one.data(), bytes, next, "one");
      auto b = c.start_send(two.data(), bytes, next, "two");
      auto d = c.start_recv(got_one.data(), bytes, previous, "one");
      auto e = c.start_recv(got_two.data(), bytes, previous, "two");
      for (auto r : {a, b, d, e}) c.wait(r);
      got_one.resize(static_cast<size_t>(bytes));
      got_two.resize(static_cast<size_t>(bytes));
      if (got_one != want_one || got_two != want_two) fail(Code::differs, "messages of {} bytes", bytes);
    }
  });
}

// A barrier holds everybody until the last has come.
TEST_P(Collectives, Barrier) {
  const i64 n = GetParam();
  std::atomic<i64> come{0};
  with_group(n, [&](Communicator& c) {
    for (i64 k = 1; k <= 50; k++) {
      come++;
      c.barrier("meet");
      if (come < k * n) fail(Code::differs, "{} of {} have come", come.load(), k * n);
      c.barrier("part");
    }
  });
}

TEST_P(Collectives, SeveralInFlight) {
  const i64 n = GetParam();
  with_group(n, [&](Communicator& c) {
    const i64 count = 3000;  // more than a slot
    auto seed = [](i64 k, i64 r) { return static_cast<u64>(100 * k + r); };
    for (i64 flight : {2, 3, 8, 16}) {
      std::vector<Bytes> buffers;
      std::vector<Request> requests;
      for (i64 k = 0; k < flight; k++) {
        i64 m = k % 3 == 0 ? 5 : count;
        buffers.push_back(data(DType::f32, m, seed(k, c.rank())));
        requests.push_back(
            c.start_all_reduce(buffers.back().data(), buffers.back().data(), m, DType::f32, Join::sum, "k"));
      }
      for (i64 k = 0; k < flight; k++) {
        c.wait(requests[static_cast<size_t>(k)]);
        std::vector<Bytes> parts;
        for (i64 r = 0; r < n; r++) parts.push_back(data(DType::f32, k % 3 == 0 ? 5 : count, seed(k, r)));
        if (buffers[static_cast<size_t>(k)] != joined(parts, DType::f32, Join::sum)) fail(Code::differs, "{}", k);
      }
    }
  });
}

TEST_P(Collectives, Staging) {
  const i64 n = GetParam();
  with_group(n, [&](Communicator& c) {
    i64 staged = 0;
    for (i64 k = 0; k < 20; k++)
      for (i64 count : {i64{3}, i64{576}, kSlot / 4, kSlot}) {
        std::vector<Bytes> parts;
        for (i64 r = 0; r < n; r++) parts.push_back(data(DType::f32, count, static_cast<u64>(k * 10 + r)));
        auto& mine = parts[static_cast<size_t>(c.rank())];
        void* place = c.staging(count * 4);
        if (count == kSlot && place != nullptr) fail(Code::differs, "staged more than a slot");
        staged += place != nullptr;
        const void* in = mine.data();
        if (place != nullptr) in = std::memcpy(place, mine.data(), mine.size());
        Bytes out(mine.size());
        c.wait(c.start_all_reduce(in, out.data(), count, DType::f32, Join::sum, "staged"));
        if (out != joined(parts, DType::f32, Join::sum)) fail(Code::differs, "{} {}", k, count);
      }
    for (int k = 0; k < 5; k++) {
      Counts counts(static_cast<size_t>(n), 100);
      std::vector<Bytes> parts;
      for (i64 r = 0; r < n; r++) parts.push_back(data(DType::f32, 100 * n, static_cast<u64>(r)));
      auto& mine = parts[static_cast<size_t>(c.rank())];
      Bytes out(400), all(static_cast<size_t>(400 * n)), want_all;
      void* place = c.staging(400 * n);
      std::memcpy(place, mine.data(), mine.size());
      c.wait(c.start_reduce_scatter(place, out.data(), counts, DType::f32, Join::sum, "staged"));
      if (out != slice(joined(parts, DType::f32, Join::sum), 100 * c.rank(), 100, 4)) fail(Code::differs, "scatter");
      place = c.staging(400);
      std::memcpy(place, mine.data(), 400);
      c.wait(c.start_all_gather(place, all.data(), counts, DType::f32, "staged"));
      for (auto& p : parts) want_all.insert(want_all.end(), p.begin(), p.begin() + 400);
      place = c.staging(400 * n);
      std::memcpy(place, mine.data(), mine.size());
      Bytes exchanged(all.size()), want;
      c.wait(c.start_all_to_all(place, counts, exchanged.data(), counts, DType::f32, "staged"));
      for (auto& p : parts) want.insert(want.end(), p.begin() + 400 * c.rank(), p.begin() + 400 * (c.rank() + 1));
      if (all != want_all || exchanged != want) fail(Code::differs, "gather or exchange");
    }
    if (staged != 60) fail(Code::differs, "{} of 60 were staged", staged);
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, Collectives, testing::Range<i64>(1, 10));

}  // namespace
}  // namespace plait::comm
