#include "plait/base/hash.h"

#include <xxhash.h>

namespace plait {

u64 hash_bytes(const void* data, i64 bytes, u64 seed) {
  return XXH3_64bits_withSeed(data, static_cast<size_t>(bytes), seed);
}

}  // namespace plait
