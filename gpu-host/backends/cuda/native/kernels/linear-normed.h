// Products of few rows that normalise their own input: saves a launch and a kernel that occupies only one multiprocessor per row.
#pragma once
#include "linear-narrow.h"

namespace pie {

// Largest number of inputs: 512 threads with 8 values each, as in rows-norm.cu, whose summation order these kernels keep.
constexpr int LINEAR_NORMED_INPUTS = 4096;
// Largest number of rows: above it, launchLinear chooses other kernels.
constexpr int LINEAR_NORMED_ROWS = 2;

// x[r] = norm(residual[p] + delta[p]) * weight, where p is r or pick[r]: the result of launchAddNorm or launchPickNorm (rows.h), bit for bit. The row
// stride of all arrays is `inputs`.
template <typename T>
struct NormedInput {
  float* sum;             // Receives residual + delta; null: not wanted. Must not alias `residual`, which blocks are still reading.
  const float* residual;
  const T* delta;         // Or null.
  const int* pick;        // Or null.
  const T* weight;
  float epsilon;
};

// Same bits as launchLinear over the normalised x. Returns false without launching anything if launchLinear would not choose Vector, or if x exceeds
// the limits above; the caller then launches the norm separately.
bool launchNormedLinear(const Linear<bf16>& linear, const NormedInput<bf16>& x, void* y, size_t yStride, int rows, Epilogue epilogue,
                        const LinearContext& context, cudaStream_t stream);
bool launchNormedLinear(const LinearNarrow& linear, const NormedInput<bf16>& x, void* y, size_t yStride, int rows, Epilogue epilogue,
                        const LinearContext& context, cudaStream_t stream);

}  // namespace pie
