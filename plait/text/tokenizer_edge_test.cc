// What files may hold and texts may be: every error named, every byte kept, long words, streams.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "plait/base/random.h"
#include "plait/io/gguf_writer.h"
#include "plait/text/from_gguf.h"
#include "plait/text/random_strings.h"
#include "plait/text/small_tokenizers.h"
#include "plait/text/stream_decoder.h"
#include "plait/text/test_files.h"
#include "plait/text/tokenizer.h"
#include "plait/text/tokenizer_json.h"

namespace plait::text {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using Ids = std::vector<i64>;

Tokenizer make(const json& j, std::string_view config = "") {
  return Tokenizer::from(vocabulary_from_tokenizer_json(j.dump(), config));
}

template <class F>
std::string error_of(F f) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::bad_file) << e.what();
    return e.what();
  }
  return "no error";
}

std::string error_with(json j, const std::string& pointer, json value) {
  j[json::json_pointer(pointer)] = std::move(value);
  return error_of([&] { make(j); });
}

TEST(TokenizerJson, SmallByteLevel) {
  const Tokenizer t = make(byte_level_json());
  EXPECT_EQ(t.vocab_size(), 11);
  EXPECT_EQ(t.encode("abc ab a"), (Ids{7, 3, 6, 8}));
  EXPECT_EQ(t.encode("a<end>b<tool>"), (Ids{0, 1, 10}));  // bytes without a token are left out
  EXPECT_EQ(t.encode("a<end>b<tool>", {.parse_special = true}), (Ids{0, 9, 1, 10}));
  EXPECT_EQ(t.decode(Ids{0, 9, 8, 10}), "a a<tool>");
  EXPECT_EQ(t.decode(Ids{0, 9, 8}, false), "a<end> a");
  EXPECT_EQ(t.id_of("abc"), 7);
  EXPECT_EQ(t.id_of("nope"), std::nullopt);
  EXPECT_FALSE(t.bos().has_value());
  EXPECT_THROW(t.decode(Ids{11}), Error);
  EXPECT_THROW(t.decode(Ids{-1}), Error);
  EXPECT_EQ(t.encode(""), Ids{});
}

TEST(TokenizerJson, SmallLlama) {
  const Tokenizer t = make(llama_json(), R"({"bos_token": {"content": "<s>"}, "eos_token": "</s>",
                                             "chat_template": [{"name": "default", "template": "T"}]})");
  const i64 meta = *t.id_of("▁"), ab = *t.id_of("▁ab");
  EXPECT_EQ(t.encode("ab ab", {.add_special = true}), (Ids{1, ab, ab}));
  EXPECT_EQ(t.encode(" "), (Ids{meta, meta}));
  EXPECT_EQ(t.encode("c"), (Ids{meta, 3 + 'c'}));
  EXPECT_EQ(t.encode("\xFF"), (Ids{meta, 3 + 0xFF}));
  EXPECT_EQ(t.encode("ab</s>ab", {.parse_special = true}), (Ids{ab, 2, ab}));
  EXPECT_EQ(t.decode(t.encode(" x\xFFñ ab")), " x\xFFñ ab");
  EXPECT_EQ(t.bos(), 1);
  EXPECT_EQ(t.eos(), 2);
  EXPECT_TRUE(t.is_end_of_generation(2));
  EXPECT_FALSE(t.is_end_of_generation(0));
  EXPECT_EQ(t.chat_template(), "T");
  // Without the bytes an unknown character is the unknown token, neighbours are one.
  json j = llama_json();
  j["model"]["vocab"].erase("<0xC3>");
  j["model"]["vocab"].erase("<0xA9>");
  const Tokenizer u = make(j);
  EXPECT_EQ(u.encode("ééa"), (Ids{meta, 0, *u.id_of("a")}));
  j["model"]["fuse_unk"] = false;
  EXPECT_EQ(make(j).encode("ééa"), (Ids{meta, 0, 0, *u.id_of("a")}));
}

