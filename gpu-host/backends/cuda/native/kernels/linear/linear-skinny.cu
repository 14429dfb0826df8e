// Products on tensor cores whose operands are loaded straight from global memory. The sixteen warps of a block compute the same outputs: each takes
// every sixteenth slice of the inputs, so that a small W occupies every multiprocessor without exchange between blocks.
#include "linear-skinny.h"
#include "../../device/copy.h"
#include "../../device/launch.h"
#include "../../device/mma.h"
#include "linear-choice.h"

namespace pie {
namespace {

constexpr int WARPS = LINEAR_SKINNY_WARPS;
constexpr int REGISTERS = 100;  // Per thread, for loads and sums together.

// Each of a quad's four lanes loads 16 bytes of a line of W and the same inputs of x. The order of inputs along the inner dimension does not matter
// as long as both operands agree, so fragments need no shuffles. HALVES: number of 8-row halves of the 16-row mma tiles.
template <typename W, int COLUMNS, int HALVES>
__global__ void __launch_bounds__(32 * WARPS, 1) skinnyProduct(LinearOutput<bf16> to, LinearLines<W> lines, const bf16* x, unsigned xStride, unsigned inputs) {
  using Loaded = LoadedWeights<W>;
  constexpr int VALUES = WEIGHTS_PER_LOAD<W>, X_LOADS = VALUES / 8;
  constexpr int SLICE = 4 * VALUES;  // Inputs that a warp takes per step.
  constexpr int ROW_TILES = (HALVES + 1) / 2, OUTPUTS = COLUMNS * 8, ROWS = HALVES * 8, LINE = linearSkinnyLine(OUTPUTS);
  constexpr int FITTING = (REGISTERS - ROW_TILES * COLUMNS * 4) / (4 * (COLUMNS + HALVES * X_LOADS));
  constexpr int UNROLL = FITTING < 1 ? 1 : FITTING > 4 ? 4 : FITTING;
  DYNAMIC_SHARED(float, partial);  // WARPS × ROWS × LINE
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int line = lane / 4;
  const int firstOutput = blockIdx.x * OUTPUTS;
  const int outputsLeft = to.outputs - firstOutput - line, rowsLeft = to.rows - line;
  const unsigned first = warp * SLICE + lane % 4 * VALUES;
  const W* weights = weightsFrom(lines.values, static_cast<size_t>(firstOutput + line) * inputs + first);
  const bf16* rows = x + static_cast<size_t>(line) * xStride + first;
  float sums[ROW_TILES][COLUMNS][4] = {};
  // No kernel writes the weights, so they are prefetched while the previous kernel still runs; one thread per quad suffices.
  if (lane % 4 == 0) {
#pragma unroll
    for (unsigned u = 0; u < UNROLL; u++) {
#pragma unroll
      for (int c = 0; c < COLUMNS; c++)
        if (first + u * WARPS * SLICE < inputs && c * 8 < outputsLeft) prefetch(weightsFrom(weights, static_cast<size_t>(inputs) * (c * 8) + u * WARPS * SLICE));
    }
  }
  waitForEarlier();
  // The loop bound is uniform in the warp, because all lanes take part in every mma.
  for (unsigned slice = 0; warp * SLICE + slice < inputs; slice += UNROLL * WARPS * SLICE) {
    uint4 w[UNROLL][COLUMNS], xs[UNROLL][HALVES][X_LOADS];
    bf16 scales[UNROLL][COLUMNS];
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
      constexpr int APART = WARPS * SLICE;
      const bool inside = first + slice + u * APART < inputs;
#pragma unroll
      for (int c = 0; c < COLUMNS; c++)
        w[u][c] = inside && c * 8 < outputsLeft ? loadOnce16(weightsFrom(weights, static_cast<size_t>(inputs) * (c * 8) + u * APART)) : make_uint4(0, 0, 0, 0);
#pragma unroll
      for (int c = 0; c < COLUMNS; c++)
        scales[u][c] = inside && c * 8 < outputsLeft ? groupScale(lines, firstOutput + line + c * 8, first + slice + u * APART) : bf16(0.0f);
#pragma unroll
      for (int h = 0; h < HALVES; h++) {
#pragma unroll
        for (int i = 0; i < X_LOADS; i++)
          xs[u][h][i] = inside && h * 8 < rowsLeft ? loadKept16(rows + static_cast<size_t>(xStride) * (h * 8) + u * APART + i * 8) : make_uint4(0, 0, 0, 0);
      }
    }
    weights = weightsFrom(weights, UNROLL * WARPS * SLICE);
    rows += UNROLL * WARPS * SLICE;
    const auto xWord = [&](int u, int h, int word) {
      if (h >= HALVES) return 0u;
      const uint4& from = xs[u][h][word / 4];
      return word % 4 == 0 ? from.x : word % 4 == 1 ? from.y : word % 4 == 2 ? from.z : from.w;
    };
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
#pragma unroll
      for (int i = 0; i < Loaded::OPERANDS; i++) {
        const int low = Loaded::xWord(i, 0), high = Loaded::xWord(i, 1);
#pragma unroll
        for (int c = 0; c < COLUMNS; c++) {
          uint32_t b[2];
          Loaded::operand(b, w[u][c], i);
          scaleOperand<W>(b, __bfloat162bfloat162(scales[u][c]));
#pragma unroll
          for (int r = 0; r < ROW_TILES; r++)
            multiplyAdd(sums[r][c], {xWord(u, r * 2, low), xWord(u, r * 2 + 1, low), xWord(u, r * 2, high), xWord(u, r * 2 + 1, high)}, b);
        }
      }
    }
  }
  letNextBegin();
#pragma unroll
  for (int r = 0; r < ROW_TILES; r++) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int row = r * 16 + half * 8 + line;
      if (row >= to.rows) continue;
      float* const at = partial + (warp * ROWS + row) * LINE + lane % 4 * 2;
#pragma unroll
      for (int c = 0; c < COLUMNS; c++) *reinterpret_cast<float2*>(at + c * 8) = make_float2(sums[r][c][half * 2], sums[r][c][half * 2 + 1]);
    }
  }
  __syncthreads();
  for (int item = threadIdx.x; item < to.rows * OUTPUTS / 2; item += 32 * WARPS) {
    const int row = item / (OUTPUTS / 2), output = item % (OUTPUTS / 2) * 2;
    float both[2] = {};
#pragma unroll
    for (int s = 0; s < WARPS; s++) {
      const float2 part = *reinterpret_cast<const float2*>(partial + (s * ROWS + row) * LINE + output);
      both[0] += part.x;
      both[1] += part.y;
    }
    finishPair<WEIGHT_BITS<W> == 8>(to, row, firstOutput + output, both);
  }
}

