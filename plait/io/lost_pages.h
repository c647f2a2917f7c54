// Mapped files that somebody truncates: their lost pages read as zeros, and it is noted, instead of SIGBUS.
//
// Method: a handler of SIGBUS finds the mapping that the address lies in, maps zeros over it from the lost page to its
// end, and sets its mark. It uses nothing but a table of atomics and mmap, which on Linux is a system call alone. Any
// other SIGBUS goes to the handler that was there before. It is installed with the first mapping; a handler that is
// installed later and does not pass signals on takes this away.
#pragma once
#include <cstddef>

namespace plait::io {

/// Watches a mapping; its number for the calls below, -1 when too many are watched.
int watch_mapping(const void* begin, size_t bytes);
void unwatch_mapping(int number);
bool lost_pages(int number);

}  // namespace plait::io
