#include "plait/io/model_path.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <vector>

#include "plait/io/cursor.h"
#include "plait/io/gguf.h"

namespace plait::io {

namespace {

namespace fs = std::filesystem;

std::optional<fs::path> from_environment(const char* name) {
  const char* v = std::getenv(name);
  if (v == nullptr || *v == '\0') return std::nullopt;
  return fs::path(v);
}

std::optional<fs::path> cache_home() {
  if (auto p = from_environment("XDG_CACHE_HOME")) return p;
  if (auto p = from_environment("HOME")) return *p / ".cache";
  return std::nullopt;
}

std::optional<fs::path> hub_cache() {
  if (auto p = from_environment("HF_HUB_CACHE")) return p;
  if (auto p = from_environment("HF_HOME")) return *p / "hub";
  if (auto p = cache_home()) return *p / "huggingface" / "hub";
  return std::nullopt;
}

bool is_there(const fs::path& p) {
  std::error_code e;
  return fs::exists(p, e);
}

std::vector<fs::path> entries(const fs::path& folder) {
  std::error_code e;
  std::vector<fs::path> r;
  for (fs::directory_iterator it(folder, e), end; !e && it != end; it.increment(e)) r.push_back(it->path());
  std::sort(r.begin(), r.end());
  return r;
}

/// NAME or ORG/NAME of letters, digits, '.', '_', '-', no part starting with a dot.
bool is_name(const std::string& s) {
  if (s.empty() || s.size() > 256 || std::count(s.begin(), s.end(), '/') > 1) return false;
  char before = '/';
  for (char c : s) {
    bool plain = std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' || c == '.' || c == '/';
    if (!plain || (before == '/' && (c == '.' || c == '/'))) return false;
    before = c;
  }
  return before != '/';
}

std::optional<fs::path> snapshot(const fs::path& repository) {
  std::string commit;
  if (std::ifstream ref(repository / "refs" / "main");
      ref && ref >> commit && is_name(commit) && commit.find('/') == commit.npos)
    if (auto p = repository / "snapshots" / commit; is_there(p)) return p;
  std::optional<fs::path> newest;
  fs::file_time_type newest_time{};
  for (const auto& p : entries(repository / "snapshots")) {
    std::error_code e;
    auto time = fs::last_write_time(p, e);
    if (e || (newest && time <= newest_time)) continue;
    newest = p;
    newest_time = time;
  }
  return newest;
}

}  // namespace

std::vector<std::string> without_further_parts(std::vector<std::string> files) {
  std::sort(files.begin(), files.end());
  std::set<std::pair<std::string, i64>> seen;
  std::erase_if(files, [&](const std::string& f) {
    const auto part = gguf_part(f);
    return part && !seen.insert({part->stem, part->count}).second;
  });
  return files;
}

std::string find_model(const std::string& path_or_name) {
  if (path_or_name.empty())
    fail(Code::bad_file, "[model] got an empty name, want a file, a folder or a name in the cache");
  if (path_or_name.find('\0') == path_or_name.npos && is_there(path_or_name)) return path_or_name;
  std::vector<std::string> looked = {shown(path_or_name)};
  if (is_name(path_or_name)) {
    if (auto home = cache_home()) {
      const auto at = *home / "plait" / "models" / path_or_name;
      for (const auto& p : {at, fs::path(at.string() + ".gguf")}) {
        if (is_there(p)) return p.string();
        looked.push_back(p.string());
      }
      std::vector<std::string> quantized;
      for (const auto& p : entries(at.parent_path()))
        if (const auto name = p.filename().string(); p.extension() == ".gguf")
          if (const auto part = gguf_part(name);
              name.starts_with(at.filename().string() + ".") || (part && part->stem == at.filename().string()))
            quantized.push_back(p.string());
      quantized = without_further_parts(std::move(quantized));
      if (quantized.size() == 1) return quantized[0];
      if (quantized.size() > 1)
        fail(Code::bad_file, "[model {}] got several files, want one of: {}", shown(path_or_name),
             fmt::join(quantized, ", "));
      looked.push_back(at.string() + ".*.gguf");
    }
    if (auto hub = hub_cache(); hub && path_or_name.find('/') != path_or_name.npos) {
      auto folder = "models--" + path_or_name;
      folder.replace(folder.find('/'), 1, "--");
      if (auto p = snapshot(*hub / folder)) return p->string();
      looked.push_back((*hub / folder / "snapshots" / "*").string());
    }
  }
  fail(Code::bad_file, "[model {}] got no such file, folder or name; looked at: {}", shown(path_or_name),
       fmt::join(looked, ", "));
}

}  // namespace plait::io
