#include <limits>
#include "../../device/float8.h"
#include "linear-narrow.h"
#include "linear-weights.h"
#include "../vectors.h"

namespace pie {
namespace {

constexpr int THREADS = 256;
constexpr float LARGEST = std::numeric_limits<float>::max();

// value / scale, or zero if the scale is zero (all values are zero) or unusable (stored as NaN).
__device__ __forceinline__ float over(float value, float scale, bool usable) { return usable && scale != 0 ? value / scale : 0.0f; }

// Four codes of a line, from storage place `place` on (see linear-weights.h).
__device__ __forceinline__ uint32_t codesOf(const bf16* line, int place, float scale, bool usable, int8_t) {
  uint32_t word = 0;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const float value = over(widen(line[inputOfPlace(place + i)]), scale, usable);
    word |= static_cast<uint32_t>(static_cast<uint8_t>(static_cast<int8_t>(rintf(fminf(fmaxf(value, -127.0f), 127.0f))))) << i * 8;
  }
  return word;
}
__device__ __forceinline__ uint32_t codesOf(const bf16* line, int place, float scale, bool usable, Float8) {
  uint32_t word = 0;
#pragma unroll
  for (int i = 0; i < 4; i++) word |= float8Bits(float8Of(over(widen(line[inputOfPlace(place + i)]), scale, usable)), i);
  return word;
}

// One block per line.
template <typename W>
__global__ void __launch_bounds__(THREADS) quantise(uint32_t* words, float* scales, const bf16* from, int inputs, float largestCode) {
  __shared__ float largest[THREADS / 32];
  const bf16* const line = from + static_cast<size_t>(blockIdx.x) * inputs;
  float most = 0;
  bool finite = true;
  for (int k = threadIdx.x; k < inputs; k += THREADS) {
    const float value = fabsf(widen(line[k]));
    finite = finite && value <= LARGEST;
    most = fmaxf(most, value);
  }
  if (!finite) most = INFINITY;
#pragma unroll
  for (int bit = 16; bit > 0; bit /= 2) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, bit));
  if (threadIdx.x % 32 == 0) largest[threadIdx.x / 32] = most;
  __syncthreads();
  for (int i = 0; i < THREADS / 32; i++) most = fmaxf(most, largest[i]);
  const bool usable = most <= LARGEST;
  const float scale = usable ? most / largestCode : NAN;
  uint32_t* const to = words + static_cast<size_t>(blockIdx.x) * (inputs / 4);
  for (int word = threadIdx.x; word < inputs / 4; word += THREADS) to[word] = codesOf(line, word * 4, scale, usable, W{});
  if (threadIdx.x == 0) scales[blockIdx.x] = scale;
}

// Rounds to five significant bits, ties to even.
__device__ __forceinline__ float inFiveBits(float value) {
  const uint32_t bits = __float_as_uint(value);
  return __uint_as_float((bits + 0x3ffffu + (bits >> 19 & 1)) & ~0x7ffffu);
}

// One block per line; each warp takes one group after another.
__global__ void __launch_bounds__(THREADS) quantiseGroups(uint32_t* words, bf16* scales, int stride, const bf16* from, int inputs, int group) {
  const int lane = threadIdx.x % 32;
  const bf16* const line = from + static_cast<size_t>(blockIdx.x) * inputs;
  uint32_t* const to = words + static_cast<size_t>(blockIdx.x) * (inputs / 8);
  for (int first = threadIdx.x / 32 * group; first < inputs; first += THREADS / 32 * group) {
    float most = 0, least = 0;
    bool finite = true;
    for (int k = first + lane; k < first + group; k += 32) {
      const float value = widen(line[k]);
      finite = finite && fabsf(value) <= LARGEST;
      most = fmaxf(most, value), least = fminf(least, value);
    }
    if (!finite) most = INFINITY;
#pragma unroll
    for (int bit = 16; bit > 0; bit /= 2) {
      most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, bit));
      least = fminf(least, __shfl_xor_sync(0xffffffffu, least, bit));
    }
    const bool usable = most <= LARGEST;
    const float scale = usable ? inFiveBits((most >= -least ? most : least) / -8) : NAN;
    if (lane < group / 8) {
      // A word holds four pairs of inputs from a run of 32; the pairs are eight inputs apart.
      const int begin = first + lane / 4 * 32 + lane % 4 * 2;
      uint32_t word = 0;
#pragma unroll
      for (int i = 0; i < 8; i++) {
        const int k = begin + i / 2 * 8 + i % 2;
        const float value = over(widen(line[k]), scale, usable);
        word |= static_cast<uint32_t>(static_cast<int>(rintf(fminf(fmaxf(value, -8.0f), 7.0f))) + 8) << int4Shift(k);
      }
      to[int4Word(begin)] = word;
    }
    if (lane == 0) scales[static_cast<size_t>(first / group) * stride + blockIdx.x] = __float2bfloat16(scale);
  }
}

}  // namespace

void launchQuantise(const LinearNarrow& to, const bf16* from, int firstLine, int lines, cudaStream_t stream) {
  if (lines <= 0) return;
  uint32_t* const words = reinterpret_cast<uint32_t*>(to.weight + narrowWeightBytes(to.format, firstLine, to.inputs));
  switch (to.format) {
    case WeightFormat::Int8: LAUNCH(quantise<int8_t>, lines, THREADS, 0, stream, words, to.scales + firstLine, from, to.inputs, 127.0f); break;
    case WeightFormat::Float8: LAUNCH(quantise<Float8>, lines, THREADS, 0, stream, words, to.scales + firstLine, from, to.inputs, FLOAT8_MOST); break;
    case WeightFormat::Int4:
      LAUNCH(quantiseGroups, lines, THREADS, 0, stream, words, to.groupScales + firstLine, narrowGroupStride(to.outputs), from, to.inputs,
             narrowGroup(to.inputs));
  }
}

}  // namespace pie
