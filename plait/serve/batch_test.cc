// Sequences that are written together: each has the bits that it has alone, however they join, leave and share runs.
#include "plait/base/hash.h"
#include "plait/serve/test_models.h"

namespace plait::serve {
namespace {

ServingOptions options(const std::string& plan, const std::string& dtype, i64 sequences, i64 chunk = 512) {
  ServingOptions o;
  o.plan = plan_named(plan);
  o.dtype = dtype;
  o.context = 64;
  o.sequences = sequences;
  o.prefill_chunk = chunk;
  return o;
}

std::vector<i64> tokens_from(i64 seed, i64 count, i64 V) {
  std::vector<i64> t;
  for (i64 i = 0; i < count; i++) t.push_back((seed * 131 + i * 7919 + 13) % V);
  return t;
}

/// Prompts of unlike lengths, greedy and drawn, that end at unlike times.
std::vector<Request> requests(i64 V) {
  std::vector<Request> all;
  for (i64 i = 0; i < 7; i++) {
    Request r;
    r.prompt = tokens_from(i, 1 + i * i, V);
    r.max_tokens = i == 5 ? 20 : 3 + (i * 5) % 11;
    if (i % 2 == 1) r.sampling = {.temperature = 0.9f, .top_k = 40, .seed = static_cast<u64>(i)};
    all.push_back(std::move(r));
  }
  all[5].is_end = [](i64 id) { return id % 3 == 0; };
  return all;
}

void write_models(const io::TempFolder& t) {
  for (std::string name : {"llama_small", "gpt2_small", "gemma3_small"})
    write_hf(RandomModel(reference(name + ".json").at("config")), t / name);
}

std::vector<Generated> together(const io::ModelFiles& files, const ServingOptions& o, const std::vector<Request>& all,
                                i64 threads = 1, std::vector<i64>* order = nullptr) {
  Engine engine(files, make_serving_plan(files, o), {.threads = threads});
  std::vector<Generated> out;
  engine.run([&](Session& s) {
    auto done = [&](i64 i, const Generated&) {
      if (order != nullptr) order->push_back(i);
    };
    auto g = generate_all(s, all, done);
    if (s.rank() == 0) out = std::move(g);
  });
  return out;
}

TEST(Batch, TokensAreThoseOfEachAlone) {
  io::TempFolder t;
  write_models(t);
  for (std::string name : {"llama_small", "gpt2_small", "gemma3_small"})
    for (std::string dtype : {"f32", "bf16"}) {
      io::ModelFiles files(t / name);
      const auto all = requests(make_serving_plan(files, options("1", dtype, 1)).config.V);
      std::vector<Generated> alone;
      for (auto& r : all) alone.push_back(together(files, options("1", dtype, 1), {r})[0]);
      EXPECT_EQ(alone[5].finish_reason, "stop");
      struct Case {
        const char* plan;
        i64 sequences, chunk, threads;
      };
      for (const Case& c : {Case{"1", 1, 512, 1},
                            {"1", 3, 512, 2},
                            {"1", 8, 5, 1},
                            {"3", 3, 4, 1},
                            {"2s", 4, 16, 1},
                            {"3,1", 7, 512, 1}}) {
        const auto g = together(files, options(c.plan, dtype, c.sequences, c.chunk), all, c.threads);
        ASSERT_EQ(g.size(), all.size());
        for (size_t i = 0; i < g.size(); i++) {
          EXPECT_EQ(g[i].tokens, alone[i].tokens) << name << " " << dtype << " " << c.plan << ": request " << i;
          EXPECT_EQ(g[i].finish_reason, alone[i].finish_reason);
        }
      }
    }
}

// Logits, bit by bit: a run of pieces of several sequences against each sequence by itself.
TEST(Batch, LogitsAreThoseOfEachAlone) {
  io::TempFolder t;
  write_models(t);
  for (std::string name : {"llama_small", "gpt2_small", "gemma3_small"})
    for (std::string dtype : {"f32", "bf16"}) {
      io::ModelFiles files(t / name);
      const ServingOptions one = options("1", dtype, 1), many = options("2", dtype, 3);
      Engine alone(files, make_serving_plan(files, one), {.threads = 1});
      Engine batch(files, make_serving_plan(files, many), {.threads = 2});
      const i64 V = alone.plan().config.V;
      const std::vector<i64> a = tokens_from(1, 20, V), b = tokens_from(2, 9, V), c = tokens_from(3, 31, V);
      std::vector<u64> want, got;
      auto hash = [&](std::span<const float> l, i64 row) {
        return hash_bytes(l.data() + row * V, V * static_cast<i64>(sizeof(float)));
      };
      alone.run([&](Session& s) {
        for (auto& p : {a, b, c}) {
          s.reset();
          s.forward_all(std::span(p), [&](i64, std::span<const float> l) { want.push_back(hash(l, 0)); });
        }
      });
      // Rows of `want` at the ends of the pieces.
      const std::vector<size_t> at{6, 20 + 3, 19, 29 + 30, 20 + 4};
      batch.run([&](Session& s) {
        std::vector<u64> mine;
        auto step = [&](std::vector<Piece> pieces) {
          const auto l = s.step(pieces);
          for (i64 r = 0; r < static_cast<i64>(pieces.size()); r++) mine.push_back(hash(l, r));
        };
        step({{2, std::span(a).first(7)}, {0, std::span(b).first(4)}});
        step({{2, std::span(a).subspan(7)}, {1, std::span(c)}, {0, std::span(b).subspan(4, 1)}});
        if (s.rank() == 0) got = mine;
      });
      ASSERT_EQ(got.size(), at.size());
      for (size_t i = 0; i < at.size(); i++) EXPECT_EQ(got[i], want[at[i]]) << name << " " << dtype << " row " << i;
    }
}

// A place that becomes free goes to the next prompt: with two places the short ones end while the long one runs.
TEST(Batch, JoinAndLeave) {
  io::TempFolder t;
  write_models(t);
  io::ModelFiles files(t / "llama_small");
  std::vector<Request> all(4);
  for (size_t i = 0; i < all.size(); i++) {
    all[i].prompt = tokens_from(static_cast<i64>(i), 5, 257);
    all[i].max_tokens = i == 0 ? 20 : 4;
  }
  std::vector<i64> order;
  const auto g = together(files, options("2", "f32", 2), all, 1, &order);
  EXPECT_EQ(order, std::vector<i64>({1, 2, 3, 0}));
  for (size_t i = 0; i < g.size(); i++) {
    EXPECT_EQ(static_cast<i64>(g[i].tokens.size()), all[i].max_tokens);
    EXPECT_EQ(g[i].finish_reason, "length");
    EXPECT_EQ(g[i].decoded, all[i].max_tokens - 1);
  }
}

TEST(Batch, StopsAndInterruptions) {
  io::TempFolder t;
  write_models(t);
  io::ModelFiles files(t / "llama_small");
  std::vector<Request> all(3);
  std::atomic<bool> interrupted{false};
  for (size_t i = 0; i < all.size(); i++) {
    all[i].prompt = tokens_from(static_cast<i64>(i), 5, 257);
    all[i].max_tokens = 20;
    all[i].interrupted = &interrupted;
  }
  const auto whole = together(files, options("1", "f32", 2), all);
  i64 asked = 0;
  all[1].stops = [&](i64 id) { return ++asked == 6 && id == whole[1].tokens[5]; };
  for (std::string plan : {"1", "3"}) {
    asked = 0;
    const auto g = together(files, options(plan, "f32", 2), all);
    EXPECT_EQ(g[1].finish_reason, "stop");
    EXPECT_EQ(g[1].tokens, std::vector<i64>(whole[1].tokens.begin(), whole[1].tokens.begin() + 6));
    EXPECT_EQ(g[0].tokens, whole[0].tokens);
    EXPECT_EQ(g[2].tokens, whole[2].tokens);
  }
  for (std::string plan : {"1", "3"}) {
    asked = 0;
    interrupted = false;
    all[0].on_token = [&, n = 0](i64) mutable { interrupted = ++n >= 4; };
    const auto g = together(files, options(plan, "f32", 2), all);
    for (auto& x : g) EXPECT_EQ(x.finish_reason, "interrupted");
    EXPECT_GE(g[0].tokens.size(), 4u);
    EXPECT_LE(g[0].tokens.size(), 6u);
    EXPECT_TRUE(g[2].tokens.empty());
  }
}

TEST(Batch, SequencesAreInThePlan) {
  io::TempFolder t;
  write_models(t);
  io::ModelFiles files(t / "gemma3_small");
  const ServingPlan one = make_serving_plan(files, options("2", "bf16", 1)),
                    eight = make_serving_plan(files, options("2", "bf16", 8));
  for (size_t r = 0; r < 2; r++) EXPECT_EQ(eight.memory[r].kv, 8 * one.memory[r].kv);
  EXPECT_EQ(eight.bounds.size.at('R'), 8);
  for (i64 n : {0, -1, 5000})
    EXPECT_THAT(text_of_error(Code::usage, [&] { make_serving_plan(files, options("1", "bf16", n)); }),
                testing::HasSubstr("--max-num-seqs"));
  Engine engine(files, eight, {.threads = 1});
  EXPECT_THAT(text_of_error(Code::does_not_fit,
                            [&] {
                              engine.run([&](Session& s) {
                                const auto tokens = tokens_from(1, 65, 257);
                                const Piece piece{3, tokens, 1};
                                s.step({&piece, 1});
                              });
                            }),
              testing::HasSubstr("context of 64"));
}

}  // namespace
}  // namespace plait::serve
