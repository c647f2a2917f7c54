#include "plait/cli/common.h"
namespace plait::cli {
void add_explain(Program&) {}
}  // namespace plait::cli
