// Products of up to LINEAR_VECTOR_ROWS rows, bound by reading W.
#pragma once
#include "linear-epilogue.h"
#include "linear-weights.h"

namespace pie {

// `xStride` must be a multiple of 8, `inputs` a multiple of the values in 16 bytes of W; x and W must be 16-byte aligned. `splits` warps (1, 2, 4 or
// 8) share a pair of outputs. W is bf16, int8_t, Float8 or Int4.
template <typename W>
void launchLinearVector(const LinearOutput<bf16>& to, const LinearLines<W>& lines, const bf16* x, size_t xStride, int inputs, int splits, cudaStream_t stream);

}  // namespace pie
