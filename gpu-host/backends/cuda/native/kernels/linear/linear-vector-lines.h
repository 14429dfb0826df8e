// Shared by the vector-product kernels: a warp streams two lines of W (a pair that SwiGLU joins), 16 bytes per lane, with several loads in flight.
// The launch bounds leave enough registers for the compiler to hoist the loads above their uses. Sums are float; the order of summation does not
// depend on the number of rows.
#pragma once
#include "../../device/copy.h"
#include "linear-epilogue.h"
#include "linear-weights.h"

namespace pie {

constexpr int VECTOR_WARPS = 8;
// Resident blocks per multiprocessor; the launch bounds reserve registers accordingly.
template <int ROWS>
constexpr int VECTOR_BLOCKS = ROWS == 1 ? 3 : 2;

// Loads in flight per line, chosen so that the loaded parts of W and x fit the registers.
template <typename W, int ROWS>
constexpr int VECTOR_LOADS = WEIGHT_BITS<W> == 4 ? (ROWS == 1 ? 2 : 1) : ROWS == 4 ? 2 : 4;

// Adds the products of one step: a lane's weights of two lines of W times the same inputs of each row of x.
template <typename W, int ROWS>
__device__ __forceinline__ void multiplyLoaded(float (&sums)[ROWS][2], const uint4 (&w)[2], const uint4 (&x)[ROWS][WEIGHTS_PER_LOAD<W> / 8]) {
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

// Adds up the sums of all lanes. With several rows, each exchange halves the rows that a lane keeps instead of repeating the exchange for every row.
// The lane ends up with the total of one row in sums[0], and this function returns that row.
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

// Two lines of W that a warp multiplies with x, over all inputs or over the warp's share of them. The number of loads in flight does not affect the
// sums.
template <typename W, int ROWS, int LOADS = VECTOR_LOADS<W, ROWS>>
class VectorLines {
 public:
  static constexpr int VALUES = WEIGHTS_PER_LOAD<W>, STEP = 32 * VALUES;

  // `splits` warps share the inputs. A warp past the last output multiplies nothing.
  __device__ __forceinline__ VectorLines(const LinearLines<W>& lines, int output, int outputs, int inputs, int splits)
      : lines_(lines), output_(min(output, outputs - 1)), next_(min(output + 1, outputs - 1)), inputs_(inputs), step_(splits * STEP) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    first_ = weightsFrom(lines.values, static_cast<size_t>(output_) * inputs);
    second_ = weightsFrom(lines.values, static_cast<size_t>(next_) * inputs);
    from_ = output < outputs ? (warp % splits) * STEP + lane * VALUES : inputs;
  }

  // Issues the loads of the next weights. Weights past the end are replaced by zeros.
  __device__ __forceinline__ void load() {
#pragma unroll
    for (int u = 0; u < LOADS; u++) {
      const int k = from_ + u * step_;
      w_[u][0] = k < inputs_ ? loadOnce16(weightsFrom(first_, k)) : make_uint4(0, 0, 0, 0);
      w_[u][1] = k < inputs_ ? loadOnce16(weightsFrom(second_, k)) : make_uint4(0, 0, 0, 0);
      scales_[u][0] = k < inputs_ ? groupScale(lines_, output_, k) : bf16(0.0f);
      scales_[u][1] = k < inputs_ ? groupScale(lines_, next_, k) : bf16(0.0f);
    }
  }

  // Requires a preceding load(). Adds up all inputs; `x(row, input)` returns the eight values from `input` on.
  template <typename X>
  __device__ __forceinline__ void multiply(float (&sums)[ROWS][2], const X& x) {
    for (; from_ < inputs_; from_ += LOADS * step_, load()) {
      uint4 xs[LOADS][ROWS][VALUES / 8];
#pragma unroll
      for (int u = 0; u < LOADS; u++) {
        const int k = from_ + u * step_;
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
#pragma unroll
          for (int i = 0; i < VALUES / 8; i++) xs[u][r][i] = k < inputs_ ? x(r, k + i * 8) : make_uint4(0, 0, 0, 0);
        }
      }
#pragma unroll
      for (int u = 0; u < LOADS; u++) {
        if constexpr (WEIGHT_BITS<W> == 4) {
          // All values of one load belong to one group.
          float part[ROWS][2] = {};
          multiplyLoaded<W>(part, w_[u], xs[u]);
#pragma unroll
          for (int r = 0; r < ROWS; r++) {
            sums[r][0] = fmaf(part[r][0], widen(scales_[u][0]), sums[r][0]);
            sums[r][1] = fmaf(part[r][1], widen(scales_[u][1]), sums[r][1]);
          }
        } else {
          multiplyLoaded<W>(sums, w_[u], xs[u]);
        }
      }
    }
  }

 private:
  const LinearLines<W>& lines_;
  const W *first_, *second_;
  int output_, next_, inputs_, step_, from_;
  uint4 w_[LOADS][2];
  bf16 scales_[LOADS][2];
};

template <int ROWS>
using VectorPartials = float[VECTOR_WARPS][ROWS][2];

// Adds up the block's sums over the `splits` warps of each pair and stores the outputs from `first` on. `partial` must not be accessed again before
// the next barrier.
template <typename W, int ROWS>
__device__ __forceinline__ void finishVector(const LinearOutput<bf16>& to, float (&sums)[ROWS][2], VectorPartials<ROWS>& partial, int first, int splits) {
  const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32, pairs = VECTOR_WARPS / splits;
  const int row = reduceLanes(sums, lane);
  // Of the lanes that hold the same row, one stores its sums.
  if (lane % (32 / ROWS) == 0) {
    partial[warp][row][0] = sums[0][0];
    partial[warp][row][1] = sums[0][1];
  }
  __syncthreads();
  if (thread >= pairs * ROWS) return;
  const int pair = thread % pairs, mine = thread / pairs;
  float both[2] = {};
  for (int s = 0; s < splits; s++) {
    both[0] += partial[pair * splits + s][mine][0];
    both[1] += partial[pair * splits + s][mine][1];
  }
  finishPair<WEIGHT_BITS<W> == 8>(to, mine, first + pair * 2, both);
}

}  // namespace pie
