// Vectors of eight values: 16 bytes of bf16, or 32 bytes of floats. Sums over a block.
#pragma once
#include "types.h"

namespace pie {

constexpr int EIGHT = 8;

// True if vectors can be loaded from all of these addresses.
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

// The two bf16 of a word.
__device__ __forceinline__ float lowFloat(uint32_t pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float highFloat(uint32_t pair) { return __uint_as_float(pair & 0xffff0000u); }

__device__ __forceinline__ Eight widenEight(const uint4& words) {
  return {{lowFloat(words.x), highFloat(words.x), lowFloat(words.y), highFloat(words.y), lowFloat(words.z), highFloat(words.z), lowFloat(words.w),
           highFloat(words.w)}};
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

// Sum over a warp; every lane gets the same result.
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

// Sum over a block of full warps; every thread gets the same result. `warps` is shared memory for 32 floats, used exclusively during the call.
__device__ __forceinline__ float blockSum(float value, float* warps) {
  const int lane = threadIdx.x % 32;
  value = warpSum(value);
  if (lane == 0) warps[threadIdx.x / 32] = value;
  __syncthreads();
  return warpSum(lane < static_cast<int>(blockDim.x / 32) ? warps[lane] : 0.0f);
}

__host__ __device__ constexpr int divideUp(int a, int b) { return (a + b - 1) / b; }

}  // namespace pie
