// Products of up to LINEAR_VECTOR_ROWS rows, bound by reading W.
#pragma once
#include "linear-epilogue.h"

namespace pie {

// `inputs` and `xStride` are multiples of 8 (int8: `inputs` of 16), x and W lie at multiples of 16 bytes. `splits` warps (1, 2, 4 or 8) share a pair of
// outputs. W is bf16 or int8_t.
template <typename W>
void launchLinearVector(const LinearOutput<bf16>& to, const W* weight, const bf16* x, size_t xStride, int inputs, int splits, cudaStream_t stream);

}  // namespace pie
