// Norms and gates of models other than Llama's: norms after blocks and on whole rows, scaled residual additions, GELU.
#include "rows.h"
#include "../../device/launch.h"
#include "../linear/linear-epilogue.h"
#include "../vectors.h"

namespace pie {
namespace {

constexpr int BLOCK_NORM_THREADS = 256;
constexpr int GATE_THREADS = 256;

// Any width; a row is read three times, mostly from the cache.
template <typename T>
__global__ __launch_bounds__(BLOCK_NORM_THREADS) void blockNorm(BlockNorm<T> a, int hidden, float epsilon) {
  __shared__ float deltaWarps[32], sumWarps[32];
  letNextBegin();
  waitForEarlier();
  const size_t to = static_cast<size_t>(blockIdx.x) * hidden;
  const size_t from = a.pick ? static_cast<size_t>(a.pick[blockIdx.x]) * hidden : to;
  float factor = a.scale;
  if (a.delta && a.outputNorm) {
    float squares = 0;
    for (int i = threadIdx.x; i < hidden; i += BLOCK_NORM_THREADS) {
      const float x = widen(a.delta[from + i]);
      squares += x * x;
    }
    factor *= rsqrtf(blockSum(squares, deltaWarps) / hidden + epsilon);
  }
  const auto added = [&](int i) {
    if (!a.delta) return 0.0f;
    const float x = factor * widen(a.delta[from + i]);
    return a.outputNorm ? x * (widen(a.outputNorm[i]) + a.offset) : x;
  };
  const bool stores = a.delta && !a.pick;
  float squares = 0;
  for (int i = threadIdx.x; i < hidden; i += BLOCK_NORM_THREADS) {
    const float x = a.residual[from + i] + added(i);
    if (stores) a.residual[from + i] = x;
    squares += x * x;
  }
  if (!a.states && !a.out) return;
  const float scale = a.norm ? rsqrtf(blockSum(squares, sumWarps) / hidden + epsilon) : 1.0f;
  for (int i = threadIdx.x; i < hidden; i += BLOCK_NORM_THREADS) {
    // A thread reads back only what it stored itself.
    const float x = a.residual[from + i] + (stores ? 0.0f : added(i));
    const float y = a.norm ? x * (scale * (widen(a.norm[i]) + a.offset)) : x;
    if (a.states) a.states[to + i] = y;
    if (a.out) storeRounded(a.out + to + i, y);
  }
}

// blockIdx.y: queries, keys.
template <typename T>
__global__ __launch_bounds__(BLOCK_NORM_THREADS) void rowNorms(T* qkv, const T* queryNorm, const T* keyNorm, int queryWidth, int kvWidth, float offset,
                                                               float epsilon) {
  __shared__ float warps[32];
  letNextBegin();
  waitForEarlier();
  const bool isQuery = blockIdx.y == 0;
  const int width = isQuery ? queryWidth : kvWidth;
  const T* const norm = isQuery ? queryNorm : keyNorm;
  T* const row = qkv + static_cast<size_t>(blockIdx.x) * (queryWidth + 2 * kvWidth) + (isQuery ? 0 : queryWidth);
  float squares = 0;
  for (int i = threadIdx.x; i < width; i += BLOCK_NORM_THREADS) {
    const float x = widen(row[i]);
    squares += x * x;
  }
  const float scale = rsqrtf(blockSum(squares, warps) / width + epsilon);
  for (int i = threadIdx.x; i < width; i += BLOCK_NORM_THREADS) storeRounded(row + i, widen(row[i]) * (scale * (widen(norm[i]) + offset)));
}

template <typename T>
__global__ __launch_bounds__(GATE_THREADS) void gateRows(T* out, const T* gateUp, int intermediate) {
  letNextBegin();
  waitForEarlier();
  const int i = blockIdx.y * GATE_THREADS + threadIdx.x;
  if (i >= intermediate) return;
  const T* const from = gateUp + static_cast<size_t>(blockIdx.x) * 2 * intermediate + 2 * i;
  storeRounded(out + static_cast<size_t>(blockIdx.x) * intermediate + i, geGlu(widen(from[0]), widen(from[1])));
}

}  // namespace

template <typename T>
void launchBlockNorm(const BlockNorm<T>& norm, int rows, int hidden, float epsilon, cudaStream_t stream) {
  if (rows > 0) LAUNCH_CHAINED(blockNorm<T>, rows, BLOCK_NORM_THREADS, 0, stream, norm, hidden, epsilon);
}

template <typename T>
void launchRowNorms(T* qkv, const T* queryNorm, const T* keyNorm, int rows, const ModelShape& shape, cudaStream_t stream) {
  if (rows > 0)
    LAUNCH_CHAINED(rowNorms<T>, dim3(rows, 2), BLOCK_NORM_THREADS, 0, stream, qkv, queryNorm, keyNorm, shape.queryWidth(), shape.kvWidth(),
                   shape.normOffset, shape.rmsEpsilon);
}

template <typename T>
void launchGeGlu(T* out, const T* gateUp, int rows, int intermediate, cudaStream_t stream) {
  if (rows > 0)
    LAUNCH_CHAINED(gateRows<T>, dim3(rows, divideUp(intermediate, GATE_THREADS)), GATE_THREADS, 0, stream, out, gateUp, intermediate);
}

#define ROWS_OF(T)                                                                                    \
  template void launchBlockNorm<T>(const BlockNorm<T>&, int, int, float, cudaStream_t);             \
  template void launchRowNorms<T>(T*, const T*, const T*, int, const ModelShape&, cudaStream_t);    \
  template void launchGeGlu<T>(T*, const T*, int, int, cudaStream_t);
ROWS_OF(bf16)
ROWS_OF(float)

}  // namespace pie
