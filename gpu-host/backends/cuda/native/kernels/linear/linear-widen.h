// Narrow weights as bf16, for products of many rows.
#pragma once
#include <cstddef>
#include "linear-weights.h"

namespace pie {

// Number of rows from which products of narrow weights widen W in the workspace and multiply with cuBLASLt. By calculation, the two ways are equally
// fast at about 400 rows: reading and writing W then costs as much as cuBLASLt saves over the tile kernel. This has not been measured on a card.
constexpr int LINEAR_WIDENED_ROWS = 512;
// Least workspace for widened lines: it holds the whole W of an 8B model's down product. If this W were multiplied in parts, their few outputs would
// leave multiprocessors idle.
constexpr size_t LINEAR_WIDENED_BYTES = size_t{128} << 20;
// Lines are widened in multiples of this number.
constexpr int LINEAR_WIDENED_LINES = 256;

// Writes `count` lines of W, from line `first` on, to `to` (`inputs` values each). For weights of 8 bits it writes the codes and leaves the scale to
// the epilogue; for 4 bits it writes the scaled values. Both are exact in bf16. `inputs` is a multiple of 8, and `to` 16-byte aligned. At most 65,535
// lines.
template <typename W>
void launchWiden(bf16* to, const LinearLines<W>& lines, int first, int count, int inputs, cudaStream_t stream);

}  // namespace pie
