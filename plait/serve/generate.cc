// Texts, one or several together: prompts in chunks, a token of each sequence a step, agreement of the ranks on all of
// them in one exchange.
#include <algorithm>
#include <chrono>

#include "plait/serve/engine.h"

namespace plait::serve {

namespace {

double now_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

bool is_interrupted(const Request& r) {
  return r.interrupted != nullptr && r.interrupted->load(std::memory_order_relaxed);
}

/// What ranks agree on beside a token: the highest wins.
enum Stop : i64 { kGoOn = 0, kInterrupted = 1, kEndsText = 2 };

/// A request that has a sequence.
struct Running {
  size_t request;
  i64 sequence;
  size_t fed = 0;  // tokens of the prompt that are in the cache
  i64 token = 0;   // drawn last, not yet in the cache
  double begin_s = 0, first_s = 0;
};

class Batch {
 public:
  Batch(Session& s, std::span<const Request> requests, i64 sequences, i64 most_tokens, i64 vocabulary)
      : s_(s),
        requests_(requests),
        results_(requests.size()),
        most_tokens_(most_tokens),
        V_(vocabulary),
        scratch_(static_cast<size_t>(s.team().size())) {
    for (i64 q = sequences; q > 0; q--) free_.push_back(q - 1);
    for (const Request& r : requests) PLAIT_CHECK(!r.prompt.empty() && r.max_tokens > 0, "a request of no tokens");
  }

  std::vector<Generated> run(const std::function<void(i64, const Generated&)>& done) {
    while (next_ < requests_.size() || !running_.empty()) {
      admit();
      std::span<const float> logits = forward();
      draw(logits);
      for (size_t i = 0; i < running_.size();) {
        Generated& g = results_[running_[i].request];
        if (g.finish_reason.empty()) {
          i++;
          continue;
        }
        g.decode_s = now_s() - running_[i].first_s;
        if (done && s_.rank() == 0) done(static_cast<i64>(running_[i].request), g);
        free_.push_back(running_[i].sequence);
        running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i));
      }
      if (interrupted_) break;
    }
    for (; next_ < requests_.size(); next_++) {
      results_[next_].finish_reason = "interrupted";
      if (done && s_.rank() == 0) done(static_cast<i64>(next_), results_[next_]);
    }
    return std::move(results_);
  }

 private:
  void admit() {
    for (; next_ < requests_.size() && !free_.empty(); next_++) {
      const i64 q = free_.back();
      free_.pop_back();
      s_.reset(q);
      running_.push_back({.request = next_, .sequence = q, .begin_s = now_s()});
    }
  }

  /// A token of each sequence that writes, then as much of the prompts as a run takes, first come first served.
  std::span<const float> forward() {
    pieces_.clear();
    drawing_.clear();
    i64 left = most_tokens_;
    for (size_t i = 0; i < running_.size(); i++) {
      Running& r = running_[i];
      if (!is_read(r)) continue;
      pieces_.push_back({r.sequence, {&r.token, 1}, 1});
      drawing_.push_back(i);
      results_[r.request].decoded++;
      left--;
    }
    for (size_t i = 0; i < running_.size() && left > 0; i++) {
      Running& r = running_[i];
      const std::vector<i64>& prompt = requests_[r.request].prompt;
      if (r.fed == prompt.size()) continue;
      const size_t n = std::min(static_cast<size_t>(left), prompt.size() - r.fed);
      pieces_.push_back({r.sequence, std::span(prompt).subspan(r.fed, n), 1});
      drawing_.push_back(i);
      r.fed += n;
      left -= static_cast<i64>(n);
    }
    return s_.step(pieces_);
  }

  void draw(std::span<const float> logits) {
    tokens_.assign(drawing_.size(), 0);
    stops_.assign(drawing_.size(), kGoOn);
    auto sample = [&](i64 thread, i64 threads) {
      for (auto k = static_cast<size_t>(thread); k < drawing_.size(); k += static_cast<size_t>(threads)) {
        const Running& r = running_[drawing_[k]];
        if (!is_read(r)) continue;  // its logits were of no last token
        tokens_[k] = kernels::sample(logits.subspan(k * static_cast<size_t>(V_), static_cast<size_t>(V_)),
                                     requests_[r.request].sampling, static_cast<u64>(s_.position(r.sequence)),
                                     scratch_[static_cast<size_t>(thread)]);
      }
    };
    if (drawing_.size() == 1)
      sample(0, 1);
    else
      s_.team().run(sample);
    bool drawn = false;
    for (size_t k = 0; k < drawing_.size(); k++) {
      const Running& r = running_[drawing_[k]];
      const Request& q = requests_[r.request];
      if (is_interrupted(q)) stops_[k] = kInterrupted;
      if (!is_read(r)) continue;
      drawn = true;
      if (s_.rank() == 0 && q.stops && !(q.is_end && q.is_end(tokens_[k])) && q.stops(tokens_[k]))
        stops_[k] = kEndsText;
    }
    if (!drawn) return;
    s_.agree(tokens_, stops_);
    for (i64 stop : stops_) interrupted_ |= stop == kInterrupted;
    for (size_t k = 0; k < drawing_.size(); k++) {
      Running& r = running_[drawing_[k]];
      if (is_read(r)) take(r, tokens_[k], stops_[k]);
    }
    if (interrupted_)
      for (Running& r : running_)
        if (results_[r.request].finish_reason.empty()) results_[r.request].finish_reason = "interrupted";
  }

  /// Is all of its prompt in the cache?
  bool is_read(const Running& r) const { return r.fed == requests_[r.request].prompt.size(); }

  void take(Running& r, i64 token, i64 stop) {
    const Request& q = requests_[r.request];
    Generated& g = results_[r.request];
    if (r.first_s == 0) {
      r.first_s = now_s();
      g.prefill_s = r.first_s - r.begin_s;
    }
    if (q.is_end && q.is_end(token)) {
      g.finish_reason = "stop";
      return;
    }
    g.tokens.push_back(token);
    r.token = token;
    if (s_.rank() == 0 && q.on_token) q.on_token(token);
    if (stop == kEndsText)
      g.finish_reason = "stop";
    else if (static_cast<i64>(g.tokens.size()) == q.max_tokens)
      g.finish_reason = "length";
  }

  Session& s_;
  std::span<const Request> requests_;
  std::vector<Generated> results_;
  i64 most_tokens_, V_;
  size_t next_ = 0;
  std::vector<i64> free_;
  std::vector<Running> running_;
  std::vector<Piece> pieces_;
  std::vector<size_t> drawing_;  // of running_, by piece
  std::vector<i64> tokens_, stops_;
  bool interrupted_ = false;
  std::vector<kernels::SampleScratch> scratch_;  // by thread
};

}  // namespace

std::vector<Generated> generate_all(Session& s, std::span<const Request> requests,
                                    const std::function<void(i64, const Generated&)>& done) {
  const ServingPlan& p = s.plan();
  return Batch(s, requests, p.sequences(), p.bounds.size.at('T'), p.config.V).run(done);
}

Generated generate(Session& s, const Request& r) { return std::move(generate_all(s, {&r, 1})[0]); }

}  // namespace plait::serve
