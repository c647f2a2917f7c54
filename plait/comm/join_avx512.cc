// join_parts for one instruction set (cmake/rooms.cmake gives the flags by the file's name).
#define PLAIT_JOIN_NAME join_avx512
#include "plait/comm/join_loops.h"
