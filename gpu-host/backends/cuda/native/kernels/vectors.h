// Eight values at a time: 16 bytes of bf16, or twice that of floats. Sums over a block.
#pragma once
#include "types.h"

namespace pie {

constexpr int EIGHT = 8;

// Whether eights can be read from here.
template <typename... P>
bool areAligned(const P*... pointers) {
  return ((reinterpret_cast<uintptr_t>(pointers) % 16 == 0) && ...);
}

struct Eight {
  float values[EIGHT];
};

__device__ __forceinline__ Eight loadEight(const float* from) {
  const float4 a = reinterpret_cast<const float4*>(from)[0];
  const float4 b = reinterpret_cast<const float4*>(from)[1];
  return {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
}

__device__ __forceinline__ Eight widenEight(const uint4& words) {
  // A bf16 is the upper half of a float.
  return {{__uint_as_float(words.x << 16), __uint_as_float(words.x & 0xffff0000u), __uint_as_float(words.y << 16), __uint_as_float(words.y & 0xffff0000u),
           __uint_as_float(words.z << 16), __uint_as_float(words.z & 0xffff0000u), __uint_as_float(words.w << 16), __uint_as_float(words.w & 0xffff0000u)}};
}

__device__ __forceinline__ Eight loadEight(const bf16* from) { return widenEight(*reinterpret_cast<const uint4*>(from)); }

__device__ __forceinline__ void storeEight(float* to, const Eight& eight) {
  const float* v = eight.values;
  reinterpret_cast<float4*>(to)[0] = make_float4(v[0], v[1], v[2], v[3]);
  reinterpret_cast<float4*>(to)[1] = make_float4(v[4], v[5], v[6], v[7]);
}

__device__ __forceinline__ void storeEight(bf16* to, const Eight& eight) {
  union {
    uint4 words;
    __nv_bfloat162 pairs[4];
  } packed = {};
#pragma unroll
  for (int i = 0; i < 4; i++) packed.pairs[i] = __floats2bfloat162_rn(eight.values[2 * i], eight.values[2 * i + 1]);
  *reinterpret_cast<uint4*>(to) = packed.words;
}

__device__ __forceinline__ float widen(float value) { return value; }
__device__ __forceinline__ float widen(bf16 value) { return __bfloat162float(value); }
__device__ __forceinline__ void storeRounded(float* to, float value) { *to = value; }
__device__ __forceinline__ void storeRounded(bf16* to, float value) { *to = __float2bfloat16(value); }

// Sum over a warp, the same in every lane.
__device__ __forceinline__ float warpSum(float value) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) value += __shfl_xor_sync(0xffffffffu, value, distance);
  return value;
}

__device__ __forceinline__ float warpMax(float value) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, distance));
  return value;
}

// Sum over a block of whole warps, the same in every thread. `warps` is shared memory of 32 floats that nobody uses meanwhile.
__device__ __forceinline__ float blockSum(float value, float* warps) {
  const int lane = threadIdx.x % 32;
  value = warpSum(value);
  if (lane == 0) warps[threadIdx.x / 32] = value;
  __syncthreads();
  return warpSum(lane < static_cast<int>(blockDim.x / 32) ? warps[lane] : 0.0f);
}

constexpr int divideUp(int a, int b) { return (a + b - 1) / b; }

}  // namespace pie
