// Shared by the head's kernels: reading and ordering logits, and the results of the first pass.
#pragma once
#include <cfloat>
#include "head.h"
#include "../vectors.h"

namespace pie {

// Consecutive tokens per group; one mask word covers one group.
constexpr int GROUP = 32;
// Tokens per block of the first pass. Constant, so that a row's sums do not depend on the number of rows.
constexpr int SLICE = 4096;
constexpr int INDEX_BITS = 19;
static_assert(MAX_VOCABULARY == 1 << INDEX_BITS);

// Logits are clamped to [-FLT_MAX, FLT_MAX] for comparisons and sums: -FLT_MAX stands for -Infinity and NaN, and -Infinity for disallowed tokens.
constexpr float LEAST = -FLT_MAX;
constexpr float NOT_ALLOWED = -INFINITY;

// fmaxf returns the other operand if one is NaN.
__device__ __forceinline__ float bounded(float logit) { return fminf(fmaxf(logit, LEAST), FLT_MAX); }

// Maps floats to integers in the same order; 0 stands for disallowed tokens.
__device__ __forceinline__ uint32_t orderOf(float bounded) {
  if (bounded == NOT_ALLOWED) return 0;
  const uint32_t bits = __float_as_uint(bounded + 0.0f);  // Makes -0 equal to 0.
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
__device__ __forceinline__ float valueOf(uint32_t order) { return __uint_as_float(order & 0x80000000u ? order ^ 0x80000000u : ~order); }

// Sort key: a larger key comes earlier in the result, ordered by value, then by index. 0 only for disallowed tokens; all other keys are distinct.
__device__ __forceinline__ uint64_t keyOf(uint32_t order, int index) {
  return order == 0 ? 0 : static_cast<uint64_t>(order) << INDEX_BITS | static_cast<uint32_t>(MAX_VOCABULARY - 1 - index);
}
__device__ __forceinline__ uint32_t orderOfKey(uint64_t key) { return static_cast<uint32_t>(key >> INDEX_BITS); }
__device__ __forceinline__ int indexOfKey(uint64_t key) { return MAX_VOCABULARY - 1 - static_cast<int>(key & (MAX_VOCABULARY - 1)); }

// Statistics of a part of a row. Sums are over exp(logit - most).
struct SliceResult {
  float most;   // NOT_ALLOWED if no token of the part is allowed.
  float sum;
  int token;    // The lowest token id whose logit is `most`.
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

// Joins the slices of a row. Only lane 0 has the result: in other lanes the sum may be rounded differently.
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

// Log-probability of a bounded logit. Subtracting the two large numbers first is exact where the result is small.
__device__ __forceinline__ float logProbabilityOf(float bounded, const SliceResult& row, float logSum) {
  return bounded == LEAST ? -INFINITY : (bounded - row.most) - logSum;
}

// Results of the first pass, kept in the workspace.
struct HeadWorkspace {
  SliceResult* slices;    // Per row.
  uint32_t* groupOrders;  // Per row with topK > 1: the order value of each group's largest logit.
  int slicesPerRow;
  int groupsPerRow;
};

}  // namespace pie
