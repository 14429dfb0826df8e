// What the head's kernels share: how logits are read and ordered, what the first pass leaves for the second.
#pragma once
#include <cfloat>
#include "head.h"
#include "vectors.h"

namespace pie {

// Tokens of a group are neighbours, and one word of a mask.
constexpr int GROUP = 32;
// Tokens of one block of the first pass. Always the same, so that a row's sums do not depend on how many rows there are.
constexpr int SLICE = 4096;
constexpr int INDEX_BITS = 18;
static_assert(MAX_VOCABULARY == 1 << INDEX_BITS);

// Logits are compared and summed as if they ended at FLT_MAX either way: -FLT_MAX stands for -Infinity and NaN, and -Infinity for tokens that are not
// allowed.
constexpr float LEAST = -FLT_MAX;
constexpr float NOT_ALLOWED = -INFINITY;

// fmaxf gives the number when the other is NaN.
__device__ __forceinline__ float bounded(float logit) { return fminf(fmaxf(logit, LEAST), FLT_MAX); }

// Orders as floats do; 0 is what is not allowed.
__device__ __forceinline__ uint32_t orderOf(float bounded) {
  if (bounded == NOT_ALLOWED) return 0;
  const uint32_t bits = __float_as_uint(bounded + 0.0f);  // -0 is 0.
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
__device__ __forceinline__ float valueOf(uint32_t order) { return __uint_as_float(order & 0x80000000u ? order ^ 0x80000000u : ~order); }

// Larger is earlier in the result: by value, then by index. Never 0 but for what is not allowed; all different.
__device__ __forceinline__ uint64_t keyOf(uint32_t order, int index) {
  return order == 0 ? 0 : static_cast<uint64_t>(order) << INDEX_BITS | static_cast<uint32_t>(MAX_VOCABULARY - 1 - index);
}
__device__ __forceinline__ uint32_t orderOfKey(uint64_t key) { return static_cast<uint32_t>(key >> INDEX_BITS); }
__device__ __forceinline__ int indexOfKey(uint64_t key) { return MAX_VOCABULARY - 1 - static_cast<int>(key & (MAX_VOCABULARY - 1)); }

// Of a part of a row. Sums are over exp(logit - most).
struct SliceResult {
  float most;   // NOT_ALLOWED when no token is.
  float sum;
  int token;    // The lowest id of `most`.
  int hasNan;
};

__device__ __forceinline__ float expOf(float difference) { return exp2f(difference * 1.44269504088896340736f); }

__device__ __forceinline__ SliceResult joined(const SliceResult& a, const SliceResult& b) {
  if (b.most == NOT_ALLOWED) return a;
  if (a.most == NOT_ALLOWED) return b;
  const bool aFirst = a.most > b.most || (a.most == b.most && a.token < b.token);
  const float most = aFirst ? a.most : b.most;
  return {most, a.sum * expOf(a.most - most) + b.sum * expOf(b.most - most), aFirst ? a.token : b.token, a.hasNan | b.hasNan};
}

// A row's result, in the warp's first lane (in others the sum may be rounded otherwise).
__device__ __forceinline__ SliceResult joinedByWarp(const SliceResult* slices, int count) {
  SliceResult all = {NOT_ALLOWED, 0, 0, 0};
  for (int i = threadIdx.x % 32; i < count; i += 32) all = joined(all, slices[i]);
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    const SliceResult other = {__shfl_xor_sync(0xffffffffu, all.most, distance), __shfl_xor_sync(0xffffffffu, all.sum, distance),
                               __shfl_xor_sync(0xffffffffu, all.token, distance), __shfl_xor_sync(0xffffffffu, all.hasNan, distance)};
    all = joined(all, other);
  }
  return all;
}

__device__ __forceinline__ bool isWithoutNumber(const SliceResult& row) { return row.most == LEAST && row.hasNan; }

// Logarithm of a probability from a bounded logit. The difference of the two large numbers comes first: it is exact where it matters.
__device__ __forceinline__ float logProbabilityOf(float bounded, const SliceResult& row, float logSum) {
  return bounded == LEAST ? -INFINITY : (bounded - row.most) - logSum;
}

// What the first pass leaves in the workspace.
struct HeadWorkspace {
  SliceResult* slices;    // Per row.
  uint32_t* groupOrders;  // Per row: the order of each group's most probable token; of rows with topK > 1 only.
  int slicesPerRow;
  int groupsPerRow;
};

}  // namespace pie
