// Log-probabilities of listed tokens, and entropies.
#include "head-rows.h"

namespace pie {
namespace {

constexpr int SCORE_THREADS = 1024;
constexpr int AT_ONCE = 8;

// Statistics of a part of a row. With e = exp(logit - most), `sum` adds up e, and `weighted` adds up e × (logit - most).
struct Part {
  float most;
  float sum;
  float weighted;
};

// a - b, but at least -200, where exp is already 0 in float. The clamp keeps the difference finite, so that its product with 0 is 0 and not NaN.
__device__ __forceinline__ float difference(float a, float b) { return fmaxf(a - b, -200.0f); }

__device__ __forceinline__ Part joined(const Part& a, const Part& b) {
  const float most = fmaxf(a.most, b.most);
  const float downA = difference(a.most, most), downB = difference(b.most, most);
  const float scaleA = expOf(downA), scaleB = expOf(downB);
  return {most, a.sum * scaleA + b.sum * scaleB, scaleA * (a.weighted + a.sum * downA) + scaleB * (b.weighted + b.sum * downB)};
}

__device__ __forceinline__ Part joinedByWarp(Part part) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2)
    part = joined(part, {__shfl_xor_sync(0xffffffffu, part.most, distance), __shfl_xor_sync(0xffffffffu, part.sum, distance),
                         __shfl_xor_sync(0xffffffffu, part.weighted, distance)});
  return part;
}

// One block per row.
__global__ __launch_bounds__(SCORE_THREADS) void score(float* logProbabilities, float* entropies, const float* logits, const uint32_t* tokens, const int* first,
                                                       int vocabulary) {
  __shared__ Part warps[32];
  __shared__ Part whole;
  const int row = blockIdx.x;
  const float* mine = logits + static_cast<size_t>(row) * vocabulary;
  Part part = {LEAST, 0, 0};
  bool hasNan = false;
  for (int start = threadIdx.x; start < vocabulary; start += SCORE_THREADS * AT_ONCE) {
    float x[AT_ONCE];
    int count = 0;
#pragma unroll
    for (int j = 0; j < AT_ONCE; j++) {
      const int token = start + j * SCORE_THREADS;
      x[j] = token < vocabulary ? mine[token] : NOT_ALLOWED;
      count += token < vocabulary;
    }
    Part chunk = {LEAST, 0, 0};
#pragma unroll
    for (int j = 0; j < AT_ONCE; j++) {
      hasNan |= x[j] != x[j];
      // NaN and -Infinity become LEAST. So do the entries past the vocabulary, which the sums below leave out.
      x[j] = bounded(x[j]);
      chunk.most = fmaxf(chunk.most, x[j]);
    }
#pragma unroll
    for (int j = 0; j < AT_ONCE; j++) {
      if (j >= count) break;
      const float down = difference(x[j], chunk.most), e = expOf(down);
      chunk.sum += e;
      chunk.weighted += e * down;
    }
    part = joined(part, chunk);
  }
  part = joinedByWarp(part);
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = part;
  hasNan = __syncthreads_or(hasNan);
  if (threadIdx.x < 32) {
    part = joinedByWarp(warps[threadIdx.x]);
    if (threadIdx.x == 0) whole = part;
  }
  __syncthreads();
  // NaN counts as -Infinity if the row has a logit above -Infinity. If it has none, and at least one NaN, all results of the row are NaN.
  const bool noNumber = whole.most == LEAST && hasNan;
  const float logSum = logf(whole.sum);
  if (threadIdx.x == 0) entropies[row] = noNumber ? NAN : logSum - whole.weighted / whole.sum;
  for (int i = first[row] + threadIdx.x; i < first[row + 1]; i += SCORE_THREADS) {
    const uint32_t token = tokens[i];
    const float logit = token < static_cast<uint32_t>(vocabulary) ? bounded(mine[token]) : LEAST;
    logProbabilities[i] = noNumber ? NAN : logit == LEAST ? -INFINITY : (logit - whole.most) - logSum;
  }
}

}  // namespace

void launchScore(float* logProbabilities, float* entropies, const float* logits, const uint32_t* tokens, const int* first, int count, int vocabulary,
                 cudaStream_t stream) {
  if (count == 0) return;
  LAUNCH(score, count, SCORE_THREADS, 0, stream, logProbabilities, entropies, logits, tokens, first, vocabulary);
}

}  // namespace pie
