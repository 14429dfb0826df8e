// Eight threads share an output, each with an eighth of its inputs, for four rows at once. Together the eight threads read W in full memory lines.
// The order of summation depends only on the number of inputs.
#include "linear-plain.h"
#include <cstddef>
#include "../../device/launch.h"

namespace pie {
namespace {

constexpr int OUTPUTS = 16;
constexpr int LANES = 8;
constexpr int ROWS = 4;

template <typename T>
struct Chunk {
  static constexpr int VALUES = 16 / sizeof(T);
  T values[VALUES];
};

template <typename T>
__device__ __forceinline__ void loadChunk(float* values, const T* from, int count, bool vectors) {
  constexpr int N = Chunk<T>::VALUES;
  if (vectors && count >= N) {
    const Run<T, N> run = *reinterpret_cast<const Run<T, N>*>(from);
#pragma unroll
    for (int i = 0; i < N; i++) values[i] = widen(run.values[i]);
  } else {
#pragma unroll
    for (int i = 0; i < N; i++) values[i] = i < count ? widen(from[i]) : 0.0f;
  }
}

// Weights of one line, starting at input k.
template <int N, typename W>
__device__ __forceinline__ void loadWeights(float (&values)[N], const LinearLines<W>& lines, int output, int k, int inputs, bool vectors) {
  const W* const line = weightsFrom(lines.values, static_cast<size_t>(output) * inputs);
  if constexpr (WEIGHT_BITS<W> >= 16) {
    loadChunk(values, line + k, inputs - k, vectors);
  } else {
#pragma unroll
    for (int i = 0; i < N; i++) values[i] = k + i < inputs ? weightAt(line, k + i) * widen(groupScale(lines, output, k + i)) : 0.0f;
  }
}

template <typename T, typename W>
__global__ void __launch_bounds__(OUTPUTS * LANES)
    plainProduct(LinearOutput<T> to, LinearLines<W> lines, const T* x, size_t xStride, int inputs, bool vectors) {
  constexpr int N = Chunk<T>::VALUES;
  __shared__ float partial[LANES][ROWS][OUTPUTS];
  waitForEarlier();
  letNextBegin();
  const int lane = threadIdx.x % LANES;
  const int slot = threadIdx.x / LANES;
  const int output = blockIdx.x * OUTPUTS + slot;
  const int firstRow = blockIdx.y * ROWS;
  const int rows = min(ROWS, to.rows - firstRow);
  float sums[ROWS] = {};
  if (output < to.outputs) {
    const T* xs = x + firstRow * xStride;
    for (int k = lane * N; k < inputs; k += LANES * N) {
      float a[N], b[N];
      loadWeights(a, lines, output, k, inputs, vectors);
#pragma unroll
      for (int r = 0; r < ROWS; r++) {
        if (r >= rows) break;
        loadChunk(b, xs + r * xStride + k, inputs - k, vectors);
#pragma unroll
        for (int i = 0; i < N; i++) sums[r] = fmaf(a[i], b[i], sums[r]);
      }
    }
  }
#pragma unroll
  for (int r = 0; r < ROWS; r++) partial[lane][r][slot] = sums[r];
  __syncthreads();
  const int pair = threadIdx.x;
  if (pair >= ROWS * OUTPUTS / 2) return;
  const int row = pair / (OUTPUTS / 2), first = pair % (OUTPUTS / 2) * 2;
  float both[2] = {};
#pragma unroll
  for (int l = 0; l < LANES; l++) {
    both[0] += partial[l][row][first];
    both[1] += partial[l][row][first + 1];
  }
  finishPair<WEIGHT_BITS<W> == 8>(to, firstRow + row, blockIdx.x * OUTPUTS + first, both);
}

}  // namespace

template <typename T, typename W>
void launchLinearPlain(const LinearOutput<T>& to, const LinearLines<W>& lines, const T* x, size_t xStride, int inputs, cudaStream_t stream) {
  constexpr int N = Chunk<T>::VALUES;
  const bool vectors = inputs % N == 0 && xStride % N == 0 && areAligned(x, lines.values);
  const size_t width = to.epilogue == Epilogue::Wide ? sizeof(float) : sizeof(T);
  // The grid's y dimension is limited to 65,535 blocks.
  constexpr int MOST_ROWS = 65535 * ROWS;
  for (int first = 0; first < to.rows; first += MOST_ROWS) {
    LinearOutput<T> part = to;
    part.rows = to.rows - first < MOST_ROWS ? to.rows - first : MOST_ROWS;
    part.y = static_cast<std::byte*>(to.y) + first * to.stride * width;
    const dim3 grid(divideUp(to.outputs, OUTPUTS), divideUp(part.rows, ROWS));
    LAUNCH_CHAINED((plainProduct<T, W>), grid, OUTPUTS * LANES, 0, stream, part, lines, x + first * xStride, xStride, inputs, vectors);
  }
}

#define PLAIN_OF(T, W) template void launchLinearPlain(const LinearOutput<T>&, const LinearLines<W>&, const T*, size_t, int, cudaStream_t);
PLAIN_OF(float, float)
PLAIN_OF(bf16, bf16)
PLAIN_OF(bf16, int8_t)
PLAIN_OF(bf16, Float8)
PLAIN_OF(bf16, Int4)

}  // namespace pie
