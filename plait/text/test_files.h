// Where the tests of this room find their data.
#pragma once
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace plait::text {

inline std::string shared_file(const std::string& name) {
  const char* shared = std::getenv("PLAIT_SHARED");
  return std::string(shared ? shared : "../shared") + "/data/" + name;
}

inline std::string model_file() {
  if (const char* model = std::getenv("PLAIT_MODEL")) return model;
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  const std::string base = cache ? cache : std::string(home ? home : "") + "/.cache";
  return base + "/plait/models/SmolLM2-135M-Instruct.Q4_1.gguf";
}

inline bool exists(const std::string& path) { return std::filesystem::exists(path); }

inline std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

}  // namespace plait::text

#define PLAIT_NEED_FILE(path) \
  if (!::plait::text::exists(path)) GTEST_SKIP() << "no file " << (path)
