// Memory of a rank: what is resident while it runs, and what a cap refuses, shrinks and allows.
#include <fstream>

#include "plait/serve/test_models.h"

namespace plait::serve {
namespace {

using testing::HasSubstr;
constexpr i64 kMiB = i64{1} << 20;

/// Resident bytes of this process: of its own memory, of files, of memory that ranks share.
struct Resident {
  i64 own = 0, file = 0, shared = 0;
};
Resident resident() {
  Resident r;
  std::ifstream f("/proc/self/status");
  for (std::string word; f >> word;)
    for (auto& [name, to] : {std::pair{"RssAnon:", &r.own}, {"RssFile:", &r.file}, {"RssShmem:", &r.shared}})
      if (word == name) {
        f >> *to;
        *to *= 1024;
      }
  return r;
}

ServingOptions options(const std::string& plan, const std::string& dtype, i64 context = 512) {
  ServingOptions o;
  o.plan = plan_named(plan);
  o.dtype = dtype;
  o.context = context;
  return o;
}

/// Weights are resident once, in the ranks' memory, and the file they came from is not.
void expect_resident_once(const io::ModelFiles& files, const std::string& plan, const std::string& dtype) {
  const ServingPlan p = make_serving_plan(files, options(plan, dtype));
  i64 weights = 0, most = 0;
  for (auto& m : p.memory) {
    weights += m.weights();
    most += m.total();
  }
  const Resident before = resident();
  Resident during;
  Engine engine(files, p, {.threads = 1});
  engine.run([&](Session& s) {
    s.forward(std::vector<i64>(40, 5));
    s.agree(0, 0);
    if (s.rank() == 0) during = resident();
    s.agree(0, 0);
  });
  const Resident after = resident();
  const std::string what = fmt::format("{} {} {}: weights {}, planned {}", files.path(), plan, dtype, weights, most);
  // Programs, names and stacks of threads take some memory that the accounting leaves out, for each rank.
  const i64 aside = 6 * kMiB * p.world();
  EXPECT_GE(during.own - before.own, weights) << what;
  EXPECT_LE(during.own + during.shared - before.own - before.shared, most + aside) << what;
  EXPECT_LE(during.file - before.file, 8 * kMiB) << what;
  EXPECT_LE(after.own - before.own, aside) << what << ", after it";
  testing::Test::RecordProperty(plan + " " + dtype,
                                fmt::format("weights {:.1f} planned {:.1f} own {:.1f} shared {:.1f} file {:.1f} MiB",
                                            static_cast<double>(weights) / kMiB, static_cast<double>(most) / kMiB,
                                            static_cast<double>(during.own - before.own) / kMiB,
                                            static_cast<double>(during.shared - before.shared) / kMiB,
                                            static_cast<double>(during.file - before.file) / kMiB));
}

TEST(Memory, weights_are_resident_once) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer's memory is in the way";
#endif
  NEED_SMOLLM2(path);
  io::ModelFiles files(path);
  expect_resident_once(files, "1", "auto");
  expect_resident_once(files, "3", "auto");
  expect_resident_once(files, "2", "bf16");
  // A file whose type is kept, in rows and transposed: 40 MiB of GPT-2.
  io::TempFolder t;
  json config = reference("gpt2_small.json").at("config");
  config["n_embd"] = 576;
  config["n_positions"] = 512;
  RandomModel m(config);
  write_hf(m, t / "hf");
  expect_resident_once(io::ModelFiles(t / "hf"), "2", "f32");
}

/// The error that a plan ends with; "" when it fits.
std::string refusal(const io::ModelFiles& files, const ServingOptions& o) {
  try {
    make_serving_plan(files, o);
    return "";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::does_not_fit) << e.what();
    return e.what();
  }
}

i64 largest(const ServingPlan& p) {
  i64 most = 0;
  for (auto& m : p.memory) most = std::max(most, m.total());
  return most;
}

