#include "plait/cli/common.h"
namespace plait::cli {
void add_doctor(Program&) {}
}  // namespace plait::cli
