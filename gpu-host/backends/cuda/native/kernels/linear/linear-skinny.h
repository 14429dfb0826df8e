// Products of up to LINEAR_SKINNY_ROWS rows with few outputs.
#pragma once
#include "linear-epilogue.h"
#include "linear-weights.h"

namespace pie {

// `xStride` must be a multiple of 8, `inputs` a multiple of the values in 16 bytes of W; x and W must be 16-byte aligned. A block computes 8 ×
// `columns` outputs; `columns` is one of LINEAR_SKINNY_COLUMNS for which linearSkinnyFits is true. W is bf16, int8_t, Float8 or Int4.
template <typename W>
void launchLinearSkinny(const LinearOutput<bf16>& to, const LinearLines<W>& lines, const bf16* x, size_t xStride, int inputs, int columns, cudaStream_t stream);

}  // namespace pie
