// One thread of eight takes an eighth of an output's inputs, for four rows at once; W passes through a group of 16 outputs in whole lines of memory. The
// order of summation follows from the number of inputs alone.
#include "linear-plain.h"
#include <cstddef>
#include "../device/launch.h"
#include "linear-weights.h"

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

// Of a line from input k on.
template <int N, typename T>
__device__ __forceinline__ void loadWeights(float (&values)[N], const T* line, int k, int inputs, bool vectors) {
  loadChunk(values, line + k, inputs - k, vectors);
}
template <int N>
__device__ __forceinline__ void loadWeights(float (&values)[N], const int8_t* line, int k, int inputs, bool) {
#pragma unroll
  for (int i = 0; i < N; i++) values[i] = k + i < inputs ? static_cast<float>(line[int8Place(k + i)]) : 0.0f;
}

template <typename T, typename W>
__global__ void __launch_bounds__(OUTPUTS * LANES) plainProduct(LinearOutput<T> to, const W* weight, const T* x, size_t xStride, int inputs, bool vectors) {
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
    const W* w = weight + static_cast<size_t>(output) * inputs;
    const T* xs = x + firstRow * xStride;
    for (int k = lane * N; k < inputs; k += LANES * N) {
      float a[N], b[N];
      loadWeights(a, w, k, inputs, vectors);
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
  finishPair<sizeof(W) == 1>(to, firstRow + row, blockIdx.x * OUTPUTS + first, both);
}

}  // namespace

template <typename T, typename W>
void launchLinearPlain(const LinearOutput<T>& to, const W* weight, const T* x, size_t xStride, int inputs, cudaStream_t stream) {
  constexpr int N = Chunk<T>::VALUES;
  const bool vectors = inputs % N == 0 && xStride % N == 0 && isAligned(x) && isAligned(weight);
  const size_t width = to.epilogue == Epilogue::Wide ? sizeof(float) : sizeof(T);
  // The grid's second side holds 65,535 blocks.
  constexpr int MOST_ROWS = 65535 * ROWS;
  for (int first = 0; first < to.rows; first += MOST_ROWS) {
    LinearOutput<T> part = to;
    part.rows = to.rows - first < MOST_ROWS ? to.rows - first : MOST_ROWS;
    part.y = static_cast<std::byte*>(to.y) + first * to.stride * width;
    const dim3 grid((to.outputs + OUTPUTS - 1) / OUTPUTS, (part.rows + ROWS - 1) / ROWS);
    LAUNCH_CHAINED((plainProduct<T, W>), grid, OUTPUTS * LANES, 0, stream, part, weight, x + first * xStride, xStride, inputs, vectors);
  }
}

template void launchLinearPlain(const LinearOutput<float>&, const float*, const float*, size_t, int, cudaStream_t);
template void launchLinearPlain(const LinearOutput<bf16>&, const bf16*, const bf16*, size_t, int, cudaStream_t);
template void launchLinearPlain(const LinearOutput<bf16>&, const int8_t*, const bf16*, size_t, int, cudaStream_t);

}  // namespace pie
