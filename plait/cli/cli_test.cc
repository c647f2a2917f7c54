// Commands as a user gives them, through run(): exit codes, messages, JSON. Models are configurations alone; what needs
// weights is in tests/cli_test.sh.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "plait/cli/app.h"
#include "plait/cli/common.h"
#include "plait/cli/machine.h"
#include "plait/cli/table.h"
#include "plait/exec/program.h"
#include "plait/io/test_support.h"

namespace plait::cli {
namespace {

using nlohmann::json;
using testing::HasSubstr;

struct Outcome {
  int code;
  std::string out, err;
};

Outcome plait(std::vector<const char*> args) {
  args.insert(args.begin(), "plait");
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  int code = run(static_cast<int>(args.size()), args.data());
  std::fflush(stdout);
  return {code, testing::internal::GetCapturedStdout(), testing::internal::GetCapturedStderr()};
}

class Cli : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + fmt::format("plait_cli_{}", getpid());
    std::filesystem::create_directories(folder_);
    config_ = write("config.json",
                    R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 576,
                        "intermediate_size": 1536, "max_position_embeddings": 8192, "num_attention_heads": 9,
                        "num_hidden_layers": 30, "num_key_value_heads": 3, "rms_norm_eps": 1e-05,
                        "tie_word_embeddings": true, "torch_dtype": "bfloat16", "vocab_size": 49152})");
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string write(const std::string& name, const std::string& text) {
    const std::string path = folder_ + "/" + name;
    std::ofstream(path) << text;
    return path;
  }
  json explain(std::vector<const char*> args) {
    args.insert(args.begin(), {"explain", config_.c_str(), "--json"});
    Outcome o = plait(args);
    EXPECT_EQ(o.code, 0) << o.err;
    return o.code == 0 ? json::parse(o.out) : json();
  }
  std::string folder_, config_;
};

json find(const json& rows, const std::string& cause) {
  for (auto& r : rows)
    if (r["cause"] == cause) return r;
  ADD_FAILURE() << "no collective of " << cause << " in " << rows.dump();
  return {};
}

TEST_F(Cli, ExplainNamesEveryCollectiveOfALlama) {
  for (const char* tp : {"2", "4", "9"}) {
    json j = explain({"-tp", tp});
    for (const char* phase : {"decode", "prefill"}) {
      const i64 tokens = phase == std::string("decode") ? 1 : 512;
      auto& rows = j["collectives"][phase];
      ASSERT_EQ(rows.size(), 4u) << rows.dump();
      for (const char* cause : {"attention output (wo)", "FFN output (down)"}) {
        json r = find(rows, cause);
        EXPECT_EQ(r["op"], "all_reduce");
        EXPECT_EQ(r["axis"], "tp");
        EXPECT_EQ(r["per_layer"], 1);
        EXPECT_EQ(r["count"], 30);
        EXPECT_EQ(r["bytes"], tokens * 576 * 8);  // exact sums travel as 64-bit integers
      }
      json e = find(rows, "embedding"), l = find(rows, "logits for the sampler");
      EXPECT_EQ(e["op"], "all_reduce");
      EXPECT_EQ(e["count"], 1);
      EXPECT_EQ(e["per_layer"], 0);
      EXPECT_EQ(e["bytes"], tokens * 576 * 4);
      EXPECT_EQ(l["op"], "all_gather");
      EXPECT_EQ(l["count"], 1);
    }
  }
}

TEST_F(Cli, ExplainCountsSumsInTheirWidth) {
  EXPECT_EQ(find(explain({"-tp", "2", "--reduce", "f32"})["collectives"]["decode"], "FFN output (down)")["bytes"],
            576 * 4);
  EXPECT_EQ(find(explain({"-tp", "2", "--reduce", "bf16"})["collectives"]["decode"], "FFN output (down)")["bytes"],
            576 * 2);
}

