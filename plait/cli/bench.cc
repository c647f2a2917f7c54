#include "plait/cli/common.h"
namespace plait::cli {
void add_bench(Program&) {}
}  // namespace plait::cli
