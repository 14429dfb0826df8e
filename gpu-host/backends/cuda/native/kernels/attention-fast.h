// The tensor-core attention kernel's launch, for attention.cu.
#pragma once
#include "attention-item.h"

namespace pie::attention {

// Of one multiprocessor.
int fastBlocks(int headDim);
void launchFast(bf16* out, const bf16* queries, KvLayer<bf16> layer, const Arguments& arguments, int blocks, cudaStream_t stream);

}  // namespace pie::attention
