// RMSNorm of rows in vectors of eight (Zhang and Sennrich, 2019). Every kernel that normalises uses this order of summation, so that results are
// identical to the bit: a row's vectors are assigned to lanes in turn; each warp reduces its squares over its lanes, then one warp reduces the sums
// of the row's warps.
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

// The factor that normalises a row.
__device__ __forceinline__ float normScale(float squares, int hidden, float epsilon) { return rsqrtf(squares / hidden + epsilon); }

__device__ __forceinline__ void scaleEight(Eight& x, float scale, const Eight& weight) {
#pragma unroll
  for (int j = 0; j < EIGHT; j++) x.values[j] *= scale * weight.values[j];
}

}  // namespace pie
