// Chat templates against jinja2 (scripts/oracles/text_templates.py wrote testdata/templates_expected.json), and the
// limits.
#include "plait/text/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "plait/text/from_gguf.h"
#include "plait/text/test_files.h"

namespace plait::text {
namespace {

using json = nlohmann::ordered_json;

const json& expected() {
  static const json j = json::parse(read_text("plait/text/testdata/templates_expected.json"));
  return j;
}

std::string render(const std::string& source, const json& variables, const ChatLimits& limits = {}) {
  return ChatTemplate(source).render(variables, limits);
}

// The text of the error, "" when there is none.
std::string error_of(const std::string& source, Code code, const ChatLimits& limits = {}) {
  try {
    render(source, expected()["variables"], limits);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    return e.what();
  }
  return "";
}

TEST(ChatTemplate, SnippetsAsJinja2) {
  ASSERT_GE(expected()["snippets"].size(), 60u);
  for (const json& c : expected()["snippets"]) {
    const std::string source = c["template"];
    try {
      EXPECT_EQ(render(source, expected()["variables"]), c["output"].get<std::string>()) << source;
    } catch (const Error& e) { ADD_FAILURE() << source << "\n" << e.what(); }
  }
}

TEST(ChatTemplate, WhatJinja2RefusesIsAnErrorWithItsLine) {
  ASSERT_GE(expected()["errors"].size(), 30u);
  for (const json& c : expected()["errors"]) {
    const std::string source = "\n" + c["template"].get<std::string>();
    const bool raises = source.find("raise_exception") != std::string::npos;
    EXPECT_THAT(error_of(source, raises ? Code::usage : Code::bad_file), testing::HasSubstr("[chat template:2]"))
        << source;
  }
}

// Turns as Gemma wants them, with the constructs of its template: a system message goes into the first user's turn,
// contents may be lists of parts, roles must alternate.
TEST(ChatTemplate, TurnsOfGemma) {
  const std::string source = R"({{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
  {%- set prefix = (messages[0]['content'] if messages[0]['content'] is string else messages[0]['content'][0]['text'])
      + '\n\n' -%}
  {%- set turns = messages[1:] -%}
{%- else -%}
  {%- set prefix = "" -%}
  {%- set turns = messages -%}
{%- endif -%}
{%- for turn in turns -%}
  {%- if (turn['role'] == 'user') != (loop.index0 % 2 == 0) -%}
    {{ raise_exception("turns of user and assistant alternate") }}
  {%- endif -%}
  {%- set role = "model" if turn['role'] == 'assistant' else turn['role'] -%}
  {{ '<start_of_turn>' + role + '\n' + (prefix if loop.first else "") }}
  {%- if turn['content'] is string -%}
    {{ turn['content'] | trim }}
  {%- elif turn['content'] is iterable -%}
    {%- for part in turn['content'] -%}{{ part['text'] | trim if part['type'] == 'text' else '' }}{%- endfor -%}
  {%- else -%}
    {{ raise_exception("content") }}
  {%- endif -%}
  {{ '<end_of_turn>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<start_of_turn>model\n' }}{%- endif -%})";
  const ChatOptions options{.bos_token = "<bos>"};
  EXPECT_EQ(render_chat(source, {{"system", "Be short."}, {"user", " Hi \n"}, {"assistant", "Hello"}, {"user", "Why?"}},
                        options),
            "<bos><start_of_turn>user\nBe short.\n\nHi<end_of_turn>\n<start_of_turn>model\nHello<end_of_turn>\n"
            "<start_of_turn>user\nWhy?<end_of_turn>\n<start_of_turn>model\n");
  EXPECT_EQ(render_chat(source, {{"user", "Hi"}}, {.add_generation_prompt = false}),
            "<start_of_turn>user\nHi<end_of_turn>\n");
  EXPECT_THROW(render_chat(source, {{"user", "a"}, {"user", "b"}}, options), Error);
  const json parts =
      json::parse(R"([{"role": "user", "content": [{"type": "text", "text": " a "}, {"type": "image"}]}])");
  EXPECT_EQ(render(source, {{"bos_token", "<bos>"}, {"messages", parts}, {"add_generation_prompt", false}}),
            "<bos><start_of_turn>user\na<end_of_turn>\n");
}

TEST(ChatTemplate, SourceIsBounded) {
  EXPECT_THAT(error_of(std::string(300'000, '{'), Code::bad_file), testing::HasSubstr("want at most 262144"));
}

TEST(ChatTemplate, ModelsAsJinja2) {
  std::string smollm2;
  if (exists(model_file())) smollm2 = io::GgufFile(model_file()).text("tokenizer.chat_template").value_or("");
  i64 rendered = 0;
  for (const json& c : expected()["files"]) {
    const std::string name = c["file"];
    std::string source = smollm2;
    if (name != "SmolLM2") {
      if (!exists(shared_file(name))) continue;
      source = json::parse(read_text(shared_file(name)))["chat_template"];
    }
    if (source.empty()) continue;
    try {
      EXPECT_EQ(render(source, c["variables"]), c["output"].get<std::string>()) << name;
    } catch (const Error& e) { ADD_FAILURE() << name << ": " << e.what(); }
    rendered++;
  }
  if (rendered == 0) GTEST_SKIP() << "no files with templates";
}

TEST(ChatTemplate, SmolLM2Conversation) {
  PLAIT_NEED_FILE(model_file());
  const Tokenizer t = Tokenizer::from(vocabulary_from_gguf(io::GgufFile(model_file())));
  const std::string text = render_chat(t, {{"user", "Hi"}});
  EXPECT_EQ(text,
            "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
  const auto ids = t.encode(text, {.parse_special = true});
  EXPECT_EQ(std::ranges::count(ids, 1), 3);  // <|im_start|>
  EXPECT_EQ(std::ranges::count(ids, 2), 2);  // <|im_end|>
  EXPECT_EQ(t.decode(ids, false), text);
  EXPECT_TRUE(t.is_end_of_generation(2));
  EXPECT_TRUE(t.is_end_of_generation(0));
  EXPECT_FALSE(t.is_end_of_generation(1));
}

// Mistral's published conversation, with a template of the kind that its models carry.
TEST(ChatTemplate, MistralConversation) {
  const std::string folder = shared_file("tokenizers/mistral/samples/no_tools/");
  PLAIT_NEED_FILE(folder);
  json variables = json::parse(read_text(folder + "sample.json"));
  variables["bos_token"] = "<s>";
  variables["eos_token"] = "</s>";
  std::string want = read_text(folder + "text_v3.txt");
  for (size_t at; (at = want.find("▁")) != std::string::npos;) want.replace(at, 3, " ");
  EXPECT_EQ(render("{{ bos_token }}{% for m in messages %}\n"
                   "{% if (m.role == 'user') != (loop.index0 is even) %}{{ raise_exception('order') }}{% endif %}\n"
                   "{% if m['role'] == 'user' %}{{ '[INST] ' + m['content'] + '[/INST]' }}{% else %}\n"
                   "{{- ' ' ~ m['content'] | trim ~ eos_token }}{% endif %}\n"
                   "{% endfor %}\n",
                   variables),
            want);
}

TEST(ChatTemplate, UnknownConstructsAreNamed) {
  using testing::HasSubstr;
  EXPECT_THAT(error_of("a\n{% macro f() %}{% endmacro %}", Code::bad_file), HasSubstr(":2] got the tag \"macro\""));
  EXPECT_THAT(error_of("{{ a | wordwrap }}", Code::bad_file), HasSubstr("filter \"wordwrap\""));
  EXPECT_THAT(error_of("{{ a is callable }}", Code::bad_file), HasSubstr("test \"callable\""));
  EXPECT_THAT(error_of("\n\n{{ strftime_now('%Y') }}", Code::bad_file),
              HasSubstr(":3] got the function \"strftime_now\""));
  EXPECT_THAT(error_of("{{ s.zfill(3) }}", Code::bad_file), HasSubstr("method \"zfill\""));
  EXPECT_THAT(error_of("{{ s | tojson(separators=(1, 2)) }}", Code::bad_file), HasSubstr("\"separators\""));
  EXPECT_THAT(error_of("{% for a in l recursive %}{% endfor %}", Code::bad_file), HasSubstr("recursive"));
}

TEST(ChatTemplate, Limits) {
  using testing::HasSubstr;
  const std::string loop = "{% for i in range(1000) %}{% for j in range(1000) %}{% for k in range(1000) %}{{ i }}";
  const std::string ends = "{% endfor %}{% endfor %}{% endfor %}";
  EXPECT_THAT(error_of(loop + ends, Code::bad_file), HasSubstr("limit"));
  EXPECT_THAT(
      error_of("{% set ns = namespace(s='x') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
               Code::bad_file),
      HasSubstr("limit"));
  EXPECT_THAT(error_of("{{ 'x' * 1000000000000 }}", Code::bad_file), HasSubstr("limit"));
  EXPECT_THAT(error_of("{{ range(1000000000000) | length }}", Code::bad_file), HasSubstr("limit"));
  EXPECT_THAT(
      error_of("{{ range(9223372036854775806, 9223372036854775807, 5) | length }}{{ missing.x }}", Code::bad_file),
      HasSubstr("undefined"));
  EXPECT_THAT(error_of("{{ 'x' * 100 }}", Code::bad_file, {.output_bytes = 99}), HasSubstr("output"));
  EXPECT_THAT(error_of("{{ '" + std::string(1000, 'y') + "'.replace('y', 'z' * 1000000) }}", Code::bad_file),
              HasSubstr("limit"));
  // Values that would nest, or share parts, without end.
  const std::string set = "{% set ns = namespace(l=[]) %}{% for i in range(100000) %}{% set ns.l = ";
  EXPECT_THAT(error_of(set + "[ns.l] %}{% endfor %}", Code::bad_file), HasSubstr("nested deeper"));
  EXPECT_THAT(error_of(set + "[ns.l, ns.l] %}{% endfor %}", Code::bad_file), HasSubstr("more than"));
  EXPECT_THAT(error_of(set + "[ns] %}{% endfor %}", Code::bad_file), HasSubstr("namespace"));
  // Sources that nest without end.
  for (const char* part :
       {"(", "[", "{'a':", "not ", "-", "1 if ", "a[", "a | default(", "- -", "1 + (", "1 ~ [", "a.b.", "1 ** "}) {
    std::string deep = "{{ ";
    for (int i = 0; i < 15'000; i++) deep += part;
    EXPECT_THAT(error_of(deep, Code::bad_file), HasSubstr("[chat template:1]")) << part;
  }
  for (const char* part :
       {"+1", "~1", " and 1", ".a", "[0]", " | trim", " is string", "(1)", " == 1", " if 1 else 1", "**1"}) {
    std::string deep = "{{ a";
    for (int i = 0; i < 15'000; i++) deep += part;
    error_of(deep + " }}", Code::bad_file);  // either it is refused or it fits: no overflow of the stack
  }
  std::string deep;
  for (int i = 0; i < 15'000; i++) deep += i % 2 ? "{% if a %}" : "{% for i in l %}";
  EXPECT_THAT(error_of(deep, Code::bad_file), HasSubstr("nesting"));
}

TEST(ChatTemplate, TruncatedAndSplicedSourcesNeverCrash) {
  const json& all = expected()["snippets"];
  for (size_t i = 0; i < all.size(); i++) {
    const std::string source = all[i]["template"], other = all[(i * 7 + 3) % all.size()]["template"];
    for (size_t at = 0; at < source.size(); at += 1 + source.size() / 40)
      for (const std::string& s :
           {source.substr(0, at), source.substr(at), source.substr(0, at) + other.substr(std::min(at, other.size()))})
        try {
          render(s, expected()["variables"], {.steps = 100'000, .memory_bytes = 1 << 22, .output_bytes = 1 << 20});
        } catch (const Error& e) { EXPECT_THAT(std::string(e.what()), testing::HasSubstr("[chat template")) << s; }
  }
}

}  // namespace
}  // namespace plait::text
