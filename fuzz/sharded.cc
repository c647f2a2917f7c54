#include "plait/shard/shard.h"

#include "fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, size_t size) {
  using namespace plait;
  return survives([&] { prints_and_reads_back(ShardedGraph::parse(text_of(data, size))); });
}
