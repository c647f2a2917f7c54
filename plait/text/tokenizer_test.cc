// Tokenizers against published ids: llama.cpp's cases and the prompts that come with ggml.
#include "plait/text/tokenizer.h"

#include <gtest/gtest.h>

#include "plait/base/random.h"
#include "plait/text/from_gguf.h"
#include "plait/text/stream_decoder.h"
#include "plait/text/test_files.h"
#include "plait/text/tokenizer_json.h"

namespace plait::text {
namespace {

Tokenizer from_gguf(const std::string& path) { return Tokenizer::from(vocabulary_from_gguf(io::GgufFile(path))); }

Tokenizer from_json(const std::string& path) {
  return Tokenizer::from(vocabulary_from_tokenizer_json(read_text(path), "", path));
}

// The cases are separated by lines "__ggml_vocab_test__"; the ids stand one case a line.
void check_cases(const Tokenizer& t, const std::string& expected_path) {
  const std::string mark = "\n__ggml_vocab_test__\n";
  std::string input = read_text(shared_file("tokenizers/llama.cpp-vocab/ALL.gguf.inp"));
  std::istringstream expected(read_text(expected_path));
  i64 cases = 0;
  for (std::string line; std::getline(expected, line); cases++) {
    const size_t end = input.find(mark);
    ASSERT_TRUE(end != std::string::npos) << "case " << cases;
    const std::string text = input.substr(0, end);
    input.erase(0, end + mark.size());
    std::vector<i64> want;
    std::istringstream ids(line);
    for (i64 id; ids >> id;) want.push_back(id);
    EXPECT_EQ(t.encode(text), want) << "case " << cases << ": " << text;
    EXPECT_EQ(t.decode(t.encode(text)), text);
  }
  EXPECT_GE(cases, 40);
}

class LlamaCppCases : public testing::TestWithParam<const char*> {};

TEST_P(LlamaCppCases, Exact) {
  const std::string path = shared_file("tokenizers/llama.cpp-vocab/ggml-vocab-") + GetParam() + ".gguf";
  PLAIT_NEED_FILE(path);
  check_cases(from_gguf(path), path + ".out");
}
INSTANTIATE_TEST_SUITE_P(Files, LlamaCppCases, testing::Values("gpt-2", "llama-spm", "mpt", "deepseek-coder"));

TEST(Gpt2Json, LlamaCppCases) {
  const std::string path = shared_file("tokenizers/gpt2/tokenizer.json");
  PLAIT_NEED_FILE(path);
  check_cases(from_json(path), shared_file("tokenizers/llama.cpp-vocab/ggml-vocab-gpt-2.gguf.out"));
}

TEST(Llama2Json, LlamaCppCases) {
  const std::string path = shared_file("tokenizers/llama2/tokenizer.json");
  PLAIT_NEED_FILE(path);
  check_cases(from_json(path), shared_file("tokenizers/llama.cpp-vocab/ggml-vocab-llama-spm.gguf.out"));
}

// Lines of "text => id,id,...".
void check_prompts(const Tokenizer& t, const std::string& path) {
  std::istringstream lines(read_text(path));
  i64 cases = 0;
  for (std::string line; std::getline(lines, line);) {
    const size_t arrow = line.find(" => ");
    if (arrow == std::string::npos) continue;
    std::vector<i64> want;
    std::istringstream ids(line.substr(arrow + 4));
    for (std::string id; std::getline(ids, id, ',');) want.push_back(std::stoll(id));
    EXPECT_EQ(t.encode(line.substr(0, arrow)), want) << line;
    cases++;
  }
  EXPECT_GE(cases, 50);
}

TEST(Gpt2Json, GgmlPrompts) {
  const std::string path = shared_file("tokenizers/gpt2/tokenizer.json");
  PLAIT_NEED_FILE(path);
  check_prompts(from_json(path), shared_file("tokenizers/ggml-prompts/gpt-2.txt"));
}

TEST(GptNeoxJson, GgmlPrompts) {
  const std::string path = shared_file("tokenizers/gpt-neox/tokenizer.json");
  PLAIT_NEED_FILE(path);
  check_prompts(from_json(path), shared_file("tokenizers/ggml-prompts/gpt-neox.txt"));
}

}  // namespace
}  // namespace plait::text
