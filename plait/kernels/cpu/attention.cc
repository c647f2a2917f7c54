// attention_paged "t (k g) h, c k h, c k h, t, t, b p -> t (k g) h": each token attends to positions 0 ... position[t]
// of its sequence, which lie in a cache of pages: position s in slot table[sequence[t], s / page] * page + s % page.
//   in   queries [T N H]; keys [C K H] in pages (pages.h), values [C K H] in rows: one type, f32 or bf16;
//        position, sequence [T], table [B P]: i32. A token of negative position or sequence is padding: a zero row.
//   out  [T N H] f32 or bf16
//   attributes  scale; page (a multiple of 16); window (optional: the last `window` positions only);
//               max_positions (default P * page)
//
// Method. The cache is cut into blocks of 128 positions from the sequence's start. A block gives each row of queries
// its own max m_b, sum l_b and weighted values o_b; these are rescaled to the final max and added as exact sums, so
// that blocks may be computed by any thread in any order (docs/numerics.md "Attention"). Tokens are taken in tiles
// whose partial results fit the scratch; a task is (some tokens of one sequence, a KV head, a block): the rows of
// queries of a KV head's group share each load of its keys and values. Threads take tasks from a counter.
#include <atomic>

#include "plait/kernels/cpu/functions.h"
#include "plait/kernels/cpu/ops.h"
#include "plait/kernels/cpu/pages.h"
#include "plait/kernels/cpu/rows.h"

namespace plait::kernels {

namespace {

constexpr i64 kScratchFloats = i64{1} << 18;  // of a tile, unless one token needs more
constexpr i64 kAloneWork = 1 << 18;           // multiplications below which a call stays on the caller's thread

class Attention {
 public:
  Attention(const Args& a, Isa isa);
  void run(Context& c);

 private:
  /// What a token needs, found out at the start of a call.
  struct Token {
    i64 sequence = 0, first = 0, last = -1;  // positions
    i64 partials = 0;                        // where its partial results begin
    i64 first_block() const { return first / kAttentionBlock; }
    i64 blocks() const { return last < 0 ? 0 : last / kAttentionBlock - first_block() + 1; }
  };
  /// Consecutive tokens of one sequence, and the number of the first of their tasks.
  struct Run {
    i64 begin = 0, end = 0, first_block = 0, blocks = 0, first_task = 0;
  };

  void read_tokens();
  i64 take_tile(i64 begin);
  void task(const Run& r, i64 head, i64 block) const;
  bool finish(i64 token, i64 head) const;
  i64 slot(i64 sequence, i64 position) const {
    i64 s = table_.at<const std::int32_t>(sequence)[position / page_] * page_ + position % page_;
    PLAIT_CHECK(s >= slots_.begin && s < slots_.end,
                "attention_paged: position {} of sequence {} lies in slot {} of {}", position, sequence, s,
                to_string(slots_));
    return s - slots_.begin;
  }
  float* partial(i64 token, i64 head, i64 block) {
    return scratch_ + (token_[at(token)].partials + (head - heads_.begin) * token_[at(token)].blocks() + block) * step_;
  }
  const float* partial(i64 token, i64 head, i64 block) const {
    return const_cast<Attention*>(this)->partial(token, head, block);
  }
  size_t at(i64 token) const { return static_cast<size_t>(token - tokens_.begin); }

