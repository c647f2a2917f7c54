// The program.
#pragma once
#include <string>
#include <vector>

namespace plait::cli {

/// The arguments as CLI11 reads them: it takes one-letter short options only, so -tp and its like become long ones;
/// the text after -p, --prompt or --system stays as it is.
std::vector<std::string> rewritten(int argc, const char* const* argv);

/// Parses, runs the chosen command, turns errors into messages on stderr and exit codes.
int run(int argc, const char* const* argv);

}  // namespace plait::cli
