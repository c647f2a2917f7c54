// Causal attention inside sequences, over rows of keys or over pages.
//
// A row's keys are taken in blocks of 128 positions of its sequence. In a block: scores = (q . k) * scale with the
// chain ascending in h, m = their maximum, p = exp(score - m), l = lane sum of p by place in the block, o[h] = chain of
// p v ascending in position. Over blocks: M = max m, w = exp(m - M); w l and w o are added as exact sums (exponent 40),
// the output is their quotient, lse = M + log(sum). A row's bits so depend on its own sequence alone. The gradient
// recomputes p = exp(score - lse). dq is a chain over all keys; dk and dv are sums whose leaves are a leaf of tokens
// times a leaf of heads: a chain over heads, then tokens. Dropout multiplies p where it meets v, and its cotangent; the
// softmax is of all scores.
#include <algorithm>
#include <atomic>
#include <optional>

#include "plait/kernels/reference/mask.h"
#include "plait/kernels/reference/reference.h"
#include "plait/kernels/reference/rows.h"

namespace plait::kernels::reference {

namespace {

constexpr i64 kBlock = 128;
constexpr int kExponent = 40;

/// A row [H] of R: in place where it is stored so, else widened into `to`.
template <class R>
const R* row_of(const Heads<R>& x, i64 t, i64 n, i64 width, R* to) {
  const i64 at = x.at(t, n, x.h0);
  if (x.n.dtype == (sizeof(R) == 4 ? DType::f32 : DType::f64)) return static_cast<const R*>(x.n.data) + at;
  for (i64 h = 0; h < width; h++) to[h] = x.n[at + h];
  return to;
}

constexpr i64 kTogether = 8;  // chains at once, each in its own order

/// out[i] = q . rows[i]: the chain of a product, ascending, bf16 operands in pairs, the odd element first.
template <class R>
void dots(const R* q, const R* const* rows, i64 width, bool pairs, R* out) {
  R acc[kTogether] = {};
  auto step = [&](i64 h) {
    for (i64 i = 0; i < kTogether; i++) acc[i] = std::fma(q[h], rows[i][h], acc[i]);
  };
  for (i64 h = 0; h < width; h++) {
    if (!pairs) {
      step(h);
    } else if (h % 2 == 1) {
      step(h);
      step(h - 1);
    } else if (h + 1 == width) {
      step(h);
    }
  }
  for (i64 i = 0; i < kTogether; i++) out[i] = acc[i];
}

/// to += a x, one fma each.
template <class R>
void add_scaled(R* __restrict to, R a, const R* __restrict x, i64 n) {
  i64 i = 0;
  for (; i + 16 <= n; i += 16)
    for (i64 j = i; j < i + 16; j++) to[j] = std::fma(a, x[j], to[j]);
  for (; i < n; i++) to[i] = std::fma(a, x[i], to[i]);
}

/// Of ops with dropout: token numbers and step are their last operands.
template <class R>
std::optional<Mask<R>> mask_of(const Args& a) {
  if (a.attrs.count("p") == 0) return {};
  return Mask<R>(a, a.in[a.in.size() - 2], a.in.back());
}

/// What one row multiplies its probabilities by; 1 without dropout.
template <class R>
struct Kept {
  const std::optional<Mask<R>>& mask;
  u64 stream, head;
  Kept(const std::optional<Mask<R>>& m, i64 t, i64 n)
      : mask(m), stream(m ? m->row(t) : 0), head(static_cast<u64>(n) << 32) {}
  R operator()(i64 position) const { return mask ? mask->factor(stream, head | static_cast<u64>(position)) : R(1); }
};

template <class R>
bool in_pairs(const Heads<R>& x, const Heads<R>& y) {
  return x.n.dtype == DType::bf16 && y.n.dtype == DType::bf16;
}

/// q . k of `count` keys, whose places in memory `place` gives; scratch of kTogether rows.
template <class R, class Place>
void scores_of(const R* q, const Heads<R>& k, i64 head, i64 width, bool pairs, i64 count, Place place, R* scratch,
               R* out) {
  for (i64 j = 0; j < count; j += kTogether) {
    const R* rows[kTogether];
    R some[kTogether];
    for (i64 i = 0; i < kTogether; i++)
      rows[i] = row_of(k, place(std::min(j + i, count - 1)), head, width, scratch + i * width);
    dots(q, rows, width, pairs, some);
    for (i64 i = 0; i < std::min(kTogether, count - j); i++) out[j + i] = some[i];
  }
}

/// The keys and queries of an attention, and a row's softmax over consecutive positions.
template <class R>
struct Softmax {
  using Fixed = typename Sums<R>::Fixed;
  Heads<R> q, k, v;
  i64 width, group, most_blocks, leaves;
  R scale;
  std::optional<Mask<R>> mask;

