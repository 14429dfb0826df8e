// Instantiates the tensor-core attention kernel for bf16 keys and values.
#include "attention-fast-kernel.h"

namespace pie::attention {

void launchFast(bf16* out, const bf16* queries, KvLayer<bf16> layer, const Arguments& arguments, int blocks, cudaStream_t stream) {
  launchFastOf(out, queries, layer, arguments, blocks, stream);
}

}  // namespace pie::attention
