#include "plait/text/stream_decoder.h"

namespace plait::text {

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, Options options)
    : tokenizer_(tokenizer), options_(options), strip_(options.begins_text && tokenizer.strips_first_space()) {}

std::string StreamDecoder::push(i64 id) {
  std::string_view bytes = tokenizer_.bytes_of(id);
  if (bytes.empty() || (options_.skip_special && tokenizer_.is_special(id))) return {};
  if (strip_ && bytes.starts_with(' ')) bytes.remove_prefix(1);
  strip_ = false;
  waiting_ += bytes;
  // An unfinished character has at most three bytes.
  const i64 size = static_cast<i64>(waiting_.size());
  i64 open = 0;
  for (i64 n = 1; n <= 3 && n <= size; n++)
    if (open_sequence_bytes(waiting_, size - n) == n) open = n;
  std::string out = valid_utf8(std::string_view(waiting_).substr(0, size - open));
  waiting_.erase(0, size - open);
  return out;
}

std::string StreamDecoder::finish() {
  std::string out = valid_utf8(waiting_);
  waiting_.clear();
  strip_ = options_.begins_text && tokenizer_.strips_first_space();
  return out;
}

}  // namespace plait::text
