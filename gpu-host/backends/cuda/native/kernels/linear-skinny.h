// Products of up to LINEAR_SKINNY_ROWS rows with few outputs.
#pragma once
#include "linear-epilogue.h"

namespace pie {

// `inputs` and `xStride` are multiples of 8 (int8: `inputs` of 16), x and W lie at multiples of 16 bytes. A block has 8 · `columns` outputs; columns is
// one of LINEAR_SKINNY_COLUMNS. W is bf16 or int8_t.
template <typename W>
void launchLinearSkinny(const LinearOutput<bf16>& to, const W* weight, const bf16* x, size_t xStride, int inputs, int columns, cudaStream_t stream);

}  // namespace pie
