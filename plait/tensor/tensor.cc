#include "plait/tensor/tensor.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

namespace plait {

namespace {
constexpr i64 kHuge = i64{2} << 20;
}

Buffer::Buffer(i64 bytes) : bytes_(bytes) {
  PLAIT_CHECK(bytes >= 0, "a buffer of {} bytes", bytes);
  if (bytes == 0) return;
#if defined(__SANITIZE_ADDRESS__)
  // On the heap, where the sanitizer sees every byte beyond the end.
  void* heap = nullptr;
  if (posix_memalign(&heap, 64, static_cast<size_t>(bytes)) != 0)
    fail(Code::does_not_fit, "cannot get {} bytes of memory", bytes);
  data_ = static_cast<std::byte*>(std::memset(heap, 0, static_cast<size_t>(bytes)));
#else
  // Anonymous pages: zeroed by the kernel, touched first by whoever fills them, given back at once.
  i64 whole = bytes >= kHuge ? round_up(bytes, kHuge) + kHuge : round_up(bytes, 4096);
  void* p = mmap(nullptr, static_cast<size_t>(whole), PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) fail(Code::does_not_fit, "cannot get {} bytes of memory", bytes);
  auto at = reinterpret_cast<std::uintptr_t>(p);
  if (bytes >= kHuge) {  // trim to a 2 MiB edge on both sides
    auto begin = static_cast<std::uintptr_t>(round_up(static_cast<i64>(at), kHuge));
    auto used = static_cast<size_t>(round_up(bytes, 4096));
    if (begin > at) munmap(p, begin - at);
    auto end = at + static_cast<size_t>(whole);
    if (begin + used < end) munmap(reinterpret_cast<void*>(begin + used), end - begin - used);
    at = begin;
    madvise(reinterpret_cast<void*>(at), used, MADV_HUGEPAGE);
  }
  data_ = reinterpret_cast<std::byte*>(at);
#endif
}

Buffer::~Buffer() {
#if defined(__SANITIZE_ADDRESS__)
  std::free(data_);
#else
  if (data_ != nullptr) munmap(data_, static_cast<size_t>(round_up(bytes_, 4096)));
#endif
}

Tensor::Tensor(DType t, Box b, Layout l) : View{nullptr, t, l, std::move(b)}, buffer(bytes_of(t, volume(box))) {
  data = buffer.data();
}

}  // namespace plait