template <typename W, int COLUMNS, int HALVES>
void launch(const LinearOutput<bf16>& to, const LinearLines<W>& lines, const bf16* x, size_t xStride, int inputs, cudaStream_t stream) {
  constexpr int OUTPUTS = COLUMNS * 8, BYTES = linearSkinnyBytes(HALVES * 8, COLUMNS);
  const int blocks = divideUp(to.outputs, OUTPUTS);
  cudaFuncSetAttribute(skinnyProduct<W, COLUMNS, HALVES>, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES);
  LAUNCH_CHAINED((skinnyProduct<W, COLUMNS, HALVES>), blocks, 32 * WARPS, BYTES, stream, to, lines, x, xStride, inputs);
}

template <typename W, int COLUMNS>
void launchRows(const LinearOutput<bf16>& to, const LinearLines<W>& lines, const bf16* x, size_t xStride, int inputs, cudaStream_t stream) {
  if (to.rows <= 8) {
    launch<W, COLUMNS, 1>(to, lines, x, xStride, inputs, stream);
  } else if (to.rows <= 16) {
    launch<W, COLUMNS, 2>(to, lines, x, xStride, inputs, stream);
  } else if constexpr (linearSkinnyFits(WEIGHT_BITS<W>, LINEAR_SKINNY_ROWS, COLUMNS)) {
    launch<W, COLUMNS, 4>(to, lines, x, xStride, inputs, stream);
  }
}

}  // namespace

template <typename W>
void launchLinearSkinny(const LinearOutput<bf16>& to, const LinearLines<W>& lines, const bf16* x, size_t xStride, int inputs, int columns, cudaStream_t stream) {
  switch (columns) {
    case 2: return launchRows<W, 2>(to, lines, x, xStride, inputs, stream);
    case 3: return launchRows<W, 3>(to, lines, x, xStride, inputs, stream);
    case 4: return launchRows<W, 4>(to, lines, x, xStride, inputs, stream);
    case 5: return launchRows<W, 5>(to, lines, x, xStride, inputs, stream);
    default: return launchRows<W, 6>(to, lines, x, xStride, inputs, stream);
  }
}

#define SKINNY_OF(W) \
  template void launchLinearSkinny(const LinearOutput<bf16>&, const LinearLines<W>&, const bf16*, size_t, int, int, cudaStream_t);
SKINNY_OF(bf16)
SKINNY_OF(int8_t)
SKINNY_OF(Float8)
SKINNY_OF(Int4)

}  // namespace pie
