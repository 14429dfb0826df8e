// The first pass over logits, the only pass that reads all of them. It reduces each slice of a row to a SliceResult and, if topK exceeds 1, stores
// the largest logit of each group of 32 tokens.
#include "head-scan.h"
#include "../../device/launch.h"

namespace pie {
namespace {

constexpr int SCAN_THREADS = 256;
constexpr int WARPS = SCAN_THREADS / 32;
constexpr int PER_LANE = 4;
constexpr int ROUNDS = SLICE / (SCAN_THREADS * PER_LANE);
constexpr int WARP_TOKENS = SLICE / WARPS;

template <bool FOURS>
__device__ __forceinline__ float4 loadFour(const float* logits, int token, int vocabulary) {
  if constexpr (FOURS) return *reinterpret_cast<const float4*>(logits + token);
  float4 four = {};
  four.x = logits[token];
  if (token + 1 < vocabulary) four.y = logits[token + 1];
  if (token + 2 < vocabulary) four.z = logits[token + 2];
  if (token + 3 < vocabulary) four.w = logits[token + 3];
  return four;
}

// One block per slice and row. A thread keeps its logits in registers.
template <bool FOURS>
__global__ __launch_bounds__(SCAN_THREADS) void scan(HeadWorkspace workspace, const float* logits, const HeadRow* rows, const uint32_t* allowed,
                                                     int vocabulary) {
  __shared__ SliceResult warps[WARPS];
  letNextBegin();
  waitForEarlier();
  const int row = blockIdx.y;
  const HeadRow wanted = rows[row];
  if (wanted.topK == 0) return;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int firstToken = blockIdx.x * SLICE + warp * WARP_TOKENS + lane * PER_LANE;
  const float* mine = logits + static_cast<size_t>(row) * vocabulary;
  const uint32_t* mask = wanted.allowedWord < 0 ? nullptr : allowed + wanted.allowedWord;
  const bool isChanged = wanted.change >= 0;

  float4 loaded[ROUNDS];
  uint32_t bits[ROUNDS];
#pragma unroll
  for (int r = 0; r < ROUNDS; r++) {
    const int token = firstToken + r * 32 * PER_LANE;
    loaded[r] = make_float4(0, 0, 0, 0);
    bits[r] = 0;
    if (token >= vocabulary) continue;
    loaded[r] = loadFour<FOURS>(mine, token, vocabulary);
    bits[r] = 0xfu >> max(0, token + PER_LANE - vocabulary);
    if (mask) bits[r] &= mask[token / GROUP] >> (token % GROUP);
  }

  float x[ROUNDS][PER_LANE];
  float most = NOT_ALLOWED;
  bool hasNan = false;
#pragma unroll
  for (int r = 0; r < ROUNDS; r++) {
    const float four[PER_LANE] = {loaded[r].x, loaded[r].y, loaded[r].z, loaded[r].w};
#pragma unroll
    for (int j = 0; j < PER_LANE; j++) {
      const bool isAllowed = (bits[r] >> j & 1) && !(isChanged && four[j] == -INFINITY);
      hasNan |= isAllowed && four[j] != four[j];
      x[r][j] = isAllowed ? bounded(four[j]) : NOT_ALLOWED;
    }
    float group = fmaxf(fmaxf(x[r][0], x[r][1]), fmaxf(x[r][2], x[r][3]));
    if (wanted.topK > 1) {
      // Eight lanes hold one group.
#pragma unroll
      for (int distance = 1; distance < GROUP / PER_LANE; distance *= 2) group = fmaxf(group, __shfl_xor_sync(0xffffffffu, group, distance));
      const int token = firstToken + r * 32 * PER_LANE;
      if (lane % (GROUP / PER_LANE) == 0 && token < vocabulary)
        workspace.groupOrders[static_cast<size_t>(row) * workspace.groupsPerRow + token / GROUP] = orderOf(group);
    }
    most = fmaxf(most, group);
  }
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, distance));

  float sum = 0;
  // The loops run backwards, so that `token` ends as the lowest of equally probable ones.
  int token = MAX_VOCABULARY;
  if (most != NOT_ALLOWED) {
#pragma unroll
    for (int r = ROUNDS - 1; r >= 0; r--) {
#pragma unroll
      for (int j = PER_LANE - 1; j >= 0; j--) {
        sum += expOf(x[r][j] - most);
        if (x[r][j] == most) token = firstToken + r * 32 * PER_LANE + j;
      }
    }
  }
  sum = warpSum(sum);
  token = __reduce_min_sync(0xffffffffu, token);
  hasNan = __any_sync(0xffffffffu, hasNan);
  if (lane == 0) warps[warp] = {most, sum, token, hasNan};
  __syncthreads();
  if (warp > 0) return;
  const SliceResult all = joinedByWarp(warps, WARPS);
  if (lane == 0) workspace.slices[static_cast<size_t>(row) * workspace.slicesPerRow + blockIdx.x] = all;
}

}  // namespace

void launchScan(const HeadWorkspace& workspace, const float* logits, const HeadRow* rows, const uint32_t* allowed, int count, int vocabulary,
                cudaStream_t stream) {
  const dim3 grid(workspace.slicesPerRow, count);
  if (vocabulary % PER_LANE == 0 && areAligned(logits))
    LAUNCH_CHAINED(scan<true>, grid, SCAN_THREADS, 0, stream, workspace, logits, rows, allowed, vocabulary);
  else
    LAUNCH_CHAINED(scan<false>, grid, SCAN_THREADS, 0, stream, workspace, logits, rows, allowed, vocabulary);
}

}  // namespace pie