  /// leaves: for the overflow test, at least so many.
  Softmax(const Args& a, i64 most_keys, i64 leaves_)
      : q(a.in[0]),
        k(a.in[1]),
        v(a.in[2]),
        width(a.in[0].size(2)),
        group(a.group),
        most_blocks(ceil_div(most_keys, kBlock) + 1),
        leaves(leaves_),
        scale(static_cast<R>(a.attr("scale"))),
        mask(mask_of<R>(a)) {}

  /// Memory of one thread.
  i64 scratch_bytes() const {
    i64 numbers = most_blocks * (2 + width) + (kTogether + 1) * width;
    return round_up(width * static_cast<i64>(sizeof(Fixed)) + numbers * static_cast<i64>(sizeof(R)), 64);
  }

  /// Keys at positions first, first + 1 ...; out(h, value). Returns lse.
  template <class Place, class Out>
  R row(i64 t, i64 n, i64 first, i64 keys, Place place, Out out, std::byte* scratch, bool& overflow) const {
    auto* total = reinterpret_cast<Fixed*>(scratch);
    R *block_m = reinterpret_cast<R*>(total + width), *block_l = block_m + most_blocks,
      *block_o = block_l + most_blocks;
    R *wide = block_o + most_blocks * width, *wide_q = wide + kTogether * width;
    const i64 head = n / group;
    const Kept<R> kept(mask, t, n);
    const R* query = row_of(q, t, n, width, wide_q);
    i64 blocks = 0;
    R top = -INFINITY, p[kBlock];
    for (i64 s = 0; s < keys; blocks++) {
      const i64 lead = (first + s) % kBlock, count = std::min(keys - s, kBlock - lead);
      scores_of(
          query, k, head, width, in_pairs(q, k), count, [&](i64 j) { return place(s + j); }, wide, p);
      R m = -INFINITY;
      for (i64 j = 0; j < count; j++) {
        p[j] *= scale;
        m = std::max(m, p[j]);
      }
      for (i64 j = 0; j < count; j++) p[j] = exp(p[j] - m);
      block_m[blocks] = m;
      block_l[blocks] = lane_sum<R>(lead + count, [&](R sum, i64 j) { return j < lead ? sum : sum + p[j - lead]; });
      R* o = block_o + blocks * width;
      for (i64 h = 0; h < width; h++) o[h] = 0;
      for (i64 j = 0; j < count; j++)
        add_scaled(o, p[j] * kept(first + s + j), row_of(v, place(s + j), head, width, wide), width);
      top = std::max(top, m);
      s += count;
    }
    const Sums<R> sums(true, kExponent, std::max(leaves, blocks));
    Fixed l = 0;
    for (i64 h = 0; h < width; h++) total[h] = 0;
    for (i64 b = 0; b < blocks; b++) {
      const R w = exp(block_m[b] - top);
      l += sums.fixed(block_l[b] * w, overflow);
      for (i64 h = 0; h < width; h++) total[h] += sums.fixed(block_o[b * width + h] * w, overflow);
    }
    const R whole = sums.number(l);
    for (i64 h = 0; h < width; h++) out(h, sums.number(total[h]) / whole);
    return top + log(whole);
  }
};

/// body(token, scratch, overflow) for every token, split over the team.
template <class R, class Body>
void every_token(Context& c, Range tokens, const Softmax<R>& s, const Body& body) {
  const i64 bytes = s.scratch_bytes();
  std::byte* scratch = c.scratch(bytes * c.team.size());
  std::atomic<i64> next{tokens.begin};
  std::atomic<bool> overflow{false};
  c.team.run([&](i64 thread, i64) {
    bool flag = false;
    auto token = [&](i64 t) { body(t, scratch + thread * bytes, flag); };
    for (i64 t = next++; t < tokens.end; t = next++) call_fast(token, t);
    if (flag) overflow.store(true, std::memory_order_relaxed);
  });
  if (overflow) c.overflow = true;
}

/// First token of t's sequence; a sequence's tokens are neighbours.
i64 first_of(const Indices& sequence, i64 t) {
  while (t > sequence.t0 && sequence(t - 1) == sequence(t)) t--;
  return t;
}

/// First key of token t, which stands in [t's sequence's first token, t]: with a window no more than `window` keys.
i64 first_key(i64 first, i64 t, i64 window) { return window > 0 ? std::max(first, t - window + 1) : first; }

template <class R>
Run attention(const Args& a) {
  return [softmax = Softmax<R>(a, a.in[1].size(0), a.model_leaves), position = Indices(a.in[3]),
          sequence = Indices(a.in[4]), out = Heads<R>(a.out[0]), lse = Rows<R>(a.out[1]), tokens = a.range("t"),
          heads = a.range("kg"), window = static_cast<i64>(a.attr("window", 0))](Context& c) {
    every_token(c, tokens, softmax, [&](i64 t, std::byte* scratch, bool& overflow) {
      const i64 s0 = first_key(first_of(sequence, t), t, window);
      auto place = [&](i64 s) { return s0 + s; };
      for (i64 n = heads.begin; n < heads.end; n++)
        lse.set(
            t, n,
            softmax.row(
                t, n, position(s0), t - s0 + 1, place, [&](i64 h, R x) { out.set(t, n, h, x); }, scratch, overflow));
    });
  };
}

template <class R>
Run attention_paged(const Args& a) {
  const i64 page = static_cast<i64>(a.attr("page")), pages = a.in[5].size(1);
  return [softmax = Softmax<R>(a, pages * page, std::max(a.model_leaves, ceil_div(pages * page, kBlock))),
          position = Indices(a.in[3]), sequence = Indices(a.in[4]), table = Indices(a.in[5]), out = Heads<R>(a.out[0]),
          tokens = a.range("t"), heads = a.range("kg"), page, pages, window = static_cast<i64>(a.attr("window", 0)),
          slots = a.in[1].box[0]](Context& c) {
    every_token(c, tokens, softmax, [&](i64 t, std::byte* scratch, bool& overflow) {
      const i64 b = sequence(t), first = window > 0 ? std::max<i64>(0, position(t) - window + 1) : 0;
      const i64 keys = position(t) + 1 - first;
      if (b < 0 || keys <= 0) {  // padding
        for (i64 n = heads.begin; n < heads.end; n++)
          for (i64 h = 0; h < softmax.width; h++) out.set(t, n, h, R(0));
        return;
      }
      PLAIT_CHECK(first + keys <= pages * page, "attention_paged: position {} in {} pages of {}", position(t), pages,
                  page);
      auto slot = [&](i64 s) {
        i64 p = first + s, at = table(b, p / page) * page + p % page;
        PLAIT_CHECK(inside(at, slots), "attention_paged: slot {} of sequence {}, this rank has {}", at, b,
                    to_string(slots));
        return at;
      };
      for (i64 n = heads.begin; n < heads.end; n++)
        softmax.row(
            t, n, first, keys, slot, [&](i64 h, R x) { out.set(t, n, h, x); }, scratch, overflow);
    });
  };
}

template <class R>
struct Gradient {
  Heads<R> q, k, v, o, d_o, dq;
  Rows<R> lse;
  Indices position, sequence;
  Heads<R> dk, dv;  // offsets only
  Sums<R> dk_sums, dv_sums;
  std::vector<Range> token_leaves, head_leaves;
  Range heads;
  i64 group, width, keys, window;
  R scale;
  std::optional<Mask<R>> mask;

