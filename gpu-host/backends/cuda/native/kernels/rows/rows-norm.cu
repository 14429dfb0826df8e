// RMSNorm (Zhang and Sennrich, 2019) with the preceding residual addition. Sums are float; no partial sum has more than a few hundred terms.
#include "rows.h"
#include "../../device/launch.h"
#include "../vectors.h"

namespace pie {
namespace {

__device__ __forceinline__ void addEight(Eight& to, const Eight& what) {
#pragma unroll
  for (int j = 0; j < EIGHT; j++) to.values[j] += what.values[j];
}

__device__ __forceinline__ void addSquares(float& sum, const Eight& x) {
#pragma unroll
  for (int j = 0; j < EIGHT; j++) sum = fmaf(x.values[j], x.values[j], sum);
}

// The factor that normalises a row.
__device__ __forceinline__ float normScale(float squares, int hidden, float epsilon) { return rsqrtf(squares / hidden + epsilon); }

__device__ __forceinline__ void scaleEight(Eight& x, float scale, const Eight& weight) {
#pragma unroll
  for (int j = 0; j < EIGHT; j++) x.values[j] *= scale * weight.values[j];
}

// One input row, up to two output rows; null outputs are skipped.
template <typename T>
struct NormArguments {
  float* sum;             // residual + delta. May alias `residual`.
  float* states;
  T* narrow;
  const float* residual;
  const T* delta;
  const int* pick;        // Rows of `residual` and `delta`; null: the same rows as the output.
  const T* weight;
  int hidden;
  float epsilon;
};

constexpr int MAX_NORM_THREADS = 1024;

// The row stays in registers: one pass over memory.
template <typename T, int VECTORS>
__global__ __launch_bounds__(MAX_NORM_THREADS) void normEights(NormArguments<T> a) {
  __shared__ float warps[32];
  letNextBegin();
  const size_t to = static_cast<size_t>(blockIdx.x) * a.hidden;
  const size_t from = a.pick ? static_cast<size_t>(__ldcg(a.pick + blockIdx.x)) * a.hidden : to;
  const bool normalise = a.states || a.narrow;
  Eight x[VECTORS], weight[VECTORS];
#pragma unroll
  for (int v = 0; v < VECTORS; v++) {
    const int i = (v * blockDim.x + threadIdx.x) * EIGHT;
    // No kernel writes the weights, so the load is issued while the previous kernel still runs.
    if (i < a.hidden && normalise) weight[v] = loadEight(a.weight + i);
  }
  waitForEarlier();
  float squares = 0;
#pragma unroll
  for (int v = 0; v < VECTORS; v++) {
    const int i = (v * blockDim.x + threadIdx.x) * EIGHT;
    if (i >= a.hidden) continue;
    x[v] = loadEight(a.residual + from + i);
    if (a.delta) {
      addEight(x[v], loadEight(a.delta + from + i));
      if (a.sum) storeEight(a.sum + to + i, x[v]);
    }
    addSquares(squares, x[v]);
  }
  if (!normalise) return;
  const float scale = normScale(blockSum(squares, warps), a.hidden, a.epsilon);
#pragma unroll
  for (int v = 0; v < VECTORS; v++) {
    const int i = (v * blockDim.x + threadIdx.x) * EIGHT;
    if (i >= a.hidden) continue;
    scaleEight(x[v], scale, weight[v]);
    if (a.states) storeEight(a.states + to + i, x[v]);
    if (a.narrow) storeEight(a.narrow + to + i, x[v]);
  }
}

constexpr int PLAIN_NORM_THREADS = 256;

// Any width.
template <typename T>
__global__ __launch_bounds__(PLAIN_NORM_THREADS) void normPlain(NormArguments<T> a) {
  __shared__ float warps[32];
  letNextBegin();
  waitForEarlier();
  const size_t to = static_cast<size_t>(blockIdx.x) * a.hidden;
  const size_t from = a.pick ? static_cast<size_t>(a.pick[blockIdx.x]) * a.hidden : to;
  float squares = 0;
  for (int i = threadIdx.x; i < a.hidden; i += PLAIN_NORM_THREADS) {
    const float x = a.residual[from + i] + (a.delta ? widen(a.delta[from + i]) : 0.0f);
    if (a.sum && a.delta) a.sum[to + i] = x;
    squares += x * x;
  }
  if (!a.states && !a.narrow) return;
  const float scale = normScale(blockSum(squares, warps), a.hidden, a.epsilon);
  // If the sum was stored, `residual` already includes delta.
  const T* delta = a.sum ? nullptr : a.delta;
  for (int i = threadIdx.x; i < a.hidden; i += PLAIN_NORM_THREADS) {
    const float x = a.residual[from + i] + (delta ? widen(delta[from + i]) : 0.0f);
    const float y = x * (scale * widen(a.weight[i]));
    if (a.states) a.states[to + i] = y;
    if (a.narrow) storeRounded(a.narrow + to + i, y);
  }
}

template <typename T>
void launchNorm(const NormArguments<T>& a, int rows, cudaStream_t stream) {
  if (rows == 0) return;
  const bool aligned = areAligned(a.sum, a.states, a.narrow, a.residual, a.delta, a.weight);
  if (a.hidden % EIGHT != 0 || a.hidden > 2 * EIGHT * MAX_NORM_THREADS || !aligned) {
    LAUNCH_CHAINED(normPlain<T>, rows, PLAIN_NORM_THREADS, 0, stream, a);
    return;
  }
  const int eights = a.hidden / EIGHT;
  // With 512 threads, four blocks fit on a multiprocessor.
  if (eights <= 512)
    LAUNCH_CHAINED((normEights<T, 1>), rows, divideUp(eights, 32) * 32, 0, stream, a);
  else
    LAUNCH_CHAINED((normEights<T, 2>), rows, divideUp(eights, 64) * 32, 0, stream, a);
}

}  // namespace

template <typename T>
void launchAddNorm(T* out, float* residual, const T* delta, const T* weight, int rows, int hidden, float epsilon, cudaStream_t stream) {
  launchNorm<T>({residual, nullptr, out, residual, delta, nullptr, weight, hidden, epsilon}, rows, stream);
}

template <typename T>
void launchPickNorm(float* states, T* narrow, const float* residual, const T* delta, const int* pick, const T* weight, int count, int hidden, float epsilon,
                    cudaStream_t stream) {
  launchNorm<T>({nullptr, states, narrow, residual, delta, pick, weight, hidden, epsilon}, count, stream);
}

#define ROWS_OF(T)                                                                                       \
  template void launchAddNorm<T>(T*, float*, const T*, const T*, int, int, float, cudaStream_t); \
  template void launchPickNorm<T>(float*, T*, const float*, const T*, const int*, const T*, int, int, float, cudaStream_t);
ROWS_OF(bf16)
ROWS_OF(float)

}  // namespace pie
