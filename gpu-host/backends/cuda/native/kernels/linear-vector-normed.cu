// Every block computes x from the residual: reading the residual again costs less than waiting for a single block to do it. The grid has no more
// blocks than the device holds at once, and each block computes several groups of outputs, so it computes x only once.
#include "linear-vector-normed.h"
#include <algorithm>
#include "../device/launch.h"
#include "linear-vector-lines.h"
#include "norm-eights.h"

namespace pie {
namespace {

// Vectors of eight values per thread, and the number of warps of rows-norm.cu that they stand for: the order of sums is the same.
constexpr int EIGHTS = LINEAR_NORMED_INPUTS / (EIGHT * 32 * VECTOR_WARPS);
constexpr int NORM_WARPS = EIGHTS * VECTOR_WARPS;
static_assert(NORM_WARPS <= 32, "one warp adds up the partial sums");

// The norm's registers leave too few for two loads of 4-bit weights.
template <typename W, int ROWS>
constexpr int LOADS = WEIGHT_BITS<W> == 4 ? 1 : VECTOR_LOADS<W, ROWS>;

template <int ROWS>
struct alignas(16) NormedRows {
  bf16 values[ROWS][LINEAR_NORMED_INPUTS];
};

// Calls `use(row, v, input)` for each of this thread's vectors of eight.
template <int ROWS, typename Use>
__device__ __forceinline__ void eachEight(int inputs, const Use& use) {
#pragma unroll
  for (int r = 0; r < ROWS; r++) {
#pragma unroll
    for (int v = 0; v < EIGHTS; v++) {
      const int i = (v * 32 * VECTOR_WARPS + static_cast<int>(threadIdx.x)) * EIGHT;
      if (i < inputs) use(r, v, i);
    }
  }
}

// Waits for the previous kernel: everything but the weights may be its output.
template <int ROWS>
__device__ __forceinline__ void normalise(NormedRows<ROWS>& to, const NormedInput<bf16>& from, int inputs) {
  __shared__ float squares[ROWS][NORM_WARPS];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  Eight x[ROWS][EIGHTS];
  uint4 weight[EIGHTS];
  eachEight<1>(inputs, [&](int, int v, int i) { weight[v] = *reinterpret_cast<const uint4*>(from.weight + i); });
  waitForEarlier();
  letNextBegin();
  size_t rows[ROWS];
#pragma unroll
  for (int r = 0; r < ROWS; r++) rows[r] = static_cast<size_t>(from.pick ? from.pick[r] : r) * inputs;
  // Issues all loads before the first use.
  eachEight<ROWS>(inputs, [&](int r, int v, int i) { x[r][v] = loadEight(from.residual + rows[r] + i); });
  if (from.delta) eachEight<ROWS>(inputs, [&](int r, int v, int i) { addEight(x[r][v], loadEight(from.delta + rows[r] + i)); });
  if (from.sum && blockIdx.x == 0) eachEight<ROWS>(inputs, [&](int r, int v, int i) { storeEight(from.sum + rows[r] + i, x[r][v]); });
  float sums[ROWS][EIGHTS] = {};
  eachEight<ROWS>(inputs, [&](int r, int v, int) { addSquares(sums[r][v], x[r][v]); });
#pragma unroll
  for (int r = 0; r < ROWS; r++) {
#pragma unroll
    for (int v = 0; v < EIGHTS; v++) {
      const float sum = warpSum(sums[r][v]);
      if (lane == 0) squares[r][v * VECTOR_WARPS + warp] = sum;
    }
  }
  __syncthreads();
  float scales[ROWS];
#pragma unroll
  for (int r = 0; r < ROWS; r++) scales[r] = normScale(warpSum(lane < NORM_WARPS ? squares[r][lane] : 0.0f), inputs, from.epsilon);
  eachEight<ROWS>(inputs, [&](int r, int v, int i) {
    scaleEight(x[r][v], scales[r], widenEight(weight[v]));
    storeEight(&to.values[r][i], x[r][v]);
  });
  __syncthreads();
}

template <typename W, int ROWS>
__global__ void __launch_bounds__(32 * VECTOR_WARPS, VECTOR_BLOCKS<ROWS>)
    normedProduct(LinearOutput<bf16> to, LinearLines<W> lines, NormedInput<bf16> from, int inputs, int splits) {
  __shared__ NormedRows<ROWS> x;
  // Double-buffered, so that one barrier per group is enough.
  __shared__ VectorPartials<ROWS> partial[2];
  const int perBlock = VECTOR_WARPS / splits * 2, stride = static_cast<int>(gridDim.x) * perBlock;
  const int begin = static_cast<int>(blockIdx.x) * perBlock;
  int turn = 0;
  for (int first = begin; first < to.outputs; first += stride, turn ^= 1) {
    VectorLines<W, ROWS, LOADS<W, ROWS>> pair(lines, first + static_cast<int>(threadIdx.x) / 32 / splits * 2, to.outputs, inputs, splits);
    pair.load();
    if (first == begin) normalise(x, from, inputs);
    float sums[ROWS][2] = {};
    pair.multiply(sums, [&](int row, int k) { return *reinterpret_cast<const uint4*>(&x.values[row][k]); });
    finishVector<W>(to, sums, partial[turn], first, splits);
  }
}

}  // namespace

template <typename W>
void launchLinearVectorNormed(const LinearOutput<bf16>& to, const LinearLines<W>& lines, const NormedInput<bf16>& x, int inputs, int splits,
                              int multiprocessors, cudaStream_t stream) {
  const int perBlock = VECTOR_WARPS / splits * 2;
  const auto blocks = [&](int ofOne) { return std::min((to.outputs + perBlock - 1) / perBlock, multiprocessors * ofOne); };
  if (to.rows == 1) {
    LAUNCH_CHAINED((normedProduct<W, 1>), blocks(VECTOR_BLOCKS<1>), 32 * VECTOR_WARPS, 0, stream, to, lines, x, inputs, splits);
  } else {
    LAUNCH_CHAINED((normedProduct<W, 2>), blocks(VECTOR_BLOCKS<2>), 32 * VECTOR_WARPS, 0, stream, to, lines, x, inputs, splits);
  }
}

#define VECTOR_OF(W) \
  template void launchLinearVectorNormed(const LinearOutput<bf16>&, const LinearLines<W>&, const NormedInput<bf16>&, int, int, int, cudaStream_t);
VECTOR_OF(bf16)
VECTOR_OF(int8_t)
VECTOR_OF(Float8)
VECTOR_OF(Int4)

}  // namespace pie
