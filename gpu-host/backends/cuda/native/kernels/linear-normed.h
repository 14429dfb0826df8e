// Products of few rows that normalise their input themselves: a launch less, and nothing that waits for one multiprocessor.
#pragma once
#include "linear-narrow.h"

namespace pie {

// Most inputs of such a product: what 512 threads of rows-norm.cu hold in one eight each, whose order of sums is kept.
constexpr int LINEAR_NORMED_INPUTS = 4096;
// Most rows: of more, launchLinear chooses other kernels.
constexpr int LINEAR_NORMED_ROWS = 2;

// x[r] = norm(residual[p] + delta[p]) * weight, where p is r or pick[r]: exactly what launchAddNorm and launchPickNorm (rows.h) make of it. All rows are
// `inputs` apart.
template <typename T>
struct NormedInput {
  float* sum;             // residual + delta, for what comes later; null: not wanted. Not `residual` itself, of which blocks are still reading.
  const float* residual;
  const T* delta;         // Or null.
  const int* pick;        // Or null.
  const T* weight;
  float epsilon;
};

// As launchLinear of that x, to the bit. False, and nothing is launched, where launchLinear would not choose Vector, or x is larger than above: the norm is
// a kernel of its own then.
bool launchNormedLinear(const Linear<bf16>& linear, const NormedInput<bf16>& x, void* y, size_t yStride, int rows, Epilogue epilogue,
                        const LinearContext& context, cudaStream_t stream);
bool launchNormedLinear(const LinearNarrow& linear, const NormedInput<bf16>& x, void* y, size_t yStride, int rows, Epilogue epilogue,
                        const LinearContext& context, cudaStream_t stream);

}  // namespace pie
