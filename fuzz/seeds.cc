// fuzz_seeds FOLDER: what the fuzzers begin with, in FOLDER/PARSER/, all of it made here or taken from the tests'
// files. Run in the repository's root.
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "plait/exec/program.h"
#include "plait/io/gguf_writer.h"
#include "plait/io/json_text.h"
#include "plait/io/safetensors_writer.h"
#include "plait/models/training.h"
#include "plait/text/small_tokenizers.h"

namespace plait {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::string read(const std::string& path) { return std::string(io::MappedFile(path).text()); }

class Seeds {
 public:
  explicit Seeds(fs::path folder) : folder_(std::move(folder)) {}
  void add(const std::string& parser, const std::string& bytes) {
    fs::create_directories(folder_ / parser);
    std::ofstream(folder_ / parser / fmt::format("seed{:03}", count_++), std::ios::binary) << bytes;
  }

 private:
  fs::path folder_;
  int count_ = 0;
};

/// A Llama and a GPT-2 of one layer, as small as the parser of configs takes them.
std::vector<json> small_configs() {
  return {json::parse(R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 6,
            "intermediate_size": 8, "num_attention_heads": 3, "num_key_value_heads": 1, "num_hidden_layers": 1,
            "head_dim": 2, "vocab_size": 9, "max_position_embeddings": 64, "rms_norm_eps": 1e-05, "rope_theta": 1e4,
            "tie_word_embeddings": true, "attention_bias": false, "hidden_act": "silu", "torch_dtype": "float32",
            "bos_token_id": 1, "eos_token_id": [2, 3], "rope_scaling": {"rope_type": "llama3", "factor": 8.0,
            "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32}})"),
          json::parse(R"({"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_embd": 4, "n_head": 2,
            "n_layer": 1, "n_positions": 32, "vocab_size": 9, "layer_norm_epsilon": 1e-05, "n_inner": null,
            "activation_function": "gelu_new", "eos_token_id": null})")};
}

std::vector<Plan> plans() {
  return {tensor_parallel(1), tensor_parallel(2), tensor_parallel(3, {2, 0, 1}),
          Plan{{{"dp", 2, "T", true, {}}, {"tp", 2, "NKFVT", false, {}}}, true, {{'F', 2}}},
          Plan{{{"pp", 2, "L", false, {}}, {"cp", 2, "T", false, {}}}, false, {}}};
}

void add_graph(Seeds& seeds, const Graph& g) {
  seeds.add("graph", g.text());
  for (const Plan& plan : plans()) {
    try {
      auto s = std::make_shared<const ShardedGraph>(propagate(g, plan));
      seeds.add("sharded", s->text());
      seeds.add("program", partition(s, plan.world() - 1).text());
    } catch (const Error&) {}  // this plan does not fit this graph
  }
}

void add_models(Seeds& seeds) {
  Graph small;
  small.name = "small";
  small.dims = {{'T', {0, 4}}, {'D', {6, 0}}, {'F', {8, 2}}};
  const ValueId x = small.input("x", "TD", Type::num), up = small.state("up", "FD"), down = small.state("down", "DF");
  const ValueId h = small.one("silu_mul", {small.one("matmul", {x, up}, {.rule = "t d, f d -> t f", .label = "h"}),
                                           small.one("matmul", {x, up}, {.rule = "t d, f d -> t f"})});
  small.one("add", {x, small.one("matmul", {h, down}, {.rule = "t f, d f -> t d", .label = "y"})});
  add_graph(seeds, small);
  for (const json& j : small_configs()) {
    seeds.add("config", j.dump());
    const ModelConfig c = parse_config(j, "seed");
    const BuildOptions o{.slots = 32, .pages = 2};
    add_graph(seeds, build_serving(c, o));
    const TrainingGraphs t = build_training_step(c, o, {});
    seeds.add("graph", t.micro.text());
    seeds.add("graph", t.update.text());
  }
  for (const char* name : {"llama_small", "llama_options", "gpt2_small"})
    seeds.add("config", io::read_json(fmt::format("tests/data/{}.json", name)).at("config").dump(1));
  for (const Plan& plan : plans()) seeds.add("plan", plan.text());
}

void add_tokenizers(Seeds& seeds) {
  const std::string config =
      R"({"bos_token": {"content": "<s>"}, "eos_token": "</s>", "chat_template": "{{ messages }}"})";
  for (const json& j : {text::byte_level_json(), text::llama_json()}) seeds.add("tokenizer", j.dump());
  seeds.add("tokenizer", text::llama_json().dump() + '\0' + config);
  json split = text::byte_level_json();
  split["normalizer"] = {{"type", "NFKC"}};
  split["pre_tokenizer"] = {
      {"type", "Sequence"},
      {"pretokenizers",
       {{{"type", "Split"}, {"pattern", {{"Regex", "\\p{L}+|\\s+(?!\\S)"}}}, {"behavior", "Isolated"}},
        {{"type", "Digits"}, {"individual_digits", true}},
        {{"type", "ByteLevel"}, {"use_regex", false}}}}};
  seeds.add("tokenizer", split.dump());
}

/// A GGUF with everything: keys of every type, a tokenizer, tensors.
void add_gguf(Seeds& seeds, bool scored) {
  static const std::array<std::byte, 1024> data{};
  io::GgufWriter w;
  w.set_text("general.architecture", "llama");
  w.set_u32("llama.block_count", 1);
  w.set_u32("llama.context_length", 64);
  w.set_u32("llama.embedding_length", 64);
  w.set_u32("llama.feed_forward_length", 32);
  w.set_u32("llama.attention.head_count", 4);
  w.set_u64("llama.attention.head_count_kv", 2);
  w.set_f32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  w.set_f64("llama.rope.freq_base", 1e4);
  const json j = scored ? text::llama_json() : text::byte_level_json();
  std::vector<std::string> tokens(static_cast<size_t>(scored ? 265 : 11), "<end>");
  for (auto& [token, id] : j["model"]["vocab"].items()) tokens[id.get<size_t>()] = token;
  std::vector<std::int32_t> types(tokens.size(), 1);
  types.back() = 3;
  w.set_text("tokenizer.ggml.model", scored ? "llama" : "gpt2");
  w.set_texts("tokenizer.ggml.tokens", std::vector<std::string_view>(tokens.begin(), tokens.end()));
  w.set_i32s("tokenizer.ggml.token_type", types);
  if (scored) {
    w.set_f32s("tokenizer.ggml.scores", std::vector<float>(tokens.size(), -1));
  } else {
    w.set_text("tokenizer.ggml.pre", "smollm");
    w.set_texts("tokenizer.ggml.merges", std::vector<std::string_view>{"a b", "ab c", "Ġ a"});
  }
  w.set_u32("tokenizer.ggml.bos_token_id", 1);
  w.set_i32("tokenizer.ggml.eos_token_id", 2);
  w.set_flag("tokenizer.ggml.add_bos_token", true);
  w.set_text("tokenizer.chat_template", "{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}");
  w.add("token_embd.weight", DType::q8_0, {3, 64}, data.data());
  w.add("output_norm.weight", DType::f32, {64}, data.data());
  w.add("blk.0.attn_q.weight", DType::q5_0, {3, 64}, data.data());
  w.add("blk.0.ffn_down.weight", DType::q4_k, {1, 256}, data.data());
  w.add("blk.1.ffn_down.weight", DType::q6_k, {1, 256}, data.data());
  seeds.add("gguf", w.to_bytes());
}

void add_safetensors(Seeds& seeds) {
  static const std::array<std::byte, 64> data{};
  io::SafetensorsWriter w;
  w.set_metadata("format", "pt");
  w.add("a.f32", DType::f32, {2, 3}, data.data());
  w.add("b.bf16", DType::bf16, {5}, data.data());
  w.add("none", DType::i64, {0, 4}, data.data());
  w.add("scalar", DType::f16, {}, data.data());
  seeds.add("safetensors", w.to_bytes());
  seeds.add("safetensors", read("plait/io/testdata/oracle.safetensors"));
  seeds.add("index",
            json{{"metadata", {{"total_size", 96}}},
                 {"weight_map",
                  {{"a.f32", "model-00001-of-00002.safetensors"}, {"b.bf16", "model-00002-of-00002.safetensors"}}}}
                .dump(1));
}

void add_templates(Seeds& seeds) {
  const json j = io::read_json("plait/text/testdata/templates_expected.json");
  for (const char* kind : {"snippets", "errors", "models"})
    for (const json& c : j.value(kind, json::array()))
      if (c.contains("template")) seeds.add("template", c["template"]);
}

}  // namespace
}  // namespace plait

int main(int argc, char** argv) {
  if (argc != 2) return static_cast<int>(plait::Code::usage);
  plait::Seeds seeds(argv[1]);
  plait::add_models(seeds);
  plait::add_tokenizers(seeds);
  plait::add_gguf(seeds, true);
  plait::add_gguf(seeds, false);
  seeds.add("gguf", plait::read("plait/io/testdata/oracle.gguf"));
  plait::add_safetensors(seeds);
  plait::add_templates(seeds);
  return 0;
}
