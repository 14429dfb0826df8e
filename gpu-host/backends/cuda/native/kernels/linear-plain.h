// The product for any shape and type.
#pragma once
#include "linear-epilogue.h"

namespace pie {

// `to` finishes runs of 2. T is float or bf16, W is T or, for bf16, int8_t.
template <typename T, typename W>
void launchLinearPlain(const LinearOutput<T>& to, const W* weight, const T* x, size_t xStride, int inputs, cudaStream_t stream);

}  // namespace pie
