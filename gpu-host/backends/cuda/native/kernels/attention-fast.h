// Launch functions of the tensor-core attention kernel, used by attention.cu.
#pragma once
#include "../device/capability.h"
#include "attention-item.h"

namespace pie::attention {

// Stages of a tile's keys and values in bf16 that a block keeps in shared memory beside its queries and their input indices. Few rows are bound by
// memory latency, so they get more stages; with many rows the queries need the shared memory. float8 has twice as many stages of half the bytes.
constexpr int fastRows(bool few) { return few ? 32 : 128; }
constexpr int fastBytes(int headDim, bool few, int stages) {
  // Two float8 stages with their scales are a little larger than one of bf16.
  return fastRows(few) * (2 * headDim + 4) + stages * (4 * ATTENTION_TILE * headDim + 8 * ATTENTION_TILE);
}
constexpr int fastStages(int headDim, bool few) {
  int stages = (few ? 3 : 2) + (headDim == 64 ? 1 : 0);
  while (stages > 2 && fastBytes(headDim, few, stages) > SHARED_BYTES) stages--;
  return stages;
}
// Resident blocks per multiprocessor for every KV type, limited by registers (255 per thread) and shared memory.
constexpr int fastBlocks(int headDim) {
  const int few = blocksWithin(fastBytes(headDim, true, fastStages(headDim, true)), 2), many = blocksWithin(fastBytes(headDim, false, fastStages(headDim, false)), 2);
  return few < many ? few : many;
}
void launchFast(bf16* out, const bf16* queries, KvLayer<bf16> layer, const Arguments& arguments, int blocks, cudaStream_t stream);
void launchFast(bf16* out, const bf16* queries, KvLayer<float8> layer, const Arguments& arguments, int blocks, cudaStream_t stream);

}  // namespace pie::attention
