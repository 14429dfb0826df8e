// Narrow weights as bf16, for products of many rows.
#pragma once
#include <cstddef>
#include "linear-weights.h"

namespace pie {

// Rows from which products of narrow weights widen W in the workspace and multiply with cuBLASLt. By calculation, reading and writing W costs as
// much as cuBLASLt saves over tiles at about 400 rows; no card has measured it.
constexpr int LINEAR_WIDENED_ROWS = 512;
// Least workspace for widened lines: it holds all of an 8B model's down product, whose few outputs would leave multiprocessors idle in parts.
constexpr size_t LINEAR_WIDENED_BYTES = size_t{128} << 20;
// Lines are widened in multiples of this number.
constexpr int LINEAR_WIDENED_LINES = 256;

// Writes `count` lines of W from line `first` on to `to`, `inputs` values each: the codes of 8 bits, whose scale is left to the epilogue, or the
// scaled values of 4 bits. Both are exact in bf16. `inputs` is a multiple of 8, and `to` 16-byte aligned. At most 65,535 lines.
template <typename W>
void launchWiden(bf16* to, const LinearLines<W>& lines, int first, int count, int inputs, cudaStream_t stream);

}  // namespace pie