TEST_F(Cli, ExplainOfOneRankHasNoCollectives) {
  json j = explain({});
  EXPECT_TRUE(j["collectives"]["decode"].empty());
  EXPECT_EQ(j["ranks"].size(), 1u);
  EXPECT_EQ(j["ranks"][0]["comm_bytes"], 0);
  EXPECT_EQ(j["balance"]["decode"]["speed_up"], 1.0);
  const auto& w = j["ranks"][0]["weights"];
  EXPECT_EQ(w["embedding"], 49152 * 576 * 2);
  EXPECT_EQ(w["ffn"], 30 * 3 * 576 * 1536 * 2);
  EXPECT_EQ(w["attention"], 30 * 2 * (576 + 192) * 576 * 2);
}

TEST_F(Cli, ExplainWeightsOfRanksAddUp) {
  json one = explain({}), four = explain({"-tp", "4"});
  i64 embedding = 0, ffn = 0;
  for (auto& r : four["ranks"]) {
    embedding += r["weights"]["embedding"].get<i64>();
    ffn += r["weights"]["ffn"].get<i64>();
    i64 total = r["kv_bytes"].get<i64>() + r["arena_bytes"].get<i64>() + r["input_bytes"].get<i64>() +
                r["comm_bytes"].get<i64>() + r["weights_bytes"].get<i64>();
    EXPECT_EQ(r["total_bytes"], total);
    EXPECT_EQ(r["weights"]["norms"], one["ranks"][0]["weights"]["norms"]);
  }
  EXPECT_EQ(embedding, one["ranks"][0]["weights"]["embedding"]);
  EXPECT_EQ(ffn, one["ranks"][0]["weights"]["ffn"]);
  EXPECT_GT(four["balance"]["prefill"]["speed_up"], 2.5);
  EXPECT_LE(four["balance"]["prefill"]["speed_up"], 4);
}

TEST_F(Cli, ExplainLongPrefillGoesInRuns) {
  const json rows = explain({"-tp", "2", "--tokens", "1100"})["collectives"]["prefill"];
  ASSERT_EQ(rows.size(), 8u);
  EXPECT_EQ(rows[1]["count"], 60);
  EXPECT_EQ(rows[5]["count"], 30);
  EXPECT_EQ(rows[5]["bytes"], (1100 - 1024) * 576 * 8);
}

TEST_F(Cli, SavedPlanSaysTheSame) {
  const std::string plan = folder_ + "/plan.toml";
  json a = explain({"--tensor-split", "3,1", "--save-plan", plan.c_str()});
  json b = explain({"--plan", plan.c_str()});
  EXPECT_EQ(a, b);
  EXPECT_NE(a["ranks"][0]["kv_bytes"], a["ranks"][1]["kv_bytes"]);
}

TEST_F(Cli, ExplainTextsParse) {
  Outcome g = plait({"explain", config_.c_str(), "-tp", "2", "--graph"});
  EXPECT_EQ(Graph::parse(g.out).text(), g.out);
  Outcome s = plait({"explain", config_.c_str(), "-tp", "2", "--sharded"});
  EXPECT_EQ(ShardedGraph::parse(s.out).text(), s.out);
  Outcome p = plait({"explain", config_.c_str(), "-tp", "2", "--program", "--rank", "1"});
  EXPECT_EQ(p.out.rfind("program rank 1", 0), 0u);
}