TEST(TokenizerJson, IgnoreMerges) {
  json j = byte_level_json();
  j["model"]["vocab"]["bca"] = 11;
  EXPECT_EQ(make(j).encode("bca"), (Ids{1, 2, 0}));
  j["model"]["ignore_merges"] = true;
  EXPECT_EQ(make(j).encode("bca"), (Ids{11}));
  EXPECT_EQ(make(j).encode("<end>"), (Ids{}));  // a special token is no word
}

TEST(TokenizerJson, AddedTokensTakeWhiteSpaceAndWords) {
  json j = byte_level_json();
  j["added_tokens"][1]["lstrip"] = true;
  j["added_tokens"][1]["rstrip"] = true;
  EXPECT_EQ(make(j).encode("a  <tool>\n b"), (Ids{0, 10, 1}));
  j["added_tokens"][1] = {{"id", 10}, {"content", "ca"}, {"special", false}, {"single_word", true}};
  EXPECT_EQ(make(j).encode("ca caa ca"), (Ids{10, 3, 2, 0, 0, 3, 10}));
  j["added_tokens"].push_back({{"id", 11}, {"content", "<to"}, {"special", false}});
  j["added_tokens"].push_back({{"id", 12}, {"content", "<tool><tool>"}, {"special", false}});
  EXPECT_EQ(make(j).encode("<tool><tool><tool><t"), (Ids{12, 11}));  // the longest, from the left
}

