#include "plait/io/cursor.h"

namespace plait::io {

std::string shown(std::string_view text) {
  constexpr size_t kMost = 80;
  std::string s = "'";
  for (unsigned char c : text.substr(0, kMost)) {
    if (c < 0x20 || c >= 0x7f)
      s += fmt::format("\\x{:02x}", c);
    else
      s += static_cast<char>(c);
  }
  s += text.size() > kMost ? fmt::format("...' ({} bytes)", text.size()) : "'";
  return s;
}

}  // namespace plait::io
