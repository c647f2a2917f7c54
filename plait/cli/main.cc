#include "plait/cli/app.h"

int main(int argc, char** argv) { return plait::cli::run(argc, argv); }
