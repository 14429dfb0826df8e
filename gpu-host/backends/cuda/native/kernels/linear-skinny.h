// Products of up to LINEAR_SKINNY_ROWS rows with few outputs.
#pragma once
#include "linear-epilogue.h"
#include "linear-weights.h"

namespace pie {

// `xStride` is a multiple of 8, `inputs` of what 16 bytes of W hold; x and W lie at multiples of 16 bytes. A block has 8 · `columns` outputs; columns is
// one of LINEAR_SKINNY_COLUMNS that fits (linearSkinnyFits). W is bf16, int8_t, Float8 or Int4.
template <typename W>
void launchLinearSkinny(const LinearOutput<bf16>& to, const LinearLines<W>& lines, const bf16* x, size_t xStride, int inputs, int columns, cudaStream_t stream);

}  // namespace pie
