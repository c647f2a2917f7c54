// The masks of dropout: which elements stay, and what they are multiplied by. A pure function of (seed, site, step,
// number of the token, place in its row), docs/numerics.md.
#pragma once
#include "plait/base/random.h"
#include "plait/kernels/reference/rows.h"

namespace plait::kernels::reference {

template <class R>
struct Mask {
  u64 key = 0;
  double p = 0;
  R kept = 1;  // the factor of what stays
  Indices number, step;

  Mask() = default;
  /// Attributes seed, site, p; token numbers [t] and the step [1].
  Mask(const Args& a, const View& token_numbers, const View& steps)
      : key(random_bits(whole(a, "seed"), whole(a, "site"))),
        p(a.attr("p")),
        kept(static_cast<R>(1 / (1 - p))),
        number(token_numbers),
        step(steps) {
    PLAIT_CHECK(p >= 0 && p < 1, "{}: p is {}", a.op, p);
  }

  /// The stream of a token's row in the step that runs.
  u64 row(i64 t) const { return random_bits(random_bits(key, static_cast<u64>(step(0))), static_cast<u64>(number(t))); }
  R factor(u64 stream, u64 place) const { return uniform(stream, place) >= p ? kept : R(0); }

 private:
  static u64 whole(const Args& a, const char* name) { return static_cast<u64>(static_cast<i64>(a.attr(name))); }
};

}  // namespace plait::kernels::reference
