#include "plait/cli/generate_prompts.h"

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "plait/text/stream_decoder.h"

namespace plait::cli {

namespace {

using Json = nlohmann::ordered_json;

double now_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

/// The text that grows token by token, and where the first of the stop texts begins in it.
class Written {
 public:
  Written(const text::Tokenizer& t, const PromptLine& line)
      : decoder_(t, {.skip_special = true,
                     .begins_text = std::ranges::all_of(line.tokens, [&](i64 id) { return t.is_special(id); })}),
        stop_(line.stop) {}
  /// Does the text end with this token?
  bool push(i64 id) { return look(decoder_.push(id)); }
  std::string finish() {
    if (!ended_) look(decoder_.finish());
    return std::move(text_);
  }

 private:
  bool look(const std::string& piece) {
    size_t longest = 0;
    for (auto& s : stop_) longest = std::max(longest, s.size());
    const size_t from = text_.size() < longest ? 0 : text_.size() - longest;  // a stop text may end in the new piece
    text_ += piece;
    size_t first = std::string::npos;
    for (auto& s : stop_) first = std::min(first, text_.find(s, from));
    if (first == std::string::npos) return false;
    text_.resize(first);
    return ended_ = true;
  }

  text::StreamDecoder decoder_;
  const std::vector<std::string>& stop_;
  std::string text_;
  bool ended_ = false;
};

}  // namespace

int generate_prompts(ModelOptions model, const PromptsOptions& o, const std::atomic<bool>& interrupted) {
  io::ModelFiles files(model.model);
  auto tokenizer = open_tokenizer(files);
  kernels::check_sampling(o.otherwise.sampling);
  const std::string name = o.file == "-" ? "standard input" : o.file;
  const std::vector<PromptLine> lines = read_prompts(read_text_file(o.file), name, *tokenizer, o.otherwise, o.chat);

  const i64 most = parse_config(files.config(), files.path()).max_positions;
  if (model.serving.context == 0) {
    for (auto& l : lines)
      model.serving.context = std::max(model.serving.context, static_cast<i64>(l.tokens.size()) + l.max_tokens);
    model.serving.context = std::min(model.serving.context, most);
  }
  model.serving.sequences = std::min(o.sequences, static_cast<i64>(lines.size()));
  serve::Engine engine(files, serving_plan(files, model), engine_options(model));
  std::vector<serve::Request> requests(lines.size());
  std::vector<Written> written;
  for (size_t i = 0; i < lines.size(); i++) {
    const PromptLine& l = lines[i];
    const i64 room = engine.plan().context - static_cast<i64>(l.tokens.size());
    if (room < 1)
      fail(Code::does_not_fit, "prompt {} of {} has {} tokens, the context {}: nothing can follow", i + 1, name,
           l.tokens.size(), engine.plan().context);
    serve::Request& r = requests[i];
    r.prompt = l.tokens;
    r.max_tokens = std::min(l.max_tokens, room);
    r.sampling = l.sampling;
    r.interrupted = &interrupted;
    if (!o.ignore_eos) r.is_end = [&](i64 id) { return tokenizer->is_end_of_generation(id); };
    written.emplace_back(*tokenizer, l);
  }
  for (size_t i = 0; i < lines.size(); i++) requests[i].stops = [&w = written[i]](i64 id) { return w.push(id); };

  std::vector<std::string> ready(lines.size());
  size_t printed = 0;
  i64 tokens = 0, prompt_tokens = 0;
  auto done = [&](i64 index, const serve::Generated& g) {
    const auto i = static_cast<size_t>(index);
    Json j;
    j["index"] = index;
    if (!lines[i].id.is_null()) j["id"] = lines[i].id;
    j["text"] = written[i].finish();
    j["finish_reason"] = g.finish_reason;
    j["prompt_tokens"] = lines[i].tokens.size();
    j["completion_tokens"] = g.tokens.size();
    j["tokens"] = g.tokens;
    ready[i] = j.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
    tokens += static_cast<i64>(g.tokens.size());
    prompt_tokens += static_cast<i64>(lines[i].tokens.size());
    for (; printed < ready.size() && !ready[printed].empty(); printed++) {
      const std::string line = std::exchange(ready[printed], {});
      std::fwrite(line.data(), 1, line.size(), stdout);
    }
    std::fflush(stdout);
  };
  double begin = 0, end = 0;
  engine.run([&](serve::Session& s) {
    s.barrier("begin");
    if (s.rank() == 0) begin = now_s();
    serve::generate_all(s, requests, done);
    if (s.rank() == 0) end = now_s();
  });
  if (!o.quiet)
    std::fprintf(
        stderr,
        "%lld ranks x %lld threads, %s: %zu prompts of %lld tokens, %lld together: %lld tokens in %.2f s, %.1f "
        "tokens/s\n",
        static_cast<long long>(engine.plan().world()), static_cast<long long>(engine.threads()),
        engine.plan().dtype.c_str(), lines.size(), static_cast<long long>(prompt_tokens),
        static_cast<long long>(model.serving.sequences), static_cast<long long>(tokens), end - begin,
        static_cast<double>(tokens) / (end - begin));
  return 0;
}

}  // namespace plait::cli