  AttentionBlockFn block_;
  AttentionJoinFn join_;
  RowsOf query_, out_, position_, sequence_, table_;
  DType type_, out_type_;
  const std::byte *keys_, *values_;
  Range tokens_, heads_, kv_, slots_, sequences_;
  i64 query_heads_, out_heads_;  // first head that the tensors hold
  i64 kv_heads_;                 // that the cache holds
  i64 h_, group_, page_, window_, max_positions_, width_, step_;
  float scale_, limit_;
  i64 scratch_floats_;
  float* scratch_ = nullptr;
  std::vector<Token> token_;
  std::vector<Run> runs_;
  i64 run_count_ = 0, task_count_ = 0;
};

Attention::Attention(const Args& a, Isa isa)
    : query_(a.in[0]), out_(a.out[0]), position_(a.in[3]), sequence_(a.in[4]), table_(a.in[5]) {
  const View &q = a.in[0], &keys = a.in[1], &out = a.out[0], &table = a.in[5];
  type_ = q.dtype;
  out_type_ = out.dtype;
  const Functions& f = functions(isa);
  block_ = f.attention_block[type_index(type_)];
  join_ = f.attention_join[type_index(out_type_)];
  keys_ = keys.as<std::byte>();
  values_ = a.in[2].as<std::byte>();
  tokens_ = a.range(a.out_terms[0][0]);
  heads_ = a.range(a.out_terms[0][1]);
  kv_ = keys.box[1];
  slots_ = keys.box[0];
  sequences_ = table.box[0];
  query_heads_ = q.box[1].begin;
  out_heads_ = out.box[1].begin;
  kv_heads_ = kv_.size();
  h_ = out.size(2);
  group_ = a.group;
  page_ = static_cast<i64>(a.attr("page"));
  window_ = static_cast<i64>(a.attr("window", 0));
  i64 held = table.size(1) * page_;
  max_positions_ = std::min(held, static_cast<i64>(a.attr("max_positions", static_cast<double>(held))));
  scale_ = static_cast<float>(a.attr("scale"));
  width_ = round_up(h_, 16);
  step_ = width_ + 16;
  i64 blocks = ceil_div(std::max<i64>(max_positions_, 1), kAttentionBlock);
  limit_ = 0x1p22f / static_cast<float>(std::max(a.model_leaves, blocks));
  i64 one = heads_.size() * blocks * step_;
  scratch_floats_ = std::max(one, std::min(kScratchFloats, one * tokens_.size()));
  token_.resize(static_cast<size_t>(tokens_.size()));
  runs_.resize(token_.size());
}

void Attention::read_tokens() {
  for (i64 t = tokens_.begin; t < tokens_.end; t++) {
    Token& x = token_[at(t)];
    i64 position = *position_.at<const std::int32_t>(t);
    x.sequence = *sequence_.at<const std::int32_t>(t);
    x.first = window_ > 0 ? std::max<i64>(0, position - window_ + 1) : 0;
    x.last = x.sequence < 0 ? -1 : position;
    if (x.last < 0) continue;
    PLAIT_CHECK(x.last < max_positions_ && x.sequence < sequences_.end && x.sequence >= sequences_.begin,
                "attention_paged: token {} has position {} of {} in sequence {} of {}", t, x.last, max_positions_,
                x.sequence, to_string(sequences_));
  }
}

/// Tokens from `begin` whose partial results fit the scratch, cut into runs and tasks; returns their end.
i64 Attention::take_tile(i64 begin) {
  i64 used = 0, end = begin, n = heads_.size(), group_rows = std::min(group_, n);
  i64 run_tokens = std::max<i64>(1, kAttentionRows / group_rows);
  i64 capacity = scratch_floats_ / step_;
  for (; end < tokens_.end; end++) {
    Token& x = token_[at(end)];
    if (end > begin && used + n * x.blocks() > capacity) break;
    x.partials = used;
    used += n * x.blocks();
  }
  i64 kv_heads = (heads_.end - 1) / group_ - heads_.begin / group_ + 1;
  run_count_ = task_count_ = 0;
  for (i64 t = begin; t < end;) {
    Run r{.begin = t, .end = t, .first_block = token_[at(t)].first_block(), .first_task = task_count_};
    i64 last_block = r.first_block - 1;
    while (r.end < end && r.end - t < run_tokens && token_[at(r.end)].sequence == token_[at(t)].sequence) {
      const Token& x = token_[at(r.end)];
      if (x.blocks() == 0) {
        if (r.end == t) r.end++;
        break;
      }
      r.first_block = std::min(r.first_block, x.first_block());
      last_block = std::max(last_block, x.last / kAttentionBlock);
      r.end++;
    }
    r.blocks = last_block - r.first_block + 1;
    task_count_ += r.blocks * kv_heads;
    t = r.end;
    runs_[static_cast<size_t>(run_count_++)] = r;
  }
  return end;
}

void Attention::task(const Run& r, i64 head, i64 block) const {
  const void *keys[kAttentionBlock / kPageSlots], *values[kAttentionBlock], *queries[kAttentionRows];
  float* o[kAttentionRows];
  Range used[kAttentionRows];
  i64 origin = block * kAttentionBlock, rows = 0;
  Range all{kAttentionBlock, 0}, group = heads_ & Range{head * group_, (head + 1) * group_};
  for (i64 t = r.begin; t < r.end; t++) {
    const Token& x = token_[at(t)];
    Range in_block{std::max<i64>(x.first - origin, 0), std::min(x.last + 1 - origin, kAttentionBlock)};
    if (in_block.empty()) continue;
    all = {std::min(all.begin, in_block.begin), std::max(all.end, in_block.end)};
    for (i64 n = group.begin; n < group.end; n++, rows++) {
      queries[rows] = query_.at<const std::byte>(t) + (n - query_heads_) * h_ * size_of(type_);
      o[rows] = const_cast<float*>(partial(t, n, block - x.first_block()));
      used[rows] = in_block;
    }
  }
  if (rows == 0) return;
  i64 sequence = token_[at(r.begin)].sequence, local = head - kv_.begin;
  i64 panel_bytes = page_panel_elements(type_, h_) * size_of(type_), row_bytes = h_ * size_of(type_);
  for (i64 p = all.begin / kPageSlots; p < ceil_div(all.end, kPageSlots); p++) {
    i64 s = slot(sequence, origin + p * kPageSlots);
    keys[p] = keys_ + (s / kPageSlots * kv_heads_ + local) * panel_bytes;
    for (i64 i = 0; i < kPageSlots; i++)
      values[p * kPageSlots + i] = values_ + ((s + i) * kv_heads_ + local) * row_bytes;
  }
  block_({.rows = rows,
          .h = h_,
          .width = width_,
          .panels = kAttentionBlock / kPageSlots,
          .positions = all,
          .keys = keys,
          .values = values,
          .queries = queries,
          .used = used,
          .scale = scale_,
          .o = o});
}

bool Attention::finish(i64 token, i64 head) const {
  i64 size = size_of(out_type_);
  std::byte* out = out_.at<std::byte>(token) + (head - out_heads_) * h_ * size;
  i64 blocks = token_[at(token)].blocks();
  if (blocks == 0) {
    std::memset(out, 0, static_cast<size_t>(h_ * size));
    return true;
  }
  return join_(partial(token, head, 0), blocks, step_, width_, h_, limit_, out);
}

void Attention::run(Context& c) {
  if (tokens_.empty() || heads_.empty()) return;
  scratch_ = reinterpret_cast<float*>(c.scratch(scratch_floats_ * 4));
  read_tokens();
  i64 first_head = heads_.begin / group_, n = heads_.size();
  std::atomic<bool> fits{true};
  for (i64 begin = tokens_.begin, end; begin < tokens_.end; begin = end) {
    end = take_tile(begin);
    std::atomic<i64> next{0};
    auto blocks = [&](i64, i64) {
      i64 run = 0;
      for (i64 i = next.fetch_add(1, std::memory_order_relaxed); i < task_count_;
           i = next.fetch_add(1, std::memory_order_relaxed)) {
        while (run + 1 < run_count_ && runs_[static_cast<size_t>(run + 1)].first_task <= i) run++;
        const Run& r = runs_[static_cast<size_t>(run)];
        i64 k = i - r.first_task;
        task(r, first_head + k / r.blocks, r.first_block + k % r.blocks);
      }
    };
    auto joins = [&](Range rows) {
      bool all = true;
      for (i64 i = rows.begin; i < rows.end; i++) all &= finish(begin + i / n, heads_.begin + i % n);
      if (!all) fits.store(false, std::memory_order_relaxed);
    };
    i64 work = 0;
    for (i64 t = begin; t < end; t++) work += n * h_ * (token_[at(t)].last + 1 - token_[at(t)].first);
    if (work < kAloneWork) {
      blocks(0, 1);
      joins({0, (end - begin) * n});
    } else {
      c.team.run(blocks);
      c.team.split((end - begin) * n, 4, joins);
    }
  }
  if (!fits) c.overflow = true;
}

std::string why_not(const Args& a) {
  const View &q = a.in[0], &keys = a.in[1], &values = a.in[2], &out = a.out[0];
  if (!is_real(q.dtype) || q.dtype != keys.dtype || q.dtype != values.dtype || !is_real(out.dtype))
    return fmt::format("queries of {}, a cache of {} and {}, a result of {}", name_of(q.dtype), name_of(keys.dtype),
                       name_of(values.dtype), name_of(out.dtype));
  if (keys.layout != Layout::pages || values.layout != Layout::rows) return "keys not in pages or values not in rows";
  for (size_t i = 3; i < 6; i++)
    if (a.in[i].dtype != DType::i32) return fmt::format("an index of {}", name_of(a.in[i].dtype));
  if (out.size(2) > kAttentionHead) return fmt::format("a head of {}, at most {}", out.size(2), kAttentionHead);
  i64 page = static_cast<i64>(a.attr("page"));
  if (page < kPageSlots || page % kPageSlots != 0) return fmt::format("pages of {}, not a multiple of 16", page);
  return "";
}

}  // namespace

Result<Run> prepare_attention_paged(const Args& a, Isa isa) {
  PLAIT_CHECK(a.in.size() == 6 && a.out.size() == 1, "attention_paged: {} operands", a.in.size());
  if (std::string why = why_not(a); !why.empty()) return Result<Run>::no(why);
  Range tokens = a.range(a.out_terms[0][0]), heads = a.range(a.out_terms[0][1]);
  const View &q = a.in[0], &keys = a.in[1], &values = a.in[2], &out = a.out[0];
  Range kv = heads.empty() ? Range{} : Range{heads.begin / a.group, (heads.end - 1) / a.group + 1};
  PLAIT_CHECK(q.box[0].contains(tokens) && q.box[1].contains(heads) && out.box[0].contains(tokens) &&
                  out.box[1].contains(heads) && keys.box[1].contains(kv) && values.box == keys.box &&
                  a.in[3].box[0].contains(tokens) && a.in[4].box[0].contains(tokens) && q.box[2] == out.box[2] &&
                  keys.box[2] == q.box[2] && a.in[5].box[1].begin == 0,
              "attention_paged: queries {}, keys {}, values {}, result {}; tokens {}, heads {}", to_string(q.box),
              to_string(keys.box), to_string(values.box), to_string(out.box), to_string(tokens), to_string(heads));
  PLAIT_CHECK(keys.box[0].begin % kPageSlots == 0 && keys.size(0) % kPageSlots == 0,
              "attention_paged: a cache {} in pages of {}", to_string(keys.box), kPageSlots);
  auto attention = std::make_shared<Attention>(a, isa);
  return Run([attention](Context& c) { attention->run(c); });
}

}  // namespace plait::kernels
