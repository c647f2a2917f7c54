#include "plait/cli/common.h"
namespace plait::cli {
void add_verify(Program&) {}
}  // namespace plait::cli
