// Tables for people: columns as wide as their widest cell.
#pragma once
#include <string>
#include <vector>

#include "plait/base/base.h"

namespace plait::cli {

class Table {
 public:
  /// One letter a column: 'l' or 'r' for the side that its cells lean to.
  Table(std::string sides, std::vector<std::string> titles);
  void row(std::vector<std::string> cells);
  bool empty() const { return rows_.size() == 1; }
  /// Lines, each begun by `indent` spaces and ended by a newline; no spaces at line ends.
  std::string text(i64 indent = 0) const;

 private:
  std::string sides_;
  std::vector<std::vector<std::string>> rows_;  // the titles first
};

}  // namespace plait::cli
