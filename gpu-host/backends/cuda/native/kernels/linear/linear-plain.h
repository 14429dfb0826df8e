// The product for any shape and type.
#pragma once
#include "linear-epilogue.h"
#include "linear-weights.h"

namespace pie {

// `to` must finish runs of 2. T is float or bf16; W is T or, for bf16, int8_t, Float8 or Int4.
template <typename T, typename W>
void launchLinearPlain(const LinearOutput<T>& to, const LinearLines<W>& lines, const T* x, size_t xStride, int inputs, cudaStream_t stream);

}  // namespace pie
