// Float8 with one scale per row: for weights that are kept at half the bytes of bf16.
#pragma once
#include "../device/float8.h"
#include "types.h"

namespace pie {

// values[r][i] ≈ codes[r][i] × scales[r]; a row's largest value takes the largest code. An error is at most 1/16 of the value, or 1/2^10 of the scale
// where that is more. NaN stays NaN; infinities become the largest finite code.
template <typename T>
void launchToFloat8(uint8_t* codes, float* scales, const T* values, int rows, int width, cudaStream_t stream);

template <typename T>
void launchFromFloat8(T* values, const uint8_t* codes, const float* scales, int rows, int width, cudaStream_t stream);

}  // namespace pie
