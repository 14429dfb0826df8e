#include "low-rank.h"
#include <algorithm>
#include <type_traits>
#include "../device/copy.h"
#include "../device/launch.h"
#include "../device/mma.h"
#include "linear-epilogue.h"
#include "vectors.h"

namespace pie {

namespace {

// Blocks along the tasks, and along the ranks of A. More work than that is done in turns.
constexpr int TASK_BLOCKS = 32, RANK_BLOCKS = 8;
constexpr int PLAIN_THREADS = 128;

template <typename T>
__device__ __forceinline__ const LowRankMatrices<T>& matricesOf(const LowRankTask& task, const LowRankProduct& product) {
  return static_cast<const LowRankMatrices<T>*>(task.matrices)[product.matrices];
}

// Loads a pointer from a table before the wait. Like every load of a step's tables before the wait, it bypasses L1 (see launch.h).
template <typename P>
__device__ __forceinline__ P* loadEarly(P* const* from) {
  static_assert(sizeof(P*) == sizeof(long long), "pointers are loaded as 64-bit words");
  return reinterpret_cast<P*>(__ldcg(reinterpret_cast<const long long*>(from)));
}

// Column of y of an output of a projection.
__device__ __forceinline__ int columnOf(const LowRankProduct& product, int part, int output) {
  if (product.alternating) return 2 * output + part;
  for (int i = 0; i < part; i++) output += product.outputs[i];
  return output;
}

// low = A · x: a warp computes one value.
template <typename T>
__global__ void __launch_bounds__(PLAIN_THREADS) plainShrink(LowRankProduct product, LowRankTables tables, const T* x, size_t xStride) {
  letNextBegin();
  waitForEarlier();
  const int lane = threadIdx.x % 32, warps = gridDim.x * PLAIN_THREADS / 32;
  for (int t = blockIdx.y; t < *tables.taskCount; t += gridDim.y) {
    const LowRankTask task = tables.tasks[t];
    const LowRankMatrices<T>& matrices = matricesOf<T>(task, product);
    for (int value = (blockIdx.x * PLAIN_THREADS + threadIdx.x) / 32; value < task.count * matrices.ranks; value += warps) {
      const int place = task.first + value / matrices.ranks, rank = value % matrices.ranks;
      const T* const row = x + tables.rows[place] * xStride;
      const T* const line = matrices.down + static_cast<size_t>(rank) * product.inputs;
      float sum = 0;
      for (int i = lane; i < product.inputs; i += 32) sum = fmaf(widen(line[i]), widen(row[i]), sum);
      sum = warpSum(sum);
      if (lane == 0) storeRounded(matrices.low + static_cast<size_t>(place) * matrices.ranks + rank, sum);
    }
  }
}

// y += B · low: a thread computes one value.
template <typename T>
__global__ void __launch_bounds__(PLAIN_THREADS) plainExpand(LowRankProduct product, LowRankTables tables, T* y, size_t yStride) {
  letNextBegin();
  waitForEarlier();
  for (int t = blockIdx.y; t < *tables.taskCount; t += gridDim.y) {
    const LowRankTask task = tables.tasks[t];
    const LowRankMatrices<T>& matrices = matricesOf<T>(task, product);
    for (int part = 0; part < product.parts; part++) {
      const auto& up = matrices.ups[part];
      if (matrices.ranks == 0 || up.rank == 0) continue;
      const int outputs = product.outputs[part];
      for (int value = blockIdx.x * PLAIN_THREADS + threadIdx.x; value < task.count * outputs; value += gridDim.x * PLAIN_THREADS) {
        const int place = task.first + value / outputs, output = value % outputs;
        const T* const low = matrices.low + static_cast<size_t>(place) * matrices.ranks + up.from;
        const T* const line = up.weight + static_cast<size_t>(output) * up.rank;
        float sum = 0;
        for (int k = 0; k < up.rank; k++) sum = fmaf(widen(line[k]), widen(low[k]), sum);
        T* const at = y + tables.rows[place] * yStride + columnOf(product, part, output);
        storeRounded(at, widen(*at) + sum);
      }
    }
  }
}

constexpr int SHRINK_WARPS = 8, SHRINK_UNROLL = 4;
constexpr int SHRINK_SLICE = 32;                   // Inputs that a warp takes per step: 8 for each lane of a quad.
constexpr int SHRINK_LINE = 10;                    // Row stride of a warp's sums.

// low = A · x on tensor cores: a block computes eight ranks of a task. Its warps share the inputs, so that a few blocks read A at full rate.
__global__ void __launch_bounds__(32 * SHRINK_WARPS) matrixShrink(LowRankProduct product, LowRankTables tables, const bf16* x, size_t xStride) {
  // Aligned for the pairs that are stored together.
  alignas(16) __shared__ float partial[SHRINK_WARPS][LOW_RANK_ROWS][SHRINK_LINE];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, line = lane / 4;
  const int first = warp * SHRINK_SLICE + lane % 4 * 8;
  const int inputs = product.inputs, tasks = __ldcg(tables.taskCount);
  constexpr int APART = SHRINK_WARPS * SHRINK_SLICE;
  // No kernel writes the tables and A, so the first task's matrix is requested while the previous kernel still runs.
  if (static_cast<int>(blockIdx.y) < tasks) {
    const auto* const matrices = static_cast<const LowRankMatrices<bf16>*>(loadEarly(&tables.tasks[blockIdx.y].matrices)) + product.matrices;
    const int rank = blockIdx.x * 8 + line;
    if (lane % 4 == 0 && rank < __ldcg(&matrices->ranks)) {
      const bf16* const weights = loadEarly(&matrices->down) + static_cast<size_t>(rank) * inputs + first;
#pragma unroll
      for (int u = 0; u < SHRINK_UNROLL; u++)
        if (first + u * APART < inputs) prefetch(weights + u * APART);
    }
  }
  waitForEarlier();
  for (int t = blockIdx.y; t < tasks; t += gridDim.y) {
    const LowRankTask task = tables.tasks[t];
    const LowRankMatrices<bf16>& matrices = matricesOf<bf16>(task, product);
    const bf16* rows[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int row = half * 8 + line;
      rows[half] = row < task.count ? x + tables.rows[task.first + row] * xStride : nullptr;
    }
    // Ranks are multiples of 16, so every tile of eight ranks is whole.
    for (int rank = blockIdx.x * 8; rank < matrices.ranks; rank += gridDim.x * 8) {
      const bf16* const weights = matrices.down + static_cast<size_t>(rank + line) * inputs;
      float sums[4] = {};
      // The bound is uniform in the warp, because all lanes take part in every mma.
      for (int slice = 0; warp * SHRINK_SLICE + slice < inputs; slice += SHRINK_UNROLL * APART) {
        uint4 w[SHRINK_UNROLL], xs[SHRINK_UNROLL][2];
#pragma unroll
        for (int u = 0; u < SHRINK_UNROLL; u++) {
          const int at = first + slice + u * APART;
          const bool inside = at < inputs;
          w[u] = inside ? loadOnce16(weights + at) : make_uint4(0, 0, 0, 0);
#pragma unroll
          for (int half = 0; half < 2; half++) xs[u][half] = inside && rows[half] ? loadKept16(rows[half] + at) : make_uint4(0, 0, 0, 0);
        }
        // The order of the inputs does not matter, as both operands agree on it.
#pragma unroll
        for (int u = 0; u < SHRINK_UNROLL; u++) {
          multiplyAdd(sums, {xs[u][0].x, xs[u][1].x, xs[u][0].y, xs[u][1].y}, {w[u].x, w[u].y});
          multiplyAdd(sums, {xs[u][0].z, xs[u][1].z, xs[u][0].w, xs[u][1].w}, {w[u].z, w[u].w});
        }
      }
#pragma unroll
      for (int half = 0; half < 2; half++)
        *reinterpret_cast<float2*>(&partial[warp][half * 8 + line][lane % 4 * 2]) = make_float2(sums[half * 2], sums[half * 2 + 1]);
      __syncthreads();
      const int row = threadIdx.x / 8, of = threadIdx.x % 8;
      if (row < task.count) {
        float sum = 0;
#pragma unroll
        for (int s = 0; s < SHRINK_WARPS; s++) sum += partial[s][row][of];
        matrices.low[static_cast<size_t>(task.first + row) * matrices.ranks + rank + of] = __float2bfloat16(sum);
      }
      __syncthreads();
    }
  }
  letNextBegin();
}

constexpr int EXPAND_WARPS = 8;
constexpr int EXPAND_TILES = 4;                    // Tiles of 8 outputs per warp.
constexpr int EXPAND_OUTPUTS = 8 * EXPAND_TILES;   // Of one projection.

// sums += low · Bᵀ for EXPAND_OUTPUTS outputs of one projection.
__device__ __forceinline__ void multiplyUp(float (&sums)[EXPAND_TILES][4], const LowRankMatrices<bf16>& matrices, const LowRankMatrices<bf16>::Up& up,
                                           const LowRankTask& task, int firstOutput, int outputs) {
  const int lane = threadIdx.x % 32, line = lane / 4;
  for (int k = lane % 4 * 4; k < up.rank; k += LOW_RANK_STEP) {
    uint2 low[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int row = half * 8 + line;
      low[half] = row < task.count ? *reinterpret_cast<const uint2*>(matrices.low + static_cast<size_t>(task.first + row) * matrices.ranks + up.from + k)
                                   : make_uint2(0, 0);
    }
#pragma unroll
    for (int tile = 0; tile < EXPAND_TILES; tile++) {
      const int output = firstOutput + tile * 8 + line;
      const uint2 b = output < outputs ? *reinterpret_cast<const uint2*>(up.weight + static_cast<size_t>(output) * up.rank + k) : make_uint2(0, 0);
      multiplyAdd(sums[tile], {low[0].x, low[1].x, low[0].y, low[1].y}, {b.x, b.y});
    }
  }
}

template <int N>
__device__ __forceinline__ void addRun(bf16* at, float (&sums)[N]) {
  const Run<bf16, N> before = *reinterpret_cast<const Run<bf16, N>*>(at);
#pragma unroll
  for (int i = 0; i < N; i++) sums[i] += widen(before.values[i]);
  storeRun(at, sums);
}

// y += B · low on tensor cores: a warp computes EXPAND_OUTPUTS outputs of a task; of both projections if they alternate.
template <bool ALTERNATING>
__global__ void __launch_bounds__(32 * EXPAND_WARPS) matrixExpand(LowRankProduct product, LowRankTables tables, bf16* y, size_t yStride) {
  const int lane = threadIdx.x % 32, line = lane / 4, tasks = __ldcg(tables.taskCount);
  waitForEarlier();
  for (int t = blockIdx.y; t < tasks; t += gridDim.y) {
    const LowRankTask task = tables.tasks[t];
    const LowRankMatrices<bf16>& matrices = matricesOf<bf16>(task, product);
    if (matrices.ranks == 0) continue;
    int firstOutput = (blockIdx.x * EXPAND_WARPS + threadIdx.x / 32) * EXPAND_OUTPUTS, part = 0, column = 0;
    if constexpr (!ALTERNATING) {
      // Each projection begins with a warp of its own.
      for (; part < product.parts - 1; part++) {
        const int whole = (product.outputs[part] + EXPAND_OUTPUTS - 1) / EXPAND_OUTPUTS * EXPAND_OUTPUTS;
        if (firstOutput < whole) break;
        firstOutput -= whole;
        column += product.outputs[part];
      }
    }
    const int outputs = product.outputs[part];
    if (firstOutput >= outputs || (!ALTERNATING && matrices.ups[part].rank == 0)) continue;
    float sums[ALTERNATING ? 2 : 1][EXPAND_TILES][4] = {};
#pragma unroll
    for (int i = 0; i < (ALTERNATING ? 2 : 1); i++) multiplyUp(sums[i], matrices, matrices.ups[part + i], task, firstOutput, outputs);
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int row = half * 8 + line;
      if (row >= task.count) continue;
      bf16* const to = y + tables.rows[task.first + row] * yStride;
#pragma unroll
      for (int tile = 0; tile < EXPAND_TILES; tile++) {
        const int output = firstOutput + tile * 8 + lane % 4 * 2;
        if (output >= outputs) continue;
        const float(&own)[4] = sums[0][tile];
        if constexpr (ALTERNATING) {
          const float(&other)[4] = sums[1][tile];
          float run[4] = {own[half * 2], other[half * 2], own[half * 2 + 1], other[half * 2 + 1]};
          addRun(to + 2 * output, run);
        } else {
          float run[2] = {own[half * 2], own[half * 2 + 1]};
          addRun(to + column + output, run);
        }
      }
    }
  }
  letNextBegin();
}

int outputsOf(const LowRankProduct& product) {
  int outputs = 0;
  for (int part = 0; part < product.parts; part++) outputs += product.outputs[part];
  return outputs;
}

template <typename T>
bool usesMatrices(const LowRankProduct& product, const T* x, size_t xStride, const T* y, size_t yStride) {
  bool even = true;
  for (int part = 0; part < product.parts; part++) even = even && product.outputs[part] % 2 == 0;
  return std::is_same_v<T, bf16> && even && product.inputs % 8 == 0 && xStride % 8 == 0 && yStride % 8 == 0 && areAligned(x, y);
}

void launchMatrices(const LowRankProduct& product, const LowRankTables& tables, const bf16* x, size_t xStride, bf16* y, size_t yStride, unsigned tasks,
                    cudaStream_t stream) {
  LAUNCH_CHAINED(matrixShrink, dim3(RANK_BLOCKS, tasks), 32 * SHRINK_WARPS, 0, stream, product, tables, x, xStride);
  int warps = 0;
  for (int part = 0; part < (product.alternating ? 1 : product.parts); part++) warps += divideUp(product.outputs[part], EXPAND_OUTPUTS);
  const dim3 grid(divideUp(warps, EXPAND_WARPS), tasks);
  if (product.alternating) LAUNCH_CHAINED(matrixExpand<true>, grid, 32 * EXPAND_WARPS, 0, stream, product, tables, y, yStride);
  else LAUNCH_CHAINED(matrixExpand<false>, grid, 32 * EXPAND_WARPS, 0, stream, product, tables, y, yStride);
}

}  // namespace

