// A warp streams two lines of W (a pair that SwiGLU joins), 16 bytes a lane, several loads under way; x comes from the caches. The launch bounds leave so many
// registers that the compiler keeps the loads before their uses. Sums are float; their order does not depend on the number of rows.
#include "linear-vector.h"
#include "../device/copy.h"
#include "../device/launch.h"

namespace pie {
namespace {

constexpr int WARPS = 8;

// Loads of each line that are under way together, so that those of W and x fit the registers.
template <typename W, int ROWS>
constexpr int LOADS = WEIGHT_BITS<W> == 4 ? (ROWS == 1 ? 2 : 1) : ROWS == 4 ? 2 : 4;

// Sums of one step: a lane's inputs of two lines of W with those of each row of x.
template <typename W, int ROWS>
__device__ __forceinline__ void multiply(float (&sums)[ROWS][2], const uint4 (&w)[2], const uint4 (&x)[ROWS][WEIGHTS_PER_LOAD<W> / 8]) {
  using Loaded = LoadedWeights<W>;
#pragma unroll
  for (int i = 0; i < Loaded::OPERANDS; i++) {
    uint32_t first[2], second[2];
    Loaded::operand(first, w[0], i);
    Loaded::operand(second, w[1], i);
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
#pragma unroll
      for (int half = 0; half < 2; half++) {
        const int word = Loaded::xWord(i, half);
        const uint4& from = x[r][word / 4];
        const uint32_t pair = word % 4 == 0 ? from.x : word % 4 == 1 ? from.y : word % 4 == 2 ? from.z : from.w;
        sums[r][0] = fmaf(lowFloat(first[half]), lowFloat(pair), sums[r][0]);
        sums[r][0] = fmaf(highFloat(first[half]), highFloat(pair), sums[r][0]);
        sums[r][1] = fmaf(lowFloat(second[half]), lowFloat(pair), sums[r][1]);
        sums[r][1] = fmaf(highFloat(second[half]), highFloat(pair), sums[r][1]);
      }
    }
  }
}

// Adds up over the lanes. While there are several rows, each exchange halves the rows that a lane keeps instead of repeating itself for all of them; in the
// end a lane has the row that is returned, in sums[0].
template <int ROWS>
__device__ __forceinline__ int reduceLanes(float (&sums)[ROWS][2], int lane) {
  int row = 0, bit = 16;
#pragma unroll
  for (int half = ROWS / 2; half > 0; half /= 2, bit /= 2) {
    const bool upper = (lane & bit) != 0;
    row += upper ? half : 0;
#pragma unroll
    for (int r = 0; r < half; r++) {
#pragma unroll
      for (int o = 0; o < 2; o++) {
        const float kept = upper ? sums[r + half][o] : sums[r][o];
        const float given = upper ? sums[r][o] : sums[r + half][o];
        sums[r][o] = kept + __shfl_xor_sync(0xffffffffu, given, bit);
      }
    }
  }
#pragma unroll
  for (; bit > 0; bit /= 2) {
    sums[0][0] += __shfl_xor_sync(0xffffffffu, sums[0][0], bit);
    sums[0][1] += __shfl_xor_sync(0xffffffffu, sums[0][1], bit);
  }
  return row;
}

template <typename W, int ROWS>
__global__ void __launch_bounds__(32 * WARPS, ROWS == 1 ? 3 : 2)
    vectorProduct(LinearOutput<bf16> to, LinearLines<W> lines, const bf16* x, size_t xStride, int inputs, int splits) {
  constexpr int VALUES = WEIGHTS_PER_LOAD<W>, STEP = 32 * VALUES, UNROLL = LOADS<W, ROWS>;
  __shared__ float partial[WARPS][ROWS][2];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int pairs = WARPS / splits;
  const int output = (static_cast<int>(blockIdx.x) * pairs + warp / splits) * 2;
  const int next = output + 1 < to.outputs ? output + 1 : output;
  const W* first = weightsFrom(lines.values, static_cast<size_t>(output) * inputs);
  const W* second = weightsFrom(lines.values, static_cast<size_t>(next) * inputs);
  const int step = splits * STEP;
  // A warp past the last output begins at the end: it reads nothing.
  int from = output < to.outputs ? (warp % splits) * STEP + lane * VALUES : inputs;
  // All loads come first; those past the end are left out, and zeros are multiplied.
  uint4 w[UNROLL][2], xs[UNROLL][ROWS][VALUES / 8];
  bf16 scales[UNROLL][2];
  const auto loadWeights = [&] {
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
      const int k = from + u * step;
      w[u][0] = k < inputs ? loadOnce16(weightsFrom(first, k)) : make_uint4(0, 0, 0, 0);
      w[u][1] = k < inputs ? loadOnce16(weightsFrom(second, k)) : make_uint4(0, 0, 0, 0);
      scales[u][0] = k < inputs ? groupScale(lines, output, k) : bf16(0.0f);
      scales[u][1] = k < inputs ? groupScale(lines, next, k) : bf16(0.0f);
    }
  };
  // Nobody writes weights: the first are on their way while the kernel before still runs.
  loadWeights();
  waitForEarlier();
  letNextBegin();
  float sums[ROWS][2] = {};
  for (; from < inputs; from += UNROLL * step, loadWeights()) {
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
      const int k = from + u * step;
#pragma unroll
      for (int r = 0; r < ROWS; r++) {
#pragma unroll
        for (int i = 0; i < VALUES / 8; i++)
          xs[u][r][i] = k < inputs ? loadKept16(x + min(r, to.rows - 1) * xStride + k + i * 8) : make_uint4(0, 0, 0, 0);
      }
    }
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
      if constexpr (WEIGHT_BITS<W> == 4) {
        // A load is of one group.
        float part[ROWS][2] = {};
        multiply<W>(part, w[u], xs[u]);
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
          sums[r][0] = fmaf(part[r][0], widen(scales[u][0]), sums[r][0]);
          sums[r][1] = fmaf(part[r][1], widen(scales[u][1]), sums[r][1]);
        }
      } else {
        multiply<W>(sums, w[u], xs[u]);
      }
    }
  }
  const int row = reduceLanes(sums, lane);
  // One lane of those that hold the same row.
  if (lane % (32 / ROWS) == 0) {
    partial[warp][row][0] = sums[0][0];
    partial[warp][row][1] = sums[0][1];
  }
  __syncthreads();
  const int thread = threadIdx.x;
  if (thread >= pairs * ROWS) return;
  const int pair = thread % pairs, mine = thread / pairs;
  float both[2] = {};
  for (int s = 0; s < splits; s++) {
    both[0] += partial[pair * splits + s][mine][0];
    both[1] += partial[pair * splits + s][mine][1];
  }
  finishPair<WEIGHT_BITS<W> == 8>(to, mine, (static_cast<int>(blockIdx.x) * pairs + pair) * 2, both);
}

}  // namespace

template <typename W>
void launchLinearVector(const LinearOutput<bf16>& to, const LinearLines<W>& lines, const bf16* x, size_t xStride, int inputs, int splits, cudaStream_t stream) {
  const int perBlock = WARPS / splits * 2;
  const int blocks = (to.outputs + perBlock - 1) / perBlock;
  if (to.rows == 1) {
    LAUNCH_CHAINED((vectorProduct<W, 1>), blocks, 32 * WARPS, 0, stream, to, lines, x, xStride, inputs, splits);
  } else if (to.rows == 2) {
    LAUNCH_CHAINED((vectorProduct<W, 2>), blocks, 32 * WARPS, 0, stream, to, lines, x, xStride, inputs, splits);
  } else {
    LAUNCH_CHAINED((vectorProduct<W, 4>), blocks, 32 * WARPS, 0, stream, to, lines, x, xStride, inputs, splits);
  }
}

#define VECTOR_OF(W) template void launchLinearVector(const LinearOutput<bf16>&, const LinearLines<W>&, const bf16*, size_t, int, int, cudaStream_t);
VECTOR_OF(bf16)
VECTOR_OF(int8_t)
VECTOR_OF(Float8)
VECTOR_OF(Int4)

}  // namespace pie
