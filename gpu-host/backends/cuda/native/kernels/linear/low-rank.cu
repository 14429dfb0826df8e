#include "low-rank.h"
#include <algorithm>
#include <cstring>
#include <type_traits>
#include "../../device/copy.h"
#include "../../device/launch.h"
#include "../../device/mma.h"
#include "linear-epilogue.h"
#include "../vectors.h"

namespace pie {

namespace {

// Most blocks along the tasks, and along the ranks of A, in a launch of the kernels for any shape. Blocks take further work in turns.
constexpr int TASK_BLOCKS = 32, RANK_BLOCKS = 8;
constexpr int PLAIN_THREADS = 128;

template <typename T>
__device__ __forceinline__ const LowRankMatrices<T>* matricesOf(const LowRankTask& task, const LowRankProduct& product) {
  return task.matrices ? static_cast<const LowRankMatrices<T>*>(task.matrices) + product.matrices : nullptr;
}

// low = A · x: a warp computes one value over all inputs, so that `low` has one split.
template <typename T>
__global__ void __launch_bounds__(PLAIN_THREADS) plainShrink(LowRankProduct product, LowRankTables tables, const T* x, size_t xStride) {
  letNextBegin();
  waitForEarlier();
  const int lane = threadIdx.x % 32, warps = gridDim.x * PLAIN_THREADS / 32;
  for (int t = blockIdx.y; t < *tables.taskCount; t += gridDim.y) {
    const LowRankTask task = tables.tasks[t];
    const LowRankMatrices<T>* const matrices = matricesOf<T>(task, product);
    const int ranks = matrices ? matrices->ranks : 0;
    for (int value = (blockIdx.x * PLAIN_THREADS + threadIdx.x) / 32; value < task.count * ranks; value += warps) {
      const int place = task.first + value / ranks, rank = value % ranks;
      const T* const row = x + tables.rows[place] * xStride;
      const T* const line = matrices->down + static_cast<size_t>(rank) * product.inputs;
      float sum = 0;
      for (int i = lane; i < product.inputs; i += 32) sum = fmaf(widen(line[i]), widen(row[i]), sum);
      sum = warpSum(sum);
      if (lane == 0) matrices->low[static_cast<size_t>(place) * ranks + rank] = sum;
    }
  }
}

// One value of B · low, of one projection.
template <typename T>
__device__ float plainChange(const LowRankMatrices<T>* matrices, int part, int place, int output) {
  if (!matrices || matrices->ups[part].rank == 0) return 0;
  const auto& up = matrices->ups[part];
  const float* const low = matrices->low + static_cast<size_t>(place) * matrices->ranks + up.from;
  const T* const line = up.weight + static_cast<size_t>(output) * up.rank;
  float sum = 0;
  for (int k = 0; k < up.rank; k++) sum = fmaf(widen(line[k]), low[k], sum);
  return sum;
}

// y += B · low, or `gated` if the projections alternate: a thread computes one output at a time.
template <typename T>
__global__ void __launch_bounds__(PLAIN_THREADS) plainExpand(LowRankProduct product, LowRankTables tables, T* y, size_t yStride, T* gated) {
  letNextBegin();
  waitForEarlier();
  for (int t = blockIdx.y; t < *tables.taskCount; t += gridDim.y) {
    const LowRankTask task = tables.tasks[t];
    const LowRankMatrices<T>* const matrices = matricesOf<T>(task, product);
    int column = 0;
    for (int part = 0; part < (product.alternating ? 1 : product.parts); part++) {
      const int outputs = product.outputs[part];
      for (int value = blockIdx.x * PLAIN_THREADS + threadIdx.x; value < task.count * outputs; value += gridDim.x * PLAIN_THREADS) {
        const int place = task.first + value / outputs, output = value % outputs;
        const size_t row = tables.rows[place];
        if (product.alternating) {
          const T* const from = y + row * yStride + 2 * output;
          const float gate = widen(from[0]) + plainChange(matrices, 0, place, output), up = widen(from[1]) + plainChange(matrices, 1, place, output);
          storeRounded(gated + row * outputs + output, product.gelu ? geGlu(gate, up) : swiGlu<T>(gate, up));
        } else if (matrices && matrices->ups[part].rank > 0) {
          T* const at = y + row * yStride + column + output;
          storeRounded(at, widen(*at) + plainChange(matrices, part, place, output));
        }
      }
      column += outputs;
    }
  }
}

// Work on tensor cores is divided into items; the product determines the number of items of a task, and blocks take them in turn. A launch has at
// least this many blocks, two for each multiprocessor of an H100. It has fewer only if one task per row would have fewer items, and then has one
// block per item.
constexpr int ITEM_BLOCKS = 264;
// Maximum number of blocks of a launch, for steps of many rows.
constexpr int MOST_ITEM_BLOCKS = 1056;

// Loads from a table that no kernel of the chain writes; like every load of tables before the wait, it bypasses L1 (see launch.h).
template <typename V>
__device__ __forceinline__ V loadEarly(const V* from) {
  static_assert(sizeof(V) == 16 || sizeof(V) == 8, "one vector");
  V value;
  if constexpr (sizeof(V) == 16) {
    const uint4 words = loadFresh16(from);
    memcpy(&value, &words, sizeof value);
  } else {
    const long long words = __ldcg(reinterpret_cast<const long long*>(from));
    memcpy(&value, &words, sizeof value);
  }
  return value;
}

constexpr int SHRINK_WARPS = 8, SHRINK_UNROLL = 4;
constexpr int SHRINK_SLICE = 32;                   // Inputs that a warp takes at once: 8 for each lane of a quad.
constexpr int SHRINK_LINE = 10;                    // Row stride of a warp's sums.
static_assert(SHRINK_WARPS * SHRINK_SLICE * SHRINK_UNROLL == LOW_RANK_SPLIT, "all loads of a split are in flight together");

// Items of a task: each split, with each share of the tiles of eight ranks. A share is one tile if each projection has at most 16 ranks.
__host__ __device__ constexpr int shrinkShares(const LowRankProduct& product) { return 2 * product.parts; }
__host__ __device__ constexpr int shrinkItems(const LowRankProduct& product) { return lowRankSplits(product.inputs) * shrinkShares(product); }

// low = A · x on tensor cores: an item is the sums over one split for a tile of eight ranks, or for several such tiles in turn. This kernel needs x,
// but no result of the product launched before it. That product lets this kernel begin once all blocks of the product have waited for x. So this
// kernel works while the product still runs, and waits for the product at its own end. Its reads of x bypass L1, as those of tables do.
__global__ void __launch_bounds__(32 * SHRINK_WARPS, 3) matrixShrink(LowRankProduct product, LowRankTables tables, const bf16* x, size_t xStride) {
  // Aligned for the pairs that are stored together.
  alignas(16) __shared__ float partial[SHRINK_WARPS][LOW_RANK_ROWS][SHRINK_LINE];
  letNextBegin();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, line = lane / 4;
  const int inputs = product.inputs, splits = lowRankSplits(inputs), shares = shrinkShares(product), perTask = splits * shares;
  constexpr int APART = SHRINK_WARPS * SHRINK_SLICE;
  int item = blockIdx.x;
  // Loaded before the number of tasks is known: the table has memory for this task even if the step has fewer tasks.
  LowRankTask task = loadEarly(tables.tasks + item / perTask);
  const int items = __ldcg(tables.taskCount) * perTask;
  while (item < items) {
    if (const LowRankMatrices<bf16>* const matrices = matricesOf<bf16>(task, product)) {
      const int ranks = __ldcg(&matrices->ranks), split = item % perTask / shares;
      const bf16* const down = loadEarly(&matrices->down);
      float* const low = loadEarly(&matrices->low);
      const bf16* rows[2];
#pragma unroll
      for (int half = 0; half < 2; half++) {
        const int row = half * 8 + line;
        rows[half] = row < task.count ? x + __ldcg(tables.rows + task.first + row) * xStride : nullptr;
      }
      const int first = split * LOW_RANK_SPLIT + warp * SHRINK_SLICE + lane % 4 * 8;
      // Ranks are multiples of 16, so every tile of eight ranks is whole.
      for (int rank = item % shares * 8; rank < ranks; rank += shares * 8) {
        const bf16* const weights = down + static_cast<size_t>(rank + line) * inputs;
        uint4 w[SHRINK_UNROLL], xs[SHRINK_UNROLL][2];
#pragma unroll
        for (int u = 0; u < SHRINK_UNROLL; u++) w[u] = first + u * APART < inputs ? loadOnce16(weights + first + u * APART) : make_uint4(0, 0, 0, 0);
#pragma unroll
        for (int u = 0; u < SHRINK_UNROLL; u++) {
#pragma unroll
          for (int half = 0; half < 2; half++) {
            const bool inside = first + u * APART < inputs && rows[half];
            xs[u][half] = inside ? loadFresh16(rows[half] + first + u * APART) : make_uint4(0, 0, 0, 0);
          }
        }
        float sums[4] = {};
        // The order of the inputs does not matter, as both operands agree on it.
#pragma unroll
        for (int u = 0; u < SHRINK_UNROLL; u++) {
          multiplyAdd(sums, {xs[u][0].x, xs[u][1].x, xs[u][0].y, xs[u][1].y}, {w[u].x, w[u].y});
          multiplyAdd(sums, {xs[u][0].z, xs[u][1].z, xs[u][0].w, xs[u][1].w}, {w[u].z, w[u].w});
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
          low[(static_cast<size_t>(task.first + row) * splits + split) * ranks + rank + of] = sum;
        }
        __syncthreads();
      }
    }
    item += gridDim.x;
    if (item < items) task = loadEarly(tables.tasks + item / perTask);
  }
  waitForEarlier();
}

constexpr int EXPAND_WARPS = 8;
constexpr int EXPAND_TILES = 4;                    // Tiles of 8 outputs per warp.
constexpr int EXPAND_OUTPUTS = 8 * EXPAND_TILES;   // Outputs of a warp: of one projection, or of each of two that alternate.
constexpr int EXPAND_BLOCK = EXPAND_WARPS * EXPAND_OUTPUTS;
constexpr int EXPAND_STEPS = 2;                    // Steps of ranks whose B is loaded at once.
constexpr int EXPAND_RANKS = 128;                  // Ranks whose `low` is in shared memory at once.
constexpr int EXPAND_LINE = EXPAND_RANKS + 16;     // Row stride of `low` there: the rows of one load hit different banks.
constexpr int EXPAND_SPLITS = 16;                  // Splits that a thread loads at once.
static_assert(EXPAND_RANKS % (EXPAND_STEPS * LOW_RANK_STEP) == 0, "steps that are loaded together have one place in shared memory");

// Items of a task: blocks of outputs. Each projection begins with an item of its own.
__host__ __device__ constexpr int expandItems(const LowRankProduct& product) {
  int items = 0;
  for (int part = 0; part < LOW_RANK_PARTS; part++)
    if (part < (product.alternating ? 1 : product.parts)) items += divideUp(product.outputs[part], EXPAND_BLOCK);
  return items;
}

// y += B · low on tensor cores, or gated = f(gate + …) · (up + …), f being SiLU or GELU: a warp computes EXPAND_OUTPUTS outputs of a task. No kernel writes the tables
// and B, so those of a block's first item are loaded before the wait.
template <bool GATED, bool GELU>
__global__ void __launch_bounds__(32 * EXPAND_WARPS, GATED ? 2 : 3)
    matrixExpand(LowRankProduct product, LowRankTables tables, bf16* y, size_t yStride, bf16* gated) {
  constexpr int PARTS = GATED ? 2 : 1;
  alignas(16) __shared__ bf16 lows[LOW_RANK_ROWS][EXPAND_LINE];
  letNextBegin();
  const int lane = threadIdx.x % 32, line = lane / 4, splits = lowRankSplits(product.inputs), perTask = expandItems(product);
  // Loaded before the number of tasks is known, as in matrixShrink.
  LowRankTask task = loadEarly(tables.tasks + blockIdx.x / perTask);
  const int items = __ldcg(tables.taskCount) * perTask;
  for (int item = blockIdx.x, turn = 0;; item += gridDim.x, turn++) {
    int ranks = 0, width = 0;  // `ranks`: of all projections of the place; `width`: of this item's projections.
    const float* low = nullptr;
    typename LowRankMatrices<bf16>::Up ups[PARTS] = {};
    int rows[2] = {}, part = 0, column = 0, block = item % perTask, outputs = product.outputs[0];
    if constexpr (!GATED) {
      // The parameters are indexed by compile-time constants only, so that they stay in constant memory.
#pragma unroll
      for (int next = 1; next < LOW_RANK_PARTS; next++) {
        const int whole = divideUp(outputs, EXPAND_BLOCK);
        if (part < next - 1 || next >= product.parts || block < whole) continue;
        block -= whole;
        column += outputs;
        part = next, outputs = product.outputs[next];
      }
    }
    const int firstOutput = block * EXPAND_BLOCK + static_cast<int>(threadIdx.x) / 32 * EXPAND_OUTPUTS;
    uint2 b[EXPAND_STEPS][EXPAND_TILES];
    // Loads B for the ranks [first, first + EXPAND_STEPS · LOW_RANK_STEP) of the item's projections, whose ranks follow one another.
    const auto loadUps = [&](int first) {
#pragma unroll
      for (int step = 0; step < EXPAND_STEPS; step++) {
        const int rank = first + step * LOW_RANK_STEP;
        const bool other = GATED && rank >= ups[0].rank;
        const bf16* const weight = other ? ups[PARTS - 1].weight : ups[0].weight;
        const int stride = other ? ups[PARTS - 1].rank : ups[0].rank, from = rank - (other ? ups[0].rank : 0) + lane % 4 * 4;
#pragma unroll
        for (int tile = 0; tile < EXPAND_TILES; tile++) {
          const int output = firstOutput + tile * 8 + line;
          b[step][tile] = rank < width && output < outputs ? loadOnce8(weight + static_cast<size_t>(output) * stride + from) : make_uint2(0, 0);
        }
      }
    };
    if (item < items) {
      if (turn > 0) task = loadEarly(tables.tasks + item / perTask);
      if (const LowRankMatrices<bf16>* const matrices = matricesOf<bf16>(task, product)) {
        ranks = __ldcg(&matrices->ranks);
        low = loadEarly(&matrices->low);
#pragma unroll
        for (int i = 0; i < PARTS; i++) {
          ups[i] = loadEarly(&matrices->ups[part + i]);
          width += ups[i].rank;
        }
      }
#pragma unroll
      for (int half = 0; half < 2; half++)
        if (half * 8 + line < task.count) rows[half] = __ldcg(tables.rows + task.first + half * 8 + line);
      loadUps(0);
    }
    if (turn == 0) waitForEarlier();
    if (item >= items) break;
    if (!GATED && width == 0) continue;

    // The loads of y are in flight together with those of the first sums of A · x.
    Run<bf16, 2 * PARTS> before[2][EXPAND_TILES];
#pragma unroll
    for (int half = 0; half < 2; half++) {
#pragma unroll
      for (int tile = 0; tile < EXPAND_TILES; tile++) {
        const int output = firstOutput + tile * 8 + lane % 4 * 2;
        if (half * 8 + line < task.count && output < outputs)
          before[half][tile] = *reinterpret_cast<const Run<bf16, 2 * PARTS>*>(y + rows[half] * yStride + column + PARTS * output);
      }
    }
    float sums[PARTS][EXPAND_TILES][4] = {};
    for (int begin = 0; begin < width; begin += EXPAND_RANKS) {
      // Alternating projections use all ranks of `low`.
      const float* const from = low + (GATED ? 0 : ups[0].from) + begin;
      const int count = min(width - begin, EXPAND_RANKS);
      for (int value = threadIdx.x; value < task.count * count; value += 32 * EXPAND_WARPS) {
        const int row = value / count, rank = value % count;
        const float* const parts = from + static_cast<size_t>(task.first + row) * splits * ranks + rank;
        float sum = 0;
        for (int first = 0; first < splits; first += EXPAND_SPLITS) {
          float loaded[EXPAND_SPLITS];
#pragma unroll
          for (int s = 0; s < EXPAND_SPLITS; s++) loaded[s] = first + s < splits ? parts[static_cast<size_t>(first + s) * ranks] : 0.0f;
#pragma unroll
          for (int s = 0; s < EXPAND_SPLITS; s++) sum += loaded[s];
        }
        lows[row][rank] = __float2bfloat16(sum);
      }
      __syncthreads();
      for (int at = 0; at < count; at += EXPAND_STEPS * LOW_RANK_STEP) {
        if (begin + at > 0) loadUps(begin + at);
#pragma unroll
        for (int step = 0; step < EXPAND_STEPS; step++) {
          const int rank = at + step * LOW_RANK_STEP;
          if (rank >= count) break;
          uint2 a[2];
#pragma unroll
          for (int half = 0; half < 2; half++) {
            const int row = half * 8 + line;
            a[half] = row < task.count ? *reinterpret_cast<const uint2*>(&lows[row][rank + lane % 4 * 4]) : make_uint2(0, 0);
          }
          const bool other = GATED && begin + rank >= ups[0].rank;
#pragma unroll
          for (int i = 0; i < PARTS; i++) {
            if (other != (i > 0)) continue;
#pragma unroll
            for (int tile = 0; tile < EXPAND_TILES; tile++)
              multiplyAdd(sums[i][tile], {a[0].x, a[1].x, a[0].y, a[1].y}, {b[step][tile].x, b[step][tile].y});
          }
        }
      }
      __syncthreads();
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
      if (half * 8 + line >= task.count) continue;
#pragma unroll
      for (int tile = 0; tile < EXPAND_TILES; tile++) {
        const int output = firstOutput + tile * 8 + lane % 4 * 2;
        if (output >= outputs) continue;
        const bf16(&had)[2 * PARTS] = before[half][tile].values;
        float run[2];
#pragma unroll
        for (int i = 0; i < 2; i++) {
          const float change = sums[0][tile][half * 2 + i];
          if constexpr (GATED) {
            const float gate = widen(had[2 * i]) + change, up = widen(had[2 * i + 1]) + sums[PARTS - 1][tile][half * 2 + i];
            if constexpr (GELU) run[i] = geGlu(gate, up);
            else run[i] = swiGlu<bf16>(gate, up);
          } else {
            run[i] = widen(had[i]) + change;
          }
        }
        if constexpr (GATED) storeRun(gated + static_cast<size_t>(rows[half]) * outputs + output, run);
        else storeRun(y + rows[half] * yStride + column + output, run);
      }
    }
  }
}

int outputsOf(const LowRankProduct& product) {
  int outputs = 0;
  for (int part = 0; part < product.parts; part++) outputs += product.outputs[part];
  return outputs;
}

template <typename T>
bool usesMatrices(const LowRankProduct& product, const T* x, size_t xStride, const T* y, size_t yStride, const T* gated) {
  bool even = true;
  for (int part = 0; part < product.parts; part++) even = even && product.outputs[part] % 2 == 0;
  return std::is_same_v<T, bf16> && even && product.inputs % 8 == 0 && xStride % 8 == 0 && yStride % 8 == 0 && areAligned(x, y, gated);
}

// A step of few rows launches few blocks, because most blocks would find no task. A step of many rows has at least rows / LOW_RANK_ROWS tasks.
unsigned itemBlocks(int rows, int perTask) {
  const int whole = rows / LOW_RANK_ROWS;
  const int most = std::max(ITEM_BLOCKS, whole > MOST_ITEM_BLOCKS / perTask ? MOST_ITEM_BLOCKS : whole * perTask);
  return static_cast<unsigned>(rows > most / perTask ? most : rows * perTask);
}

void launchMatrices(const LowRankProduct& product, const LowRankTables& tables, const bf16* x, size_t xStride, bf16* y, size_t yStride, bf16* gated, int rows,
                    cudaStream_t stream) {
  LAUNCH_CHAINED(matrixShrink, itemBlocks(rows, shrinkItems(product)), 32 * SHRINK_WARPS, 0, stream, product, tables, x, xStride);
  const unsigned blocks = itemBlocks(rows, expandItems(product));
  if (product.alternating && product.gelu)
    LAUNCH_CHAINED((matrixExpand<true, true>), blocks, 32 * EXPAND_WARPS, 0, stream, product, tables, y, yStride, gated);
  else if (product.alternating) LAUNCH_CHAINED((matrixExpand<true, false>), blocks, 32 * EXPAND_WARPS, 0, stream, product, tables, y, yStride, gated);
  else LAUNCH_CHAINED((matrixExpand<false, false>), blocks, 32 * EXPAND_WARPS, 0, stream, product, tables, y, yStride, gated);
}

}  // namespace

template <typename T>
void launchLowRank(const LowRankProduct& product, const LowRankTables& tables, const T* x, size_t xStride, T* y, size_t yStride, T* gated, int rows,
                   cudaStream_t stream) {
  if (rows <= 0 || outputsOf(product) == 0) return;
  if constexpr (std::is_same_v<T, bf16>)
    if (usesMatrices(product, x, xStride, y, yStride, gated)) return launchMatrices(product, tables, x, xStride, y, yStride, gated, rows, stream);
  const unsigned tasks = std::min(rows, TASK_BLOCKS);
  LAUNCH_CHAINED(plainShrink<T>, dim3(RANK_BLOCKS, tasks), PLAIN_THREADS, 0, stream, product, tables, x, xStride);
  const unsigned blocks = std::min(divideUp(outputsOf(product), PLAIN_THREADS), 64);
  LAUNCH_CHAINED(plainExpand<T>, dim3(blocks, tasks), PLAIN_THREADS, 0, stream, product, tables, y, yStride, gated);
}

template void launchLowRank(const LowRankProduct&, const LowRankTables&, const float*, size_t, float*, size_t, float*, int, cudaStream_t);
template void launchLowRank(const LowRankProduct&, const LowRankTables&, const bf16*, size_t, bf16*, size_t, bf16*, int, cudaStream_t);

}  // namespace pie