TEST_F(Cli, WrongUseIsExitCode2) {
  const char* c = config_.c_str();
  const std::pair<std::vector<const char*>, const char*> cases[] = {
      {{}, "subcommand"},
      {{"explode"}, ""},
      {{"explain"}, "MODEL"},
      {{"explain", c, "--tpp", "2"}, "--tpp"},
      {{"explain", c, "-tp", "two"}, "two"},
      {{"explain", c, "-tp", "0"}, "want 1 or more"},
      {{"explain", c, "-tp", "10"}, "largest useful degree is 9"},
      {{"explain", c, "--tensor-split", "3,x"}, "want whole numbers"},
      {{"explain", c, "--tensor-split", "3,1", "-tp", "3"}, "2 weights for 3 ranks"},
      {{"explain", c, "--dtype", "f16"}, "want auto, f32 or bf16"},
      {{"explain", c, "--reduce", "i8"}, "want exact, f32 or bf16"},
      {{"explain", c, "--graph", "--sharded"}, "want one of them"},
      {{"explain", c, "--graph", "--json"}, "--json"},
      {{"explain", c, "--program", "--rank", "1"}, "want 0 to 0"},
      {{"explain", c, "--tokens", "0"}, "want 1 to the context"},
      {{"explain", c, "--max-rank-memory", "60XB"}, "want a size"},
      {{"explain", c, "-c", "9000"}, "the model has 8192 positions"},
      {{"bench"}, "want a MODEL"},
      {{"bench", "--comm", "-tp", "1"}, "2 ranks or more"},
      {{"bench", c, "--comm"}, "leave out MODEL"},
      {{"bench", c, "-tp", "1,x"}, "x"},
      {{"bench", c, "--repeat", "0"}, "want 1 to 1000"},
      {{"bench", c, "-tp", "1,2", "--tensor-split", "3,1"}, "one layout"},
      {{"tokenize"}, "MODEL"},
      {{"doctor", "--yaml"}, "--yaml"},
  };
  for (auto& [args, message] : cases) {
    Outcome o = plait(args);
    std::string line;
    for (auto* a : args) line += std::string(" ") + a;
    EXPECT_EQ(o.code, 2) << line << "\n" << o.err;
    EXPECT_THAT(o.err, HasSubstr(message)) << line;
    EXPECT_EQ(o.out, "") << line;
  }
}

TEST(Rewritten, ShortOptionsButNoTexts) {
  auto of = [](std::vector<const char*> args) {
    args.insert(args.begin(), "plait");
    return rewritten(static_cast<int>(args.size()), args.data());
  };
  using Words = std::vector<std::string>;
  EXPECT_EQ(of({"-tp", "2", "-dp=3", "-cp"}),
            (Words{"--tensor-parallel-size", "2", "--data-parallel-size=3", "--context-parallel-size"}));
  EXPECT_EQ(of({"-tpx", "--", "-tp"}), (Words{"-tpx", "--", "-tp"}));
  for (const char* text : {"-p", "--prompt", "--system"})
    EXPECT_EQ(of({text, "-tp", "-tp", "2"}), (Words{text, "-tp", "--tensor-parallel-size", "2"}));
}

TEST_F(Cli, WhatDoesNotFitIsExitCode3) {
  Outcome o = plait({"explain", config_.c_str(), "-c", "4096", "--max-rank-memory", "100MiB"});
  EXPECT_EQ(o.code, 3);
  EXPECT_THAT(o.err, HasSubstr("the weights overflow it"));
  EXPECT_THAT(o.err, HasSubstr("the smallest degree that fits is"));
  // The context shrinks where it was not given.
  json j = explain({"-tp", "2", "--max-rank-memory", "170MiB"});
  EXPECT_TRUE(j["context_shrunk"].get<bool>());
  EXPECT_LT(j["context"], 4096);
}

TEST_F(Cli, BadFilesAreExitCode4) {
  EXPECT_EQ(plait({"explain", "no/such/model"}).code, 4);
  EXPECT_EQ(plait({"explain", write("broken.json", "{").c_str()}).code, 4);
  EXPECT_EQ(plait({"explain", config_.c_str(), "--plan", "no/such/plan"}).code, 4);
  EXPECT_EQ(plait({"explain", config_.c_str(), "--plan", write("p.toml", "plan = 1\nspeed = 3\n").c_str()}).code, 4);
  EXPECT_EQ(plait({"tokenize", config_.c_str(), "text"}).code, 4);
  EXPECT_EQ(plait({"bench", config_.c_str()}).code, 4);  // no weights
}