TEST(TokenizerJson, ErrorsNameWhatIsWrong) {
  const json b = byte_level_json(), l = llama_json();
  EXPECT_THAT(error_of([] { vocabulary_from_tokenizer_json("{\"a\": ", "", "x.json"); }),
              HasSubstr("[x.json] JSON at offset 6: got the end"));
  EXPECT_THAT(error_of([] { vocabulary_from_tokenizer_json("[]", "", "x.json"); }), HasSubstr("want an object"));
  EXPECT_THAT(error_of([] { vocabulary_from_tokenizer_json("{}", "", "x.json"); }), HasSubstr("no key \"model\""));
  EXPECT_THAT(error_of([] { vocabulary_from_folder("/nowhere"); }), HasSubstr("/nowhere/tokenizer.json"));
  EXPECT_THAT(error_with(b, "/model/type", "Unigram"), HasSubstr("model \"Unigram\""));
  EXPECT_THAT(error_with(b, "/model/vocab/a", -1), HasSubstr("want an id"));
  EXPECT_THAT(error_with(b, "/model/vocab/a", 1.5), HasSubstr("want an id"));
  EXPECT_THAT(error_with(b, "/model/vocab/a", u64{1} << 63), HasSubstr("want an id"));
  EXPECT_THAT(error_with(b, "/model/vocab/a", 500'000), HasSubstr("want less than"));
  EXPECT_THAT(error_with(b, "/model/vocab/a", 1), HasSubstr("got id 1 for both"));
  EXPECT_THAT(error_with(b, "/model/vocab", json::array()), HasSubstr("want an object"));
  EXPECT_THAT(error_with(b, "/model/merges/1", "ab x"), HasSubstr("merge 1: got \"ab\" + \"x\""));
  EXPECT_THAT(error_with(b, "/model/merges/1", "ab ab"), HasSubstr("merge 1"));
  EXPECT_THAT(error_with(b, "/model/merges/1", "ab"), HasSubstr("merge 1"));
  EXPECT_THAT(error_with(b, "/model/merges/1", 5), HasSubstr("want a text"));
  EXPECT_THAT(error_with(l, "/model/merges/1", {"a"}), HasSubstr("want two texts"));
  EXPECT_THAT(error_with(b, "/model/dropout", 0.1), HasSubstr("dropout"));
  EXPECT_THAT(error_with(b, "/model/end_of_word_suffix", "</w>"), HasSubstr("end_of_word_suffix"));
  EXPECT_THAT(error_with(b, "/model/unk_token", "nope"), HasSubstr("unk_token"));
  EXPECT_THAT(error_with(b, "/normalizer", {{"type", "BertNormalizer"}}), HasSubstr("normalizer \"BertNormalizer\""));
  EXPECT_THAT(error_with(b, "/pre_tokenizer/type", "Whitespace"), HasSubstr("pre_tokenizer \"Whitespace\""));
  EXPECT_THAT(error_with(b, "/post_processor", {{"type", "BertProcessing"}}), HasSubstr("\"BertProcessing\""));
  EXPECT_THAT(error_with(b, "/decoder", {{"type", "WordPiece"}}), HasSubstr("ByteLevel"));
  EXPECT_THAT(error_with(l, "/decoder/decoders/0", {{"type", "CTC"}}), HasSubstr("decoder \"CTC\""));
  EXPECT_THAT(error_with(b, "/decoder", nullptr), HasSubstr("no decoder"));
  EXPECT_THAT(error_with(l, "/post_processor/special_tokens/<s>/ids/0", 999), HasSubstr("prefix: got id 999"));
  EXPECT_THAT(error_with(l, "/normalizer/normalizers/1/pattern", {{"Regex", "x"}}), HasSubstr("String"));
  EXPECT_THAT(error_with(l, "/normalizer/normalizers/1/pattern/String", ""), HasSubstr("empty"));
  json nested = {{"type", "NFC"}};
  for (int k = 0; k < 40; k++) nested = {{"type", "Sequence"}, {"normalizers", {nested}}};
  EXPECT_THAT(error_with(b, "/normalizer", nested), HasSubstr("want at most 64 levels"));
  const json grow = {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", std::string(100, 'a')}};
  json steps = {{"type", "Sequence"}, {"normalizers", json::array()}};
  for (int k = 0; k < 10; k++) steps["normalizers"].push_back(grow);
  EXPECT_THAT(error_of([&] {
                json j = b;
                j["normalizer"] = steps;
                make(j).encode("aaa");
              }),
              HasSubstr("bytes out of 3"));
  for (int k = 0; k < 60; k++) steps["normalizers"].push_back(grow);
  EXPECT_THAT(error_with(b, "/normalizer", steps), HasSubstr("got 70 steps of the normalizer"));
  const json split = {{"type", "Split"}, {"pattern", {{"Regex", "(a"}}}, {"behavior", "Isolated"}};
  EXPECT_THAT(error_with(l, "/pre_tokenizer", split), HasSubstr("[pattern \"(a\"]"));
  EXPECT_THAT(error_of([&] { make(b, R"({"bos_token": "nope"})"); }), HasSubstr("bos_token"));
}

TEST(TokenizerJson, PublishedMalformedFiles) {
  for (const char* name : {"test_hf_tokenizer.json", "test_tiktoken_invalid_base64.model",
                           "test_tiktoken_invalid_rank.model", "test_tiktoken_no_space.model"}) {
    const std::string path = shared_file(std::string("tokenizers/malformed/") + name);
    PLAIT_NEED_FILE(path);
    EXPECT_THAT(error_of([&] { vocabulary_from_tokenizer_json(read_text(path), "", path); }), HasSubstr(path));
  }
}

TEST(TokenizerJson, DamagedFilesLoadOrAreRefused) {
  for (const json& j : {byte_level_json(), llama_json()}) {
    const std::string whole = j.dump();
    i64 refused = 0;
    for (u64 n = 0; n < 1500; n++) {
      std::string s = whole;
      for (u64 k = 0; k < 1 + n % 3; k++) {
        const u64 r = random_bits(stream_of("damage"), 8 * n + k);
        if (n % 5 == 0)
          s.erase(r % s.size(), 1 + (r >> 32) % 20);
        else
          s[r % s.size()] = "\"{}[],:0aĠ\xFF"[(r >> 32) % 12];
      }
      try {
        const Tokenizer t = Tokenizer::from(vocabulary_from_tokenizer_json(s, ""));
        t.decode(t.encode("abc ab <end> \xC3\xA9"));
      } catch (const Error& e) {
        EXPECT_EQ(e.code(), Code::bad_file) << e.what();
        refused++;
      }
    }
    EXPECT_GT(refused, 500);
  }
}

// --- GGUF ---------------------------------------------------------------------------------------------------------

struct Parts {
  std::string model = "gpt2", pre = "gpt-2";
  std::vector<std::string_view> tokens = {"a", "b", "ab", "<end>"};
  std::vector<std::int32_t> types = {1, 1, 1, 3};
  std::vector<std::string_view> merges = {"a b"};
  std::vector<float> scores;
  std::uint32_t eos = 3, bos = 0xFFFFFFFF;
};

io::GgufFile file_of(const Parts& p) {
  io::GgufWriter w;
  w.set_text("general.architecture", "llama");
  w.set_text("tokenizer.ggml.model", p.model);
  w.set_text("tokenizer.ggml.pre", p.pre);
  w.set_texts("tokenizer.ggml.tokens", p.tokens);
  if (!p.types.empty()) w.set_i32s("tokenizer.ggml.token_type", p.types);
  if (!p.merges.empty()) w.set_texts("tokenizer.ggml.merges", p.merges);
  if (!p.scores.empty()) w.set_f32s("tokenizer.ggml.scores", p.scores);
  w.set_u32("tokenizer.ggml.eos_token_id", p.eos);
  w.set_u32("tokenizer.ggml.bos_token_id", p.bos);
  return io::GgufFile(io::MappedFile::of_bytes("x.gguf", w.to_bytes()));
}

std::string gguf_error(const Parts& p) {
  return error_of([&] { Tokenizer::from(vocabulary_from_gguf(file_of(p))); });
}

TEST(FromGguf, SpecialIds) {
  const Tokenizer t = Tokenizer::from(vocabulary_from_gguf(file_of({})));
  EXPECT_FALSE(t.bos().has_value());  // 2^32 - 1 means none
  EXPECT_EQ(t.eos(), 3);
  EXPECT_TRUE(t.is_end_of_generation(3));
  EXPECT_EQ(t.encode("ab<end>", {.add_special = true, .parse_special = true}), (Ids{2, 3}));
}

TEST(FromGguf, ErrorsNameWhatIsWrong) {
  EXPECT_THAT(gguf_error({.model = "bert"}), HasSubstr("tokenizer.ggml.model: got \"bert\""));
  EXPECT_THAT(gguf_error({.pre = "novel"}), HasSubstr("pre-tokenizer \"novel\""));
  EXPECT_THAT(gguf_error({.types = {1, 1, 1}}), HasSubstr("got 3 items, want 4 to 4"));
  EXPECT_THAT(gguf_error({.types = {1, 1, 1, 7}}), HasSubstr("got 7 for id 3"));
  EXPECT_THAT(gguf_error({.merges = {"a c"}}), HasSubstr("merge 0: got \"a\" + \"c\""));
  EXPECT_THAT(gguf_error({.merges = {"ab"}}), HasSubstr("merge 0"));
  EXPECT_THAT(gguf_error({.merges = {}}), HasSubstr("tokenizer.ggml.merges"));
  EXPECT_THAT(gguf_error({.model = "llama"}), HasSubstr("tokenizer.ggml.scores"));
  EXPECT_THAT(gguf_error({.model = "llama", .scores = {0, 0}}), HasSubstr("got 2 items, want 4 to 4"));
  EXPECT_THAT(gguf_error({.model = "llama", .scores = {0, 0, 0, NAN}}), HasSubstr("not a number"));
  EXPECT_THAT(gguf_error({.eos = 4}), HasSubstr("eos_token_id: got 4"));
  EXPECT_THAT(gguf_error({.tokens = {}, .types = {}}), HasSubstr("x.gguf"));
  io::GgufWriter none;
  none.set_text("general.architecture", "llama");
  const io::GgufFile file(io::MappedFile::of_bytes("y.gguf", none.to_bytes()));
  EXPECT_THAT(error_of([&] { vocabulary_from_gguf(file); }), HasSubstr("[y.gguf] got no key \"tokenizer.ggml.model\""));
}

TEST(FromGguf, PublishedDamagedFiles) {
  const std::string folder = shared_file("malformed/bitnet-rs/fixtures");
  PLAIT_NEED_FILE(folder);
  i64 seen = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    error_of([&] { Tokenizer::from(vocabulary_from_gguf(io::GgufFile(entry.path().string()))); });
    seen++;
  }
  EXPECT_GT(seen, 10);
}

// Joins by score: equal scores go from the left, characters that are no token still join.
TEST(ScoredJoins, TiesAndCharactersWithoutToken) {
  Vocabulary v;
  v.alphabet = Vocabulary::Alphabet::code_points;
  v.order = Vocabulary::Order::scores;
  v.tokens = {"<unk>", "a", "b", "ab", "ba", "xy", "xyab"};
  v.types.assign(7, TokenType::normal);
  v.types[0] = TokenType::unknown;
  v.scores = {0, -1, -1, -2, -2, -3, -4};
  v.unknown = 0;
  v.fuse_unknown = true;
  const Tokenizer t = Tokenizer::from(v);
  EXPECT_EQ(t.encode("aba"), (Ids{3, 1}));
  EXPECT_EQ(t.encode("bab"), (Ids{4, 2}));
  EXPECT_EQ(t.encode("xyab"), (Ids{6}));
  EXPECT_EQ(t.encode("xxyy"), (Ids{0, 5, 0}));
  EXPECT_EQ(t.encode("<unk>"), (Ids{0}));  // five unknown characters
  v.scores[4] = -1.5;
  EXPECT_EQ(Tokenizer::from(v).encode("aba"), (Ids{1, 4}));
}

// --- bytes and streams --------------------------------------------------------------------------------------------

class AnyBytes : public testing::TestWithParam<const char*> {};

TEST_P(AnyBytes, ComeBack) {
  const std::string path = shared_file("tokenizers/llama.cpp-vocab/ggml-vocab-") + GetParam() + ".gguf";
  PLAIT_NEED_FILE(path);
  const Tokenizer t = Tokenizer::from(vocabulary_from_gguf(io::GgufFile(path)));
  for (u64 n = 0; n < 500; n++) {
    std::string s = n % 2 ? random_string(static_cast<i64>(n)) : "";
    const u64 size = random_bits(stream_of("bytes"), n) % 40;
    for (u64 k = 0; k < size; k++) {
      const u64 r = random_bits(stream_of("bytes") + 1 + n, k);
      s.insert(s.begin() + static_cast<i64>(r % (s.size() + 1)), static_cast<char>(r >> 32));
    }
    if (s.find("▁") != std::string::npos) continue;
    const Ids ids = t.encode(s);
    ASSERT_EQ(t.decode(ids, false), s);
    StreamDecoder stream(t);
    std::string out;
    for (i64 id : ids) {
      const std::string piece = stream.push(id);
      ASSERT_TRUE(is_utf8(piece));
      out += piece;
    }
    ASSERT_EQ(out + stream.finish(), valid_utf8(s));
  }
}
INSTANTIATE_TEST_SUITE_P(Files, AnyBytes, testing::Values("gpt-2", "llama-spm"));

TEST(StreamDecoder, NeverSplitsACharacter) {
  const Tokenizer t = make(llama_json());
  const auto byte = [](int b) { return i64{3} + b; };
  StreamDecoder s(t);
  EXPECT_EQ(s.push(byte(0xF0)), "");
  EXPECT_EQ(s.push(byte(0x9F)), "");
  EXPECT_EQ(s.push(byte(0xA6)), "");
  EXPECT_EQ(s.push(byte(0x99)), "🦙");
  EXPECT_EQ(s.push(byte(0xE2)), "");
  EXPECT_EQ(s.push(byte(0x82)), "");
  EXPECT_EQ(s.push(*t.id_of("a")), "\uFFFDa");  // the character was broken off
  EXPECT_EQ(s.push(byte(0x82)), "\uFFFD");      // no character begins like that
  EXPECT_EQ(s.push(byte(0xE2)), "");
  EXPECT_EQ(s.finish(), "\uFFFD");
  EXPECT_EQ(s.finish(), "");
  EXPECT_THROW(s.push(100'000), Error);
}

TEST(StreamDecoder, FirstSpaceAndSpecialTokens) {
  const Tokenizer t = make(llama_json());
  const i64 ab = *t.id_of("▁ab");
  StreamDecoder begin(t), shown(t, {.skip_special = false}), on(t, {.begins_text = false});
  auto all = [](StreamDecoder& s, const Ids& ids) {
    std::string out;
    for (i64 id : ids) out += s.push(id);
    return out;
  };
  EXPECT_EQ(all(begin, {1, ab, ab, 2}), "ab ab");
  EXPECT_EQ(all(shown, {1, ab, 2}), "<s> ab</s>");
  EXPECT_EQ(on.push(ab), " ab");
  begin.finish();
  EXPECT_EQ(begin.push(ab), "ab");
}

TEST(LongWords, TakeNoTimeAndNoStack) {
  for (const char* name : {"gpt-2", "llama-spm"}) {
    const std::string path = shared_file("tokenizers/llama.cpp-vocab/ggml-vocab-") + name + ".gguf";
    PLAIT_NEED_FILE(path);
    const Tokenizer t = Tokenizer::from(vocabulary_from_gguf(io::GgufFile(path)));
    for (const std::string& unit : {std::string("a"), std::string("ab"), std::string(" "), std::string("é"),
                                    std::string("\n "), std::string("<")}) {
      std::string s;
      while (s.size() < 300'000) s += unit;
      const Ids ids = t.encode(s, {.parse_special = true});
      EXPECT_EQ(t.decode(ids), s);
      EXPECT_LE(ids.size(), s.size() + 1);
    }
  }
}

TEST(Folder, TokenizerJsonWithItsNeighbours) {
  const auto dir = std::filesystem::temp_directory_path() / fmt::format("plait-text-{}", ::getpid());
  std::filesystem::create_directories(dir);
  auto write = [&](const char* name, const std::string& s) { std::ofstream(dir / name, std::ios::binary) << s; };
  write("tokenizer.json", llama_json().dump());
  EXPECT_EQ(vocabulary_from_folder(dir.string()).chat_template, "");
  write("tokenizer_config.json", R"({"bos_token": "<s>", "chat_template": "one"})");
  EXPECT_EQ(vocabulary_from_folder(dir.string()).chat_template, "one");
  write("chat_template.jinja", "two");
  const Vocabulary v = vocabulary_from_folder(dir.string());
  EXPECT_EQ(v.chat_template, "two");
  EXPECT_EQ(v.bos, 1);
  write("generation_config.json", R"({"eos_token_id": [2, 265]})");
  EXPECT_EQ(vocabulary_from_folder(dir.string()).ends, (Ids{2, 265}));
  EXPECT_THAT(error_of([&] { Tokenizer::from(vocabulary_from_folder(dir.string())); }), HasSubstr("got id 265"));
  write("generation_config.json", R"({"eos_token_id": "x"})");
  EXPECT_THAT(error_of([&] { vocabulary_from_folder(dir.string()); }), HasSubstr("eos_token_id] got \"x\""));
  std::filesystem::remove_all(dir);
}

}  // namespace
}  // namespace plait::text
