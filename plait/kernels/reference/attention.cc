// Causal attention inside sequences, over rows of keys or over pages.
//
// A row's keys are taken in blocks of 128 positions of its sequence. In a block: scores = (q . k) * scale with the
// chain ascending in h, m = their maximum, p = exp(score - m), l = lane sum of p by place in the block, o[h] = chain of
// p v ascending in position. Over blocks: M = max m, w = exp(m - M); w l and w o are added as exact sums (exponent 40),
// the output is their quotient, lse = M + log(sum). A row's bits so depend on its own sequence alone. The gradient
// recomputes p = exp(score - lse). dq is a chain over all keys; dk and dv are sums whose leaves are a leaf of tokens
// times a leaf of heads: a chain over heads, then tokens.
#include <algorithm>

#include "plait/kernels/reference/reference.h"
#include "plait/kernels/reference/rows.h"

namespace plait::kernels::reference {

namespace {

constexpr i64 kBlock = 128;
constexpr int kExponent = 40;

/// The chain of a product: ascending, bf16 operands in pairs, the odd element first.
template <class R>
R dot(const Heads<R>& x, i64 t, i64 n, const Heads<R>& y, i64 s, i64 k, i64 width) {
  R d = 0;
  if (x.n.dtype == DType::bf16 && y.n.dtype == DType::bf16) {
    for (i64 h = 0; h < width; h += 2) {
      if (h + 1 < width) d = std::fma(x(t, n, h + 1), y(s, k, h + 1), d);
      d = std::fma(x(t, n, h), y(s, k, h), d);
    }
    return d;
  }
  for (i64 h = 0; h < width; h++) d = std::fma(x(t, n, h), y(s, k, h), d);
  return d;
}

/// One row's softmax over keys 0 .. last, whose places in memory `place` gives.
template <class R>
struct Softmax {
  using Fixed = typename Sums<R>::Fixed;
  i64 width;
  R scale;
  R p[kBlock];
  std::vector<R> block_m, block_l;
  std::vector<R> block_o;
  std::vector<Fixed> total;
  i64 leaves;  // for the overflow test: at least so many
  Softmax(i64 width_, R scale_, i64 most_keys, i64 leaves_)
      : width(width_),
        scale(scale_),
        block_m(static_cast<size_t>(ceil_div(most_keys, kBlock) + 1)),
        block_l(block_m.size()),
        block_o(block_m.size() * static_cast<size_t>(width_)),
        total(static_cast<size_t>(width_)),
        leaves(leaves_) {}

  /// first: position of key 0; out(h, value). Returns lse.
  template <class Place, class Out>
  R row(const Heads<R>& q, i64 t, i64 n, const Heads<R>& k, const Heads<R>& v, i64 head, i64 first, i64 keys,
        Place place, Out out, Context& c) {
    size_t blocks = 0;
    R top = -INFINITY;
    for (i64 s = 0; s < keys;) {
      const i64 count = std::min(keys - s, kBlock - (first + s) % kBlock), lead = (first + s) % kBlock;
      R m = -INFINITY;
      for (i64 j = 0; j < count; j++) {
        p[j] = dot(q, t, n, k, place(s + j), head, width) * scale;
        m = std::max(m, p[j]);
      }
      for (i64 j = 0; j < count; j++) p[j] = exp(p[j] - m);
      block_m[blocks] = m;
      block_l[blocks] = lane_sum<R>(lead + count, [&](R sum, i64 j) { return j < lead ? sum : sum + p[j - lead]; });
      R* o = &block_o[blocks * static_cast<size_t>(width)];
      for (i64 h = 0; h < width; h++) {
        R acc = 0;
        for (i64 j = 0; j < count; j++) acc = std::fma(p[j], v(place(s + j), head, h), acc);
        o[h] = acc;
      }
      top = std::max(top, m);
      blocks++;
      s += count;
    }
    const Sums<R> sums(true, kExponent, std::max(leaves, static_cast<i64>(blocks)));
    Fixed l = 0;
    std::fill(total.begin(), total.end(), Fixed(0));
    for (size_t b = 0; b < blocks; b++) {
      R w = exp(block_m[b] - top);
      l += sums.fixed(block_l[b] * w, c.overflow);
      for (size_t h = 0; h < total.size(); h++) total[h] += sums.fixed(block_o[b * total.size() + h] * w, c.overflow);
    }
    const R whole = sums.number(l);
    for (size_t h = 0; h < total.size(); h++) out(static_cast<i64>(h), sums.number(total[h]) / whole);
    return top + log(whole);
  }
};

/// First token of t's sequence; a sequence's tokens are neighbours.
i64 first_of(const Indices& sequence, i64 t) {
  while (t > sequence.t0 && sequence(t - 1) == sequence(t)) t--;
  return t;
}

template <class R>
Run attention(const Args& a) {
  return fast([q = Heads<R>(a.in[0]), k = Heads<R>(a.in[1]), v = Heads<R>(a.in[2]), position = Indices(a.in[3]),
               sequence = Indices(a.in[4]), out = Heads<R>(a.out[0]), lse = Rows<R>(a.out[1]), tokens = a.range("t"),
               heads = a.range("kg"), group = a.group,
               softmax = Softmax<R>(a.in[0].size(2), static_cast<R>(a.attr("scale")), a.in[1].size(0), a.model_leaves)](
                  Context& c) mutable {
    for (i64 t = tokens.begin; t < tokens.end; t++) {
      const i64 s0 = first_of(sequence, t);
      for (i64 n = heads.begin; n < heads.end; n++)
        lse.set(t, n,
                softmax.row(
                    q, t, n, k, v, n / group, position(s0), t - s0 + 1, [&](i64 s) { return s0 + s; },
                    [&](i64 h, R x) { out.set(t, n, h, x); }, c));
    }
  });
}

template <class R>
Run attention_paged(const Args& a) {
  const i64 page = static_cast<i64>(a.attr("page")), pages = a.in[5].size(1);
  return fast([q = Heads<R>(a.in[0]), k = Heads<R>(a.in[1]), v = Heads<R>(a.in[2]), position = Indices(a.in[3]),
               sequence = Indices(a.in[4]), table = Indices(a.in[5]), out = Heads<R>(a.out[0]), tokens = a.range("t"),
               heads = a.range("kg"), group = a.group, page, pages, width = a.in[0].size(2),
               window = static_cast<i64>(a.attr("window", 0)), slots = a.in[1].box[0],
               softmax = Softmax<R>(a.in[0].size(2), static_cast<R>(a.attr("scale")), pages * page,
                                    std::max(a.model_leaves, ceil_div(pages * page, kBlock)))](Context& c) mutable {
    for (i64 t = tokens.begin; t < tokens.end; t++) {
      const i64 b = sequence(t), first = window > 0 ? std::max<i64>(0, position(t) - window + 1) : 0;
      const i64 keys = position(t) + 1 - first;
      if (b < 0 || keys <= 0) {  // padding
        for (i64 n = heads.begin; n < heads.end; n++)
          for (i64 h = 0; h < width; h++) out.set(t, n, h, R(0));
        continue;
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
            q, t, n, k, v, n / group, 0, keys, slot, [&](i64 h, R x) { out.set(t, n, h, x); }, c);
    }
  });
}

template <class R>
struct Gradient {
  Heads<R> q, k, v, o, d_o, dq;
  Rows<R> lse;
  Indices sequence;
  Heads<R> dk, dv;  // offsets only
  Sums<R> dk_sums, dv_sums;
  std::vector<Range> token_leaves, head_leaves;
  i64 group, width;
  R scale;
  std::vector<R> chain_k, chain_v, chain_q;