  explicit Gradient(const Args& a)
      : q(a.in[0]),
        k(a.in[1]),
        v(a.in[2]),
        o(a.in[3]),
        d_o(a.in[5]),
        dq(a.out[0]),
        lse(a.in[4]),
        position(a.in[6]),
        sequence(a.in[7]),
        dk(a.out[1]),
        dv(a.out[2]),
        dk_sums(a.out[1], a.exponent, a.model_leaves),
        dv_sums(a.out[2], a.exponent, a.model_leaves),
        token_leaves(leaves_or_whole(a, 't', "t")),
        head_leaves(leaves_or_whole(a, 'g', "kg")),
        heads(a.range("kg")),
        group(a.group),
        width(a.in[0].size(2)),
        keys(a.in[1].size(0)),
        window(static_cast<i64>(a.attr("window", 0))),
        scale(static_cast<R>(a.attr("scale"))),
        mask(mask_of<R>(a)) {}

  /// One thread's memory: chains of dk and dv over the keys of a leaf, of dq, scores and d scores, widened rows.
  i64 scratch_numbers() const { return round_up(2 * keys * width + 2 * keys + (kTogether + 4) * width, 16); }

  struct Chains {
    R *dk, *dv, *dq, *p, *ds, *wide, *wide_q, *wide_do, *wide_o;
  };
  Chains chains(R* at) const {
    R *dv_ = at + keys * width, *p = dv_ + keys * width, *ds = p + keys, *dq_ = ds + keys, *wide = dq_ + width;
    R* wide_q = wide + kTogether * width;
    return {at, dv_, dq_, p, ds, wide, wide_q, wide_q + width, wide_q + 2 * width};
  }

