// The tensor-core attention kernel's launch, for attention.cu.
#pragma once
#include "attention-item.h"

namespace pie::attention {

// Of one multiprocessor, whatever keys and values are: what registers (255 a thread) and shared memory leave room for.
constexpr int FAST_BLOCKS_64 = 2, FAST_BLOCKS_128 = 2;
constexpr int fastBlocks(int headDim) { return headDim == 64 ? FAST_BLOCKS_64 : FAST_BLOCKS_128; }
void launchFast(bf16* out, const bf16* queries, KvLayer<bf16> layer, const Arguments& arguments, int blocks, cudaStream_t stream);
void launchFast(bf16* out, const bf16* queries, KvLayer<float8> layer, const Arguments& arguments, int blocks, cudaStream_t stream);

}  // namespace pie::attention