template <typename T>
void launchLowRank(const LowRankProduct& product, const LowRankTables& tables, const T* x, size_t xStride, T* y, size_t yStride, int rows,
                   cudaStream_t stream) {
  if (rows <= 0 || outputsOf(product) == 0) return;
  const unsigned tasks = std::min(rows, TASK_BLOCKS);
  if constexpr (std::is_same_v<T, bf16>)
    if (usesMatrices(product, x, xStride, y, yStride)) return launchMatrices(product, tables, x, xStride, y, yStride, tasks, stream);
  LAUNCH_CHAINED(plainShrink<T>, dim3(RANK_BLOCKS, tasks), PLAIN_THREADS, 0, stream, product, tables, x, xStride);
  const unsigned blocks = std::min(divideUp(outputsOf(product), PLAIN_THREADS), 64);
  LAUNCH_CHAINED(plainExpand<T>, dim3(blocks, tasks), PLAIN_THREADS, 0, stream, product, tables, y, yStride);
}

template void launchLowRank(const LowRankProduct&, const LowRankTables&, const float*, size_t, float*, size_t, int, cudaStream_t);
template void launchLowRank(const LowRankProduct&, const LowRankTables&, const bf16*, size_t, bf16*, size_t, int, cudaStream_t);

}  // namespace pie
