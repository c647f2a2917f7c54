#include "plait/serve/score.h"

#include <algorithm>

namespace plait::serve {

namespace {

void check(const ServingPlan& p, const ScoreRequest& q) {
  const i64 ahead = q.bos ? 1 : 0;
  if (q.window < 2 || q.window > p.context)
    fail(Code::usage, "a window of {} tokens: want 2 to the context of {}", q.window, p.context);
  if (q.stride < 1 || q.stride > q.window - ahead)
    fail(Code::usage, "a stride of {} tokens: want 1 to {}, the tokens of a window", q.stride, q.window - ahead);
  if (static_cast<i64>(q.tokens.size()) + ahead < 2)
    fail(Code::usage, "a text of {} tokens: nothing to score", q.tokens.size());
}

}  // namespace

Scored score(Session& s, const ScoreRequest& q, const std::function<void(const Scored&)>& progress) {
  const ServingPlan& p = s.plan();
  check(p, q);
  const i64 V = p.config.V, n = static_cast<i64>(q.tokens.size()), ahead = q.bos ? 1 : 0;
  const i64 most_tokens = p.bounds.size.at('T'), most_rows = p.bounds.size.at('R');
  Scored out;
  std::vector<i64> tokens;
  std::vector<double> nats(static_cast<size_t>(most_rows));
  // Window [begin, end) of the text; tokens before `counted` are counted already.
  for (i64 begin = 0, counted = q.bos ? 0 : 1, end = 0; end < n; begin += q.stride) {
    end = std::min(begin + q.window - ahead, n);
    tokens.clear();
    if (q.bos) tokens.push_back(*q.bos);
    tokens.insert(tokens.end(), q.tokens.begin() + begin, q.tokens.begin() + end);
    // Row i says token i + 1; the last token need not be fed.
    const i64 rows = static_cast<i64>(tokens.size()) - 1, first = counted - begin + ahead - 1;
    s.reset(0);
    for (i64 at = 0, take = 0; at < rows; at += take) {
      take = at < first ? std::min(most_tokens, first - at) : std::min({most_tokens, most_rows, rows - at});
      const Piece piece{0, std::span(tokens).subspan(static_cast<size_t>(at), static_cast<size_t>(take)),
                        at < first ? 1 : take};
      const auto logits = s.step({&piece, 1});
      if (s.rank() != 0 || at < first) continue;
      s.team().split(take, 1, [&](Range r) {
        std::vector<float> scratch;
        for (i64 i = r.begin; i < r.end; i++)
          nats[static_cast<size_t>(i)] =
              kernels::negative_log_likelihood(logits.subspan(static_cast<size_t>(i * V), static_cast<size_t>(V)),
                                               tokens[static_cast<size_t>(at + i + 1)], scratch);
      });
      for (i64 i = 0; i < take; i++) out.nats += nats[static_cast<size_t>(i)];
    }
    out.tokens += end - counted;
    out.fed += rows;
    out.windows++;
    counted = end;
    if (progress && s.rank() == 0) progress(out);
  }
  return out;
}

}  // namespace plait::serve
