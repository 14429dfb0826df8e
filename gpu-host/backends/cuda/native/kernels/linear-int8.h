// Products with 8-bit weights: half the bytes to read. Symmetric, one scale for each output; activations stay bf16.
#pragma once
#include "linear.h"

namespace pie {

// y = (x · Wᵀ) * scales + b. W is `outputs × inputs` in an order of its own (linear-weights.h), made by launchQuantise. `inputs` is a multiple of 16.
struct LinearInt8 {
  const int8_t* weight = nullptr;
  const float* scales = nullptr;  // Of `outputs` values.
  const bf16* bias = nullptr;     // The same, or null.
  int outputs = 0;
  int inputs = 0;
};

// Each line by its largest value, to nearest. Infinite or NaN weights make their line NaN.
void launchQuantise(int8_t* weight, float* scales, const bf16* from, int outputs, int inputs, cudaStream_t stream);

// As for other weights (linear.h). cuBLASLt has no part in it.
void launchLinear(const LinearInt8& linear, const bf16* x, size_t xStride, void* y, size_t yStride, int rows, Epilogue epilogue, const LinearContext& context,
                  cudaStream_t stream);
bool linearSupports(LinearKernel kernel, const LinearInt8& linear, const bf16* x, size_t xStride, int rows, const LinearContext& context);

}  // namespace pie