// A cap that one rank exceeds and several keep: refused with the part and the degree; that degree runs, and its text is
// that of one rank without a cap.
TEST(Memory, a_cap_that_needs_more_ranks) {
  NEED_SMOLLM2(path);
  io::ModelFiles files(path);
  ServingOptions o = options("1", "auto", 0);
  o.max_rank_memory = 60 * kMiB;
  const i64 file_before = resident().file;
  const std::string text = refusal(files, o);
  EXPECT_LE(resident().file - file_before, 4 * kMiB) << "weights were read";
  EXPECT_THAT(text, HasSubstr("the weights overflow it"));
  EXPECT_THAT(text, HasSubstr("the cap is 60.0 MiB"));
  EXPECT_THAT(text, HasSubstr("the smallest degree that fits is 2"));
  for (const char* part : {"embedding", "attention", "FFN", "norms", "KV cache", "arena", "inputs", "communication"})
    EXPECT_THAT(text, HasSubstr(part));

  const RunRequest q{.prompt = {504, 28899, 2060, 8354}, .greedy = 12, .all_rows = false};
  const Outcome one = run(files, options("1", "auto"), q);
  for (std::string plan : {"2", "3"}) {
    o.plan = plan_named(plan);
    const ServingPlan p = make_serving_plan(files, o);
    EXPECT_LE(largest(p), o.max_rank_memory);
    EXPECT_EQ(p.context_shrunk, p.context < 4096);
    const Outcome out = run(files, o, q);
    EXPECT_EQ(out.greedy, one.greedy);
    EXPECT_EQ(out.hash, one.hash);
    for (auto& r : out.reports) EXPECT_LE(r.memory.total(), o.max_rank_memory);
  }
}

// Every degree against every cap: refused exactly where the largest rank of the shortest context is over it, and the
// degree that the message names is the smallest that is not refused.
TEST(Memory, the_named_degree_is_the_smallest) {
  NEED_SMOLLM2(path);
  io::ModelFiles files(path);
  for (i64 cap : {20, 35, 45, 60, 90, 130}) {
    std::map<i64, std::string> texts;
    for (i64 n = 1; n <= 9; n++) {
      ServingOptions o = options(std::to_string(n), "auto", 0);
      o.max_rank_memory = cap * kMiB;
      texts[n] = refusal(files, o);
    }
    for (i64 n = 1; n <= 9; n++) {
      if (texts[n].empty()) continue;
      i64 fits = n + 1;
      while (fits <= 9 && !texts[fits].empty()) fits++;
      const std::string want =
          fits <= 9 ? fmt::format("the smallest degree that fits is {}", fits) : std::string("no degree fits");
      EXPECT_THAT(texts[n], HasSubstr(want)) << cap << " MiB on " << n;
    }
  }
  ServingOptions o = options("3,1", "auto", 0);  // of unequal ranks: how many equal ones
  o.max_rank_memory = 60 * kMiB;
  EXPECT_THAT(refusal(files, o), HasSubstr("the smallest degree that fits is 2"));
}

// The default context shrinks to fit, and says so; one that was asked for does not.
TEST(Memory, only_the_default_context_shrinks) {
  NEED_SMOLLM2(path);
  io::ModelFiles files(path);
  ServingOptions o = options("1", "auto", 0);
  const ServingPlan whole = make_serving_plan(files, o);
  EXPECT_EQ(whole.context, 4096);
  EXPECT_FALSE(whole.context_shrunk);
  o.max_rank_memory = largest(whole);
  EXPECT_FALSE(make_serving_plan(files, o).context_shrunk);
  o.max_rank_memory--;
  const ServingPlan shrunk = make_serving_plan(files, o);
  EXPECT_TRUE(shrunk.context_shrunk);
  EXPECT_EQ(shrunk.context, 2048);
  EXPECT_LE(largest(shrunk), o.max_rank_memory);
  o.context = 4096;
  EXPECT_THAT(refusal(files, o), HasSubstr("arena, inputs and communication buffers overflow it"));
  o.max_rank_memory = whole.memory[0].weights() + whole.memory[0].kv / 2 + 16 * kMiB;
  const std::string text = refusal(files, o);
  EXPECT_THAT(text, HasSubstr("the KV cache overflow"));
  EXPECT_THAT(text, HasSubstr("at a context of 4096"));
  o.context = 2048;
  EXPECT_EQ(refusal(files, o), "");
}

}  // namespace
}  // namespace plait::serve