// What no command reads from a file: texts made to take memory and time.
TEST_F(Cli, TextsOfGraphsThatAreTooLarge) {
  const std::string head = "graph g real f32 compute f32 sum i64 layers 1\ndim T 0\ninput %0 x f32 num [T]\n";
  std::string inputs = head, nodes = head, numbers = head + "%1 f32 num [T] = finish(%0) \"a -> a\" {", terms = head;
  for (int i = 1; i < 300'000; i++) {
    inputs += fmt::format("input %{} x{} f32 num [T]\n", i, i);
    nodes += fmt::format("%{} f32 num [T] = finish(%0) \"a -> a\"\n", i);
    numbers += fmt::format("a{} 1, ", i);
  }
  terms += "%1 f32 num [T] = finish(%0) \"";
  for (int i = 0; i < 4'000'000; i++) terms += "a,";
  const std::string sharded =
      "sharded\nplan = 1\n[[axis]]\nname = \"tp\"\nsize = 16384\ndims = \"T\"\n== graph\n" + head + "== steps\n";
  std::string reshards = sharded, holders = sharded + "place %0 : tp:@0", calls = "program rank 0\n";
  for (int i = 1; i < 300'000; i++) {
    reshards += fmt::format("reshard %{} = %0 : whole # a because b\n", i);
    holders += fmt::format(",{}", 2 * i);
    calls += "0 kernel \n";
  }
  const i64 before = io::peak_bytes();
  auto refused = [&](auto parse, const std::string& text, const char* want) {
    const clock_t begin = clock();
    io::expect_bad_file([&] { parse(text); }, want);
    EXPECT_LT(static_cast<double>(clock() - begin) / CLOCKS_PER_SEC, 1.0) << want;
    EXPECT_LT(io::peak_bytes() - before, 100'000'000) << want;
  };
  refused(Graph::parse, inputs, "at most 65536 values");
  refused(Graph::parse, nodes, "32768 nodes");
  refused(Graph::parse, numbers, "at most 32 numbers");
  refused(Graph::parse, terms, "a closing quote after at most 1024");
  refused(ShardedGraph::parse, reshards, "got more steps");
  refused(ShardedGraph::parse, holders, "at most 64 ranges");
  refused(plait::Program::parse, calls, "got more calls");
}

TEST(CliHelp, EveryCommandShowsExamples) {
  for (const char* command : {"generate", "explain", "bench", "doctor", "tokenize"}) {
    Outcome o = plait({command, "--help"});
    EXPECT_EQ(o.code, 0);
    const size_t at = o.out.find("Examples:");
    ASSERT_NE(at, std::string::npos) << command;
    EXPECT_NE(o.out.find("plait " + std::string(command), at), std::string::npos) << command;
  }
}

TEST(ParseBytes, Units) {
  EXPECT_EQ(parse_bytes("60MiB", "x"), i64{60} << 20);
  EXPECT_EQ(parse_bytes("1.5GB", "x"), 1500000000);
  EXPECT_EQ(parse_bytes("800000", "x"), 800000);
  for (const char* bad : {"", "MiB", "-1GB", "1 GB", "1e30", "nan"}) EXPECT_THROW(parse_bytes(bad, "x"), Error) << bad;
}

TEST(Table, AlignsCharactersNotBytes) {
  Table t("lr", {"a", "number"});
  t.row({"Zoë", "1"});
  t.row({"Zoey", "23"});
  EXPECT_EQ(t.text(1), " a     number\n Zoë        1\n Zoey      23\n");
}

TEST(Machine, AdviceNamesWhatIsOff) {
  Machine m;
  m.cores = 4;
  m.cpus = {0, 1};
  m.available_bytes = i64{8} << 30;
  m.isa = m.detected_isa = "avx2";
  m.huge_pages = "madvise";
  ASSERT_EQ(advice(m).size(), 1u);
  EXPECT_THAT(advice(m)[0], HasSubstr("2 of 4 cores"));
  m.cores = 2;
  EXPECT_TRUE(advice(m).empty());
  m.governor = "powersave";
  m.huge_pages = "never";
  m.cpu_quota = 1.5;
  m.isa = "portable";
  m.isa_wanted = "portable";
  m.load = 3;
  EXPECT_EQ(advice(m).size(), 5u);
}

TEST(Machine, Measures) {
  Machine m = inspect_machine();
  EXPECT_GT(m.memory_bytes, 0);
  EXPECT_FALSE(m.cpus.empty());
  const double in_cache = read_bandwidth({m.cpus[0]}, 16384);
  EXPECT_GT(in_cache, 1e9);
  EXPECT_LT(in_cache, 1e13);
}

}  // namespace
}  // namespace plait::cli
