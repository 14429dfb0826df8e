#include "narrow.h"
#include <cfloat>
#include "vectors.h"

namespace pie {
namespace {

constexpr int THREADS = 256;
// Wider rows get a block each, others a warp.
constexpr int WARP_WIDTH = 2048;

__device__ __forceinline__ float largest(float most, float value) { return fmaxf(most, fabsf(value)); }

// `threads` of the block per row: a warp's or all. Values are read twice, the second time from a cache.
template <typename T>
__global__ __launch_bounds__(THREADS) void toFloat8(uint8_t* codes, float* scales, const T* values, int rows, int width, int threads, bool eights) {
  __shared__ float warps[THREADS / 32];
  const int row = blockIdx.x * (THREADS / threads) + threadIdx.x / threads;
  const int thread = threadIdx.x % threads;
  const bool present = row < rows;
  const T* from = values + static_cast<size_t>(present ? row : 0) * width;
  float most = 0;
  if (eights) {
    for (int i = thread * EIGHT; i < width; i += threads * EIGHT) {
      const Eight eight = loadEight(from + i);
#pragma unroll
      for (int j = 0; j < EIGHT; j++) most = largest(most, eight.values[j]);
    }
  } else {
    for (int i = thread; i < width; i += threads) most = largest(most, widen(from[i]));
  }
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, distance));
  if (threads > 32) {
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = most;
    __syncthreads();
    for (int w = 0; w < THREADS / 32; w++) most = fmaxf(most, warps[w]);
  }
  if (!present) return;
  // Never 0, and never so small that its reciprocal is infinite.
  const float scale = fmaxf(fminf(most, FLT_MAX) / FLOAT8_MOST, FLT_MIN), perScale = 1 / scale;
  if (thread == 0) scales[row] = scale;
  uint8_t* to = codes + static_cast<size_t>(row) * width;
  if (eights) {
    for (int i = thread * EIGHT; i < width; i += threads * EIGHT) {
      const Eight eight = loadEight(from + i);
      uint32_t words[2] = {0, 0};
#pragma unroll
      for (int j = 0; j < EIGHT; j++) words[j / 4] |= static_cast<uint32_t>(float8Of(eight.values[j] * perScale)) << (j % 4 * 8);
      *reinterpret_cast<uint2*>(to + i) = make_uint2(words[0], words[1]);
    }
  } else {
    for (int i = thread; i < width; i += threads) to[i] = float8Of(widen(from[i]) * perScale);
  }
}

template <typename T>
__global__ __launch_bounds__(THREADS) void fromFloat8Rows(T* values, const uint8_t* codes, const float* scales, size_t count, int width, bool eights) {
  const size_t threads = static_cast<size_t>(gridDim.x) * THREADS;
  const size_t thread = static_cast<size_t>(blockIdx.x) * THREADS + threadIdx.x;
  if (eights) {
    for (size_t i = thread * EIGHT; i < count; i += threads * EIGHT) {
      const uint2 words = *reinterpret_cast<const uint2*>(codes + i);
      const float scale = scales[i / width];
      Eight eight;
#pragma unroll
      for (int j = 0; j < EIGHT; j++) eight.values[j] = fromFloat8(static_cast<uint8_t>((j < 4 ? words.x : words.y) >> (j % 4 * 8))) * scale;
      storeEight(values + i, eight);
    }
  } else {
    for (size_t i = thread; i < count; i += threads) storeRounded(values + i, fromFloat8(codes[i]) * scales[i / width]);
  }
}

}  // namespace

template <typename T>
void launchToFloat8(uint8_t* codes, float* scales, const T* values, int rows, int width, cudaStream_t stream) {
  if (rows == 0) return;
  const bool eights = width % EIGHT == 0 && areAligned(codes, values);
  const int threads = width > WARP_WIDTH ? THREADS : 32;
  LAUNCH(toFloat8<T>, divideUp(rows, THREADS / threads), THREADS, 0, stream, codes, scales, values, rows, width, threads, eights);
}

template <typename T>
void launchFromFloat8(T* values, const uint8_t* codes, const float* scales, int rows, int width, cudaStream_t stream) {
  const size_t count = static_cast<size_t>(rows) * width;
  if (count == 0) return;
  constexpr size_t MAX_BLOCKS = 2048;
  const bool eights = width % EIGHT == 0 && areAligned(codes, values);
  const size_t blocks = (count / (eights ? EIGHT : 1) + THREADS - 1) / THREADS;
  LAUNCH(fromFloat8Rows<T>, static_cast<unsigned>(blocks < MAX_BLOCKS ? blocks : MAX_BLOCKS), THREADS, 0, stream, values, codes, scales, count, width, eights);
}

#define NARROW_OF(T)                                                                                    \
  template void launchToFloat8<T>(uint8_t*, float*, const T*, int, int, cudaStream_t);                  \
  template void launchFromFloat8<T>(T*, const uint8_t*, const float*, int, int, cudaStream_t);
NARROW_OF(bf16)
NARROW_OF(float)

}  // namespace pie
