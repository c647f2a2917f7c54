#include "plait/cli/common.h"

int main(int argc, char** argv) { return plait::cli::run(argc, argv); }
