// The engine's own promises: what --reduce costs in bits, numbers that overflow, ranks that disagree, caps on memory.
#include "plait/serve/test_models.h"
#include "plait/serve/verify.h"

namespace plait::serve {
namespace {

using testing::HasSubstr;

ServingOptions options(const std::string& plan, const std::string& dtype = "auto") {
  ServingOptions o;
  o.plan = plan_named(plan);
  o.dtype = dtype;
  return o;
}

/// `plait verify --reduce` of a model: within what the documents promise, and truly other bits.
void expect_reduce_within(const io::ModelFiles& files, const std::string& name, const std::vector<i64>& prompt,
                          bool every) {
  for (std::string reduce : {"f32", "bf16"})
    for (std::string dtype : {"f32", "bf16"})
      for (std::string plan : {"2", "3"}) {
        if (!every && (plan == "2") != (reduce == dtype)) continue;
        ServingOptions o = options(plan, dtype);
        o.reduce = reduce;
        const VerifyResult r = verify(files, o, {.threads = 1}, {prompt, 4});
        const std::string what = fmt::format("{} --reduce {} --dtype {} {}", name, reduce, dtype, plan);
        double worst = 0, logits = 0;
        std::string where;
        i64 different = 0;
        for (auto& row : r.rows) {
          different += row.different;
          if (row.label == "logits") logits = std::max(logits, row.relative());
          if (row.relative() <= worst) continue;
          worst = row.relative();
          where = row.label;
        }
        const double promised = reduce == "f32" && dtype == "f32" ? 1e-4 : 2e-2;
        EXPECT_EQ(r.tolerance, promised);
        EXPECT_LE(logits, promised) << what;
        testing::Test::RecordProperty(what, fmt::format("logits {:.2e}, all {:.2e} {}", logits, worst, where));
        EXPECT_TRUE(r.same) << what << ": " << worst << " in " << where;
        EXPECT_GT(r.tolerance, 0);
        EXPECT_GT(different, 0) << what << ": the exact sums were made";
      }
}

TEST(Reduce, within_tolerance_on_a_small_model) {
  io::TempFolder t;
  RandomModel m(reference("llama_small.json").at("config"));
  write_hf(m, t / "hf");
  expect_reduce_within(io::ModelFiles(t / "hf"), "small", some_tokens(16, m.V), true);
}

TEST(Reduce, within_tolerance_on_smollm2) {
  NEED_SMOLLM2(path);
  expect_reduce_within(io::ModelFiles(path), "SmolLM2", some_tokens(12, 40000), long_run());
}

// A weight so large that a partial sum leaves the range of exact sums, or of f32: found where it is made, on whichever
// rank that is, and never a wrong token.
TEST(Overflow, names_op_layer_and_token) {
  io::TempFolder t;
  RandomModel m(reference("llama_small.json").at("config"));
  for (float scale : {1e9f, 1e20f, 3e38f}) {
    m.change = [&](const std::string& state, Values& w) {
      if (state != "layers.1.down") return;
      for (size_t i = 0; i < w.size(); i++)
        if (static_cast<i64>(i) % m.F >= m.F - 16) w[i] *= scale;  // the last columns: the last rank's
    };
    const std::string folder = t / fmt::format("{}", scale);
    write_hf(m, folder);
    io::ModelFiles files(folder);
    for (std::string plan : {"1", "3"})
      for (std::string dtype : {"f32", "bf16"}) {
        const std::string at_once = text_of_error(Code::not_finite, [&] {
          run(files, options(plan, dtype), {.prompt = some_tokens(5, m.V), .all_rows = false});
        });
        EXPECT_THAT(at_once, HasSubstr("matmul (layers.1.down) of layer 1"));
        EXPECT_THAT(at_once, HasSubstr("positions 0 to 4"));
        const std::string single = text_of_error(Code::not_finite, [&] {
          run(files, options(plan, dtype), {.prompt = some_tokens(5, m.V), .chunks = {1}, .all_rows = false});
        });
        EXPECT_THAT(single, HasSubstr("token at position 0"));
      }
  }
}

// Only one token's embedding overflows: the error names the position at which it stands, after good steps before it.
TEST(Overflow, at_a_later_token) {
  io::TempFolder t;
  RandomModel m(reference("gpt2_small.json").at("config"));
  m.change = [&](const std::string& state, Values& w) {
    for (i64 d = 0; state == "positions" && d < m.D; d++)
      w[static_cast<size_t>(7 * m.D + d)] = d % 2 == 0 ? 3e38f : -3e38f;
  };
  write_hf(m, t / "hf");
  io::ModelFiles files(t / "hf");
  for (std::string plan : {"1", "2"}) {
    const std::string text = text_of_error(Code::not_finite, [&] {
      run(files, options(plan, "f32"), {.prompt = some_tokens(12, m.V), .chunks = {4, 1}, .all_rows = false});
    });
    EXPECT_THAT(text, HasSubstr("position 7"));
  }
}

TEST(Agreement, ranks_with_different_tokens_are_told) {
  io::TempFolder t;
  write_hf(RandomModel(reference("llama_small.json").at("config")), t / "hf");
  io::ModelFiles files(t / "hf");
  for (std::string plan : {"2", "2x2", "5"}) {
    Engine engine(files, make_serving_plan(files, options(plan)), {.threads = 1});
    std::atomic<i64> agreed{0};
    const std::string text = text_of_error(Code::differs, [&] {
      engine.run([&](Session& s) {
        EXPECT_EQ(s.agree(17, s.rank() == 1 ? 1 : 0), 1);  // the same token; a stop of one stops all
        EXPECT_EQ(s.agree(0, 0), 0);
        agreed++;
        s.agree(s.rank() == 1 ? 41 : 40, 0);
      });
    });
    EXPECT_EQ(agreed, engine.plan().world());
    EXPECT_THAT(text, HasSubstr("different tokens, 40 to 41"));
  }
}

TEST(Session, context_and_vocabulary_are_kept) {
  io::TempFolder t;
  RandomModel m(reference("llama_small.json").at("config"));
  write_hf(m, t / "hf");
  io::ModelFiles files(t / "hf");
  ServingOptions o = options("2");
  o.context = 32;
  EXPECT_THAT(
      text_of_error(Code::does_not_fit, [&] { run(files, o, {.prompt = some_tokens(33, m.V), .all_rows = false}); }),
      HasSubstr("context of 32"));
  EXPECT_NO_THROW(run(files, o, {.prompt = some_tokens(32, m.V), .all_rows = false}));
  EXPECT_THAT(text_of_error(Code::usage,
                            [&] {
                              run(files, o, {.prompt = {0, 257}, .all_rows = false});
                            }),
              HasSubstr("token 257"));
  o.context = 257;
  EXPECT_THAT(text_of_error(Code::usage, [&] { make_serving_plan(files, o); }), HasSubstr("256 positions"));
}

// A sequence begun anew in the same session gives the bits of a first one, whatever the cache holds.
TEST(Session, reset_begins_anew) {
  io::TempFolder t;
  RandomModel m(reference("llama_small.json").at("config"));
  write_hf(m, t / "hf");
  io::ModelFiles files(t / "hf");
  Engine engine(files, make_serving_plan(files, options("3")), {.threads = 1});
  engine.run([&](Session& s) {
    auto logits_of = [&](i64 n) {
      auto l = s.forward(some_tokens(n, m.V));
      return Values(l.begin(), l.end());
    };
    const Values first = logits_of(20);
    s.reset();
    EXPECT_NE(logits_of(150), first);
    s.reset();
    EXPECT_EQ(logits_of(20), first);
  });
}

}  // namespace
}  // namespace plait::serve
