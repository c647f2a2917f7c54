// JSON of files that may be hostile: depth and memory limited before parsing, keys unique, errors named.
#pragma once
#include <nlohmann/json_fwd.hpp>

#include "plait/base/base.h"

namespace plait::io {

constexpr int kMaxJsonDepth = 64;
constexpr i64 kMaxConfigBytes = i64{16} << 20;
constexpr i64 kMaxTreeBytes = 80'000'000;

/// A whole text as JSON (UTF-8, no byte order mark, no comments).
///   where           the file, for messages
///   max_tree_bytes  of memory that the values may take
///   errors  bad_file: deeper than kMaxJsonDepth, larger, a key twice in one object, not JSON (at which byte)
nlohmann::json parse_json(std::string_view text, std::string_view where, i64 max_tree_bytes = kMaxTreeBytes);

/// A file's JSON; refused when it is longer than max_bytes.
nlohmann::json read_json(const std::string& path, i64 max_bytes = kMaxConfigBytes);

}  // namespace plait::io