  explicit Gradient(const Args& a)
      : q(a.in[0]),
        k(a.in[1]),
        v(a.in[2]),
        o(a.in[3]),
        d_o(a.in[5]),
        dq(a.out[0]),
        lse(a.in[4]),
        sequence(a.in[7]),
        dk(a.out[1]),
        dv(a.out[2]),
        dk_sums(a.out[1], a.exponent, a.model_leaves),
        dv_sums(a.out[2], a.exponent, a.model_leaves),
        token_leaves(leaves_or_whole(a, 't', "t")),
        head_leaves(leaves_or_whole(a, 'g', "kg")),
        group(a.group),
        width(a.in[0].size(2)),
        scale(static_cast<R>(a.attr("scale"))),
        chain_k(static_cast<size_t>(a.in[1].size(0) * width)),
        chain_v(chain_k.size()),
        chain_q(static_cast<size_t>(width)) {}

  void query(i64 t, i64 n, i64 kv, i64 first, i64 t0) {
    const R delta = dot(d_o, t, n, o, t, n, width), top = lse(t, n);
    std::fill(chain_q.begin(), chain_q.end(), R(0));
    for (i64 s = t0; s <= t; s++) {
      R p = exp(dot(q, t, n, k, s, kv, width) * scale - top);
      R ds = p * (dot(d_o, t, n, v, s, kv, width) - delta) * scale;
      for (i64 h = 0; h < width; h++) {
        auto at = static_cast<size_t>((s - first) * width + h);
        chain_q[static_cast<size_t>(h)] = std::fma(ds, k(s, kv, h), chain_q[static_cast<size_t>(h)]);
        chain_k[at] = std::fma(ds, q(t, n, h), chain_k[at]);
        chain_v[at] = std::fma(p, d_o(t, n, h), chain_v[at]);
      }
    }
    for (i64 h = 0; h < width; h++) dq.set(t, n, h, chain_q[static_cast<size_t>(h)]);
  }

  void run(Context& c) {
    dk_sums.zero();
    dv_sums.zero();
    for (Range tokens : token_leaves)
      for (Range heads : head_leaves)
        for (i64 n0 = heads.begin; n0 < heads.end;) {  // the heads of one KV head in this leaf
          const i64 kv = n0 / group, n1 = std::min(heads.end, (kv + 1) * group);
          const i64 first = first_of(sequence, tokens.begin);
          const auto used = static_cast<size_t>((tokens.end - first) * width);
          std::fill_n(chain_k.begin(), used, R(0));
          std::fill_n(chain_v.begin(), used, R(0));
          for (i64 n = n0; n < n1; n++)
            for (i64 t = tokens.begin; t < tokens.end; t++) query(t, n, kv, first, first_of(sequence, t));
          for (i64 s = first; s < tokens.end; s++)
            for (i64 h = 0; h < width; h++) {
              auto at = static_cast<size_t>((s - first) * width + h);
              dk_sums.add(dk.at(s, kv, h), chain_k[at], c.overflow);
              dv_sums.add(dv.at(s, kv, h), chain_v[at], c.overflow);
            }
          n0 = n1;
        }
  }
};

template <class R>
Run attention_vjp(const Args& a) {
  return fast([g = Gradient<R>(a)](Context& c) mutable { g.run(c); });
}

}  // namespace

template <class R>
std::vector<Kernel> attention_kernels() {
  return {{"attention", "reference", prepare<R, attention<R>>},
          {"attention_vjp", "reference", prepare<R, attention_vjp<R>>},
          {"attention_paged", "reference", prepare<R, attention_paged<R>>}};
}
template std::vector<Kernel> attention_kernels<float>();
template std::vector<Kernel> attention_kernels<double>();

}  // namespace plait::kernels::reference
