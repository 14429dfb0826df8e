// RMSNorm of rows in eights (Zhang and Sennrich, 2019). Whoever normalises does it in the order that is here, so that the results are the same to the bit.
// A row's eights are those of lanes in turn; a warp's squares are added over its lanes, then those of a row's warps over the lanes of one.
#pragma once
#include "vectors.h"

namespace pie {

__device__ __forceinline__ void addEight(Eight& to, const Eight& what) {
#pragma unroll
  for (int j = 0; j < EIGHT; j++) to.values[j] += what.values[j];
}

__device__ __forceinline__ void addSquares(float& sum, const Eight& x) {
#pragma unroll
  for (int j = 0; j < EIGHT; j++) sum = fmaf(x.values[j], x.values[j], sum);
}

// What a row is multiplied by.
__device__ __forceinline__ float normScale(float squares, int hidden, float epsilon) { return rsqrtf(squares / hidden + epsilon); }

__device__ __forceinline__ void scaleEight(Eight& x, float scale, const Eight& weight) {
#pragma unroll
  for (int j = 0; j < EIGHT; j++) x.values[j] *= scale * weight.values[j];
}

}  // namespace pie