  /// Query (t, n) over its keys t0 ... t; chains begin at key `first`.
  void query(i64 t, i64 n, i64 kv, i64 first, i64 t0, const Chains& c) const {
    const R *qr = row_of(q, t, n, width, c.wide_q), *dor = row_of(d_o, t, n, width, c.wide_do);
    const R* o_row[kTogether];
    std::fill_n(o_row, kTogether, row_of(o, t, n, width, c.wide_o));
    R delta[kTogether];
    dots(dor, o_row, width, in_pairs(d_o, o), delta);
    const R top = lse(t, n);
    const i64 count = t - t0 + 1;
    auto place = [&](i64 s) { return t0 + s; };
    scores_of(qr, k, kv, width, in_pairs(q, k), count, place, c.wide, c.p);
    scores_of(dor, v, kv, width, in_pairs(d_o, v), count, place, c.wide, c.ds);
    const Kept<R> kept(mask, t, n);
    for (i64 s = 0; s < count; s++) {
      const R p = exp(c.p[s] * scale - top), factor = kept(position(t0 + s));
      c.ds[s] = p * (c.ds[s] * factor - delta[0]) * scale;
      c.p[s] = p * factor;
    }
    std::fill_n(c.dq, width, R(0));
    for (i64 s = 0; s < count; s++) {
      const i64 at = (t0 + s - first) * width;
      add_scaled(c.dq, c.ds[s], row_of(k, t0 + s, kv, width, c.wide), width);
      add_scaled(c.dk + at, c.ds[s], qr, width);
      add_scaled(c.dv + at, c.p[s], dor, width);
    }
    for (i64 h = 0; h < width; h++) dq.set(t, n, h, c.dq[h]);
  }

  /// All of one KV head: its sums are this thread's own.
  void run(i64 kv, R* scratch, bool& overflow) const {
    const Chains c = chains(scratch);
    for (Range tokens : token_leaves) {
      const i64 first = first_of(sequence, tokens.begin), used = (tokens.end - first) * width;
      for (Range leaf : head_leaves) {
        const Range mine = leaf & Range{kv * group, (kv + 1) * group};
        if (mine.empty()) continue;
        std::fill_n(c.dk, used, R(0));
        std::fill_n(c.dv, used, R(0));
        for (i64 n = mine.begin; n < mine.end; n++)
          for (i64 t = tokens.begin; t < tokens.end; t++)
            query(t, n, kv, first, first_key(first_of(sequence, t), t, window), c);
        for (i64 s = first; s < tokens.end; s++)
          for (i64 h = 0; h < width; h++) {
            const i64 at = (s - first) * width + h;
            dk_sums.add(dk.at(s, kv, h), c.dk[at], overflow);
            dv_sums.add(dv.at(s, kv, h), c.dv[at], overflow);
          }
      }
    }
  }
};

template <class R>
Run attention_vjp(const Args& a) {
  return [g = Gradient<R>(a)](Context& c) {
    g.dk_sums.zero();
    g.dv_sums.zero();
    if (g.heads.empty()) return;
    const i64 numbers = g.scratch_numbers(), last = (g.heads.end - 1) / g.group;
    auto* scratch = reinterpret_cast<R*>(c.scratch(numbers * c.team.size() * static_cast<i64>(sizeof(R))));
    std::atomic<i64> next{g.heads.begin / g.group};
    std::atomic<bool> overflow{false};
    c.team.run([&](i64 thread, i64) {
      bool flag = false;
      auto head = [&](i64 kv) { g.run(kv, scratch + thread * numbers, flag); };
      for (i64 kv = next++; kv <= last; kv = next++) call_fast(head, kv);
      if (flag) overflow.store(true, std::memory_order_relaxed);
    });
    if (overflow) c.overflow = true;
  };
}

}  // namespace

template <class R>
std::vector<Kernel> attention_kernels() {
  return {{"attention", "reference", prepare<R, attention<R>>},
          {"attention_vjp", "reference", prepare<R, attention_vjp<R>>},
          {"attention_dropout", "reference", prepare<R, attention<R>>},
          {"attention_dropout_vjp", "reference", prepare<R, attention_vjp<R>>},
          {"attention_paged", "reference", prepare<R, attention_paged<R>>}};
}
template std::vector<Kernel> attention_kernels<float>();
template std::vector<Kernel> attention_kernels<double>();

}  // namespace plait::kernels::reference
