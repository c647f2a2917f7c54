#include "plait/cli/table.h"

#include <algorithm>

#include "plait/text/utf8.h"

namespace plait::cli {

Table::Table(std::string sides, std::vector<std::string> titles) : sides_(std::move(sides)) {
  PLAIT_CHECK(sides_.size() == titles.size(), "{} sides for {} titles", sides_.size(), titles.size());
  rows_.push_back(std::move(titles));
}

void Table::row(std::vector<std::string> cells) {
  PLAIT_CHECK(cells.size() == sides_.size(), "{} cells for {} columns", cells.size(), sides_.size());
  rows_.push_back(std::move(cells));
}

std::string Table::text(i64 indent) const {
  std::vector<i64> width(sides_.size(), 0);
  for (auto& r : rows_)
    for (size_t c = 0; c < r.size(); c++) width[c] = std::max(width[c], text::count_code_points(r[c]));
  std::string out;
  for (auto& r : rows_) {
    std::string line(static_cast<size_t>(indent), ' ');
    for (size_t c = 0; c < r.size(); c++) {
      const std::string pad(static_cast<size_t>(width[c] - text::count_code_points(r[c])), ' ');
      line += (c == 0 ? "" : "  ") + (sides_[c] == 'r' ? pad + r[c] : r[c] + pad);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

}  // namespace plait::cli
