// Launch functions of the tensor-core attention kernel, used by attention.cu.
#pragma once
#include "../../device/capability.h"
#include "attention-item.h"

namespace pie::attention {

// The shared memory of a block holds its queries, their input indices, and stages: a stage is the keys and values of one tile. `few` selects the
// variant for few rows. Memory latency limits that variant, so it has more stages; with many rows the queries take that memory. The functions count
// stages of bf16; float8 has twice as many stages of half the bytes.
constexpr int fastRows(bool few) { return few ? 32 : 128; }
constexpr int fastBytes(int headDim, bool few, int stages) {
  // The last term is for float8: the scales of the two float8 stages that take the place of one bf16 stage.
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
