// Faults that users of other engines reported (docs/testing.md lists them by case), tried on loading and generating.
#include <gmock/gmock.h>

#include "plait/io/json_text.h"
#include "plait/models/random_weights.h"
#include "plait/serve/test_models.h"

namespace plait::serve {
namespace {

using testing::HasSubstr;

ServingOptions options(const std::string& plan) {
  ServingOptions o;
  o.plan = plan_named(plan);
  o.dtype = "f32";
  return o;
}

json tiny_llama() {
  json c = reference("llama_small.json").at("config");
  c["num_hidden_layers"] = 2;
  return c;
}

Generated generated(const io::ModelFiles& files, const std::string& plan, const Request& request) {
  Engine engine(files, make_serving_plan(files, options(plan)), {.threads = 1});
  Generated out;
  engine.run([&](Session& s) {
    Generated g = generate(s, request);
    if (s.rank() == 0) out = std::move(g);
  });
  return out;
}

/// A model that is opened and loaded is refused, with a message that holds `parts`.
template <class... P>
void expect_refused(const std::string& folder, P... parts) {
  io::expect_bad_file(
      [&] {
        io::ModelFiles files(folder);
        Engine(files, make_serving_plan(files, options("2")), {.threads = 1}).run([](Session&) {});
      },
      parts...);
}

TEST(PublicReports, S01_S09_NoIdBeyondAnOddVocabulary) {
  io::TempFolder t;
  RandomModel m(reference("gpt2_small.json").at("config"));
  ASSERT_EQ(m.V, 257);
  m.change = [](const std::string& state, Values& w) {  // every logit below zero: a padded row of zeros would win
    for (float& x : w) {
      if (state == "embedding") x = -std::fabs(x);
      if (state == "norm" || state == "norm.bias") x = state == "norm" ? 0 : 1;
    }
  };
  write_hf(m, t / "hf");
  io::ModelFiles files(t / "hf");
  Request flat{.prompt = {1, 2}, .max_tokens = 40, .sampling = {.temperature = 100, .seed = 3}};
  const Generated one = generated(files, "1", flat);
  for (i64 id : one.tokens) EXPECT_LT(id, 257);
  for (std::string plan : {"1", "2", "3", "4"}) {
    const Outcome out = run(files, options(plan), {.prompt = {1, 2, 3}, .greedy = 2});
    for (auto& row : out.logits) {
      EXPECT_EQ(row.size(), 257u);
      EXPECT_LT(*std::max_element(row.begin(), row.end()), 0);
    }
    for (i64 id : out.greedy) EXPECT_LT(id, 257);
    EXPECT_EQ(generated(files, plan, flat).tokens, one.tokens) << plan;
  }
}

// GPT-2 keeps q, k and v in one tensor; each value says its part and its row, so a wrong cut shows.
TEST(PublicReports, S11_AFusedTensorIsCutInEachOfItsParts) {
  io::TempFolder t;
  RandomModel m(reference("gpt2_small.json").at("config"));
  auto value = [&](const std::string& state, i64 row) {
    return static_cast<float>(1000 * (state.ends_with("wq") ? 1 : state.ends_with("wk") ? 2 : 3) + row);
  };
  auto is_part = [](const std::string& state) {
    return state.ends_with(".wq") || state.ends_with(".wk") || state.ends_with(".wv");
  };
  m.change = [&](const std::string& state, Values& w) {
    for (size_t i = 0; is_part(state) && i < w.size(); i++) w[i] = value(state, static_cast<i64>(i) / m.D);
  };
  write_hf(m, t / "hf");
  io::ModelFiles files(t / "hf");
  for (std::string plan : {"1", "2", "4", "9"}) {
    ServingOptions o = options(plan);
    o.reference = true;  // weights lie in rows
    Engine engine(files, make_serving_plan(files, o), {.threads = 1});
    std::atomic<i64> seen{0};
    engine.run([&](Session& s) {
      for (std::string state : {"layers.0.wq", "layers.0.wk", "layers.1.wv"}) {
        const View& v = s.executor().state(state);  // [N H D]
        for (i64 i = 0; i < v.elements(); i++)
          ASSERT_EQ(v.as<float>()[i], value(state, v.box[0].begin * m.H + i / m.D)) << state << " of rank " << s.rank();
        seen += v.elements();
      }
    });
    EXPECT_EQ(seen, 3 * m.D * m.D) << plan;
  }
}

TEST(PublicReports, S14_RanksDrawTheSameTokenOrStop) {
  io::TempFolder t;
  write_hf(RandomModel(tiny_llama()), t / "hf");
  io::ModelFiles files(t / "hf");
  Request q{.prompt = {7}, .max_tokens = 200, .sampling = {.temperature = 1.5f, .seed = 11}};
  EXPECT_EQ(generated(files, "4", q).tokens, generated(files, "1", q).tokens);
  Engine engine(files, make_serving_plan(files, options("4")), {.threads = 1});
  try {
    engine.run([&](Session& s) {
      Request mine = q;
      if (s.rank() == 2) mine.sampling.seed = 12;
      generate(s, mine);
    });
    FAIL() << "ranks with two histories went on";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::differs);
    EXPECT_THAT(e.what(), HasSubstr("different tokens"));
  }
}

TEST(PublicReports, S43_AnIndexThatPromisesMoreThanThereIs) {
  io::TempFolder t;
  const RandomModel m(tiny_llama());
  const std::string index = t / "hf/model.safetensors.index.json";
  write_hf(m, t / "hf", {.max_shard_bytes = 100'000});
  const json good = io::read_json(index);
  const std::string tensor = "model.layers.1.self_attn.v_proj.weight", shard = good["weight_map"][tensor];
  json bad = good;
  bad["weight_map"].erase(tensor);  // in no shard, as far as the index says
  io::write_file(index, bad.dump());
  expect_refused(t / "hf", "no tensor for layers.1.wv", tensor);
  io::write_file(index, good.dump());
  fs::remove(t / ("hf/" + shard));
  expect_refused(t / "hf", shard, "No such file");
}

TEST(PublicReports, S44_AShardThatIsCutShort) {
  io::TempFolder t;
  write_hf(RandomModel(tiny_llama()), t / "hf", {.max_shard_bytes = 100'000});
  i64 shards = 0;
  for (auto& entry : fs::directory_iterator(t / "hf")) {
    if (entry.path().extension() != ".safetensors") continue;
    const std::string path = entry.path().string(), whole = io::read_file(path);
    for (size_t length : {whole.size() - 1, whole.size() / 2}) {
      io::write_file(path, whole.substr(0, length));
      expect_refused(t / "hf", entry.path().filename().string());
    }
    io::write_file(path, whole);
    shards++;
  }
  EXPECT_GE(shards, 3);
}

TEST(PublicReports, S45_ATiedModelWithAHeadOfItsOwn) {
  io::TempFolder t;
  for (bool tied : {false, true})
    for (std::string head : {"none", "equal", "another"}) {
      RandomModel m(tiny_llama());
      m.config["tie_word_embeddings"] = tied;
      m.tied = head == "none";
      m.change = [&](const std::string& state, Values& w) {
        for (size_t i = 0; state == "output" && i < w.size(); i++)
          w[i] = random_weight("embedding", static_cast<i64>(i)) + (head == "another" && i + 1 == w.size() ? 1.f : 0.f);
      };
      const std::string folder = t / fmt::format("{}_{}", tied, head);
      write_hf(m, folder);
      if (!tied && head == "none")
        expect_refused(folder, "lm_head.weight");
      else if (tied && head == "another")
        expect_refused(folder, "lm_head.weight", "tie_word_embeddings");
      else
        EXPECT_NO_THROW(run(io::ModelFiles(folder), options("2"), {.prompt = {1, 2}})) << folder;
    }
}

TEST(PublicReports, S52_AnyOfSeveralEndsStopsTheText) {
  io::TempFolder t;
  write_hf(RandomModel(tiny_llama()), t / "hf");
  io::ModelFiles files(t / "hf");
  Request q{.prompt = {3}, .max_tokens = 12};
  const std::vector<i64> free = generated(files, "2", q).tokens;
  const auto first = std::find(free.begin(), free.end(), free[5]);
  q.is_end = [&](i64 id) { return id == 256 || id == free[5]; };
  const Generated g = generated(files, "2", q);
  EXPECT_EQ(g.finish_reason, "stop");
  EXPECT_EQ(g.tokens, std::vector<i64>(free.begin(), first));
}

TEST(PublicReports, S61_IdsOutsideTheVocabulary) {
  io::TempFolder t;
  write_hf(RandomModel(tiny_llama()), t / "hf");
  io::ModelFiles files(t / "hf");
  for (i64 id : {i64{-1}, i64{257}, i64{1} << 31, (i64{1} << 32) + 1, INT64_MAX}) try {
      generated(files, "2", {.prompt = {0, id}, .max_tokens = 1});
      ADD_FAILURE() << id;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Code::usage);
      EXPECT_THAT(e.what(), HasSubstr(fmt::format("token {} is not in the vocabulary of 257", id)));
    }
}

}  // namespace
}  // namespace plait::serve
