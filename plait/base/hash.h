// XXH3 of bytes: hashes of tensors in `verify`, of files in tests.
#pragma once
#include "plait/base/base.h"

namespace plait {

u64 hash_bytes(const void* data, i64 bytes, u64 seed = 0);

}  // namespace plait
