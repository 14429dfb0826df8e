// Launch functions of the tensor-core attention kernel, used by attention.cu.
#pragma once
#include "attention-item.h"

namespace pie::attention {

// Resident blocks per multiprocessor for every KV type, limited by registers (255 per thread) and shared memory.
constexpr int FAST_BLOCKS_64 = 2, FAST_BLOCKS_128 = 2;
constexpr int fastBlocks(int headDim) { return headDim == 64 ? FAST_BLOCKS_64 : FAST_BLOCKS_128; }
void launchFast(bf16* out, const bf16* queries, KvLayer<bf16> layer, const Arguments& arguments, int blocks, cudaStream_t stream);
void launchFast(bf16* out, const bf16* queries, KvLayer<float8> layer, const Arguments& arguments, int blocks, cudaStream_t stream);

}  // namespace pie::attention
