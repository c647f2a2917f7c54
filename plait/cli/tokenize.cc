#include "plait/cli/common.h"
namespace plait::cli {
void add_tokenize(Program&) {}
}  // namespace plait::cli
