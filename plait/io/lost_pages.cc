#include "plait/io/lost_pages.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>

namespace plait::io {

namespace {

struct Watched {
  std::atomic<std::uintptr_t> begin = 0, end = 0;  // end 0: free
  std::atomic<bool> lost = false;
};
std::array<Watched, 4096> watched;
std::mutex mutex;  // of those who watch; the handler takes none
struct sigaction before;
std::uintptr_t page_bytes;

void on_sigbus(int signal, siginfo_t* info, void* context) {
  const bool sent = info->si_code <= 0;  // by kill(): there is no address
  const auto at = sent ? 0 : reinterpret_cast<std::uintptr_t>(info->si_addr);
  for (auto& w : watched) {
    const auto end = w.end.load(), begin = w.begin.load();
    if (sent || at < begin || at >= end) continue;
    const auto page = at / page_bytes * page_bytes;
    w.lost = true;
    if (mmap(reinterpret_cast<void*>(page), end - page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) !=
        MAP_FAILED)
      return;
  }
  if ((before.sa_flags & SA_SIGINFO) != 0) return before.sa_sigaction(signal, info, context);
  if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) return before.sa_handler(signal);
  ::signal(SIGBUS, SIG_DFL);
  ::raise(SIGBUS);
}

}  // namespace

int watch_mapping(const void* begin, size_t bytes) {
  const std::lock_guard lock(mutex);
  if (page_bytes == 0) {
    page_bytes = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
    struct sigaction ours {};
    ours.sa_sigaction = on_sigbus;
    ours.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigaction(SIGBUS, &ours, &before);
  }
  for (size_t i = 0; i < watched.size(); i++) {
    if (watched[i].end != 0) continue;
    watched[i].lost = false;
    watched[i].begin = reinterpret_cast<std::uintptr_t>(begin);
    watched[i].end = watched[i].begin + bytes;
    return static_cast<int>(i);
  }
  return -1;
}

void unwatch_mapping(int number) {
  const std::lock_guard lock(mutex);
  watched[static_cast<size_t>(number)].end = 0;
}

bool lost_pages(int number) { return watched[static_cast<size_t>(number)].lost; }

}  // namespace plait::io
