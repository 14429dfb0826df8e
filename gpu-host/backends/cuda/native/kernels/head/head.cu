// The most probable tokens of rows of logits, and draws among them.
//
// Two passes. The first (head-scan.cu) reads all logits once; it writes the sum of exponentials of each slice and the largest logit of each group of
// 32 tokens. The second pass, in this file, uses one block per row (one warp if no topK exceeds 1). The k most probable tokens lie in the k groups
// whose best tokens rank highest, because every token of another group ranks behind these k best tokens. So the second pass reads only these groups
// again, from L2.
#include "../../device/launch.h"
#include "head-draw.h"
#include "head-scan.h"
#include "head-select.h"

namespace pie {
namespace {

constexpr int SMALL_TOP_K = 256;

struct FinishArguments {
  HeadResults results;
  HeadWorkspace workspace;
  const float* logits;
  const HeadRow* rows;
  const uint32_t* allowed;
  const Draw* draws;
  int count;
  int vocabulary;
};

__device__ __forceinline__ void storePlace(const FinishArguments& a, const HeadRow& wanted, int place, uint32_t token, float logProbability) {
  a.results.tokens[wanted.firstResult + place] = token;
  a.results.logProbabilities[wanted.firstResult + place] = logProbability;
}

// Writes the complete result of a row with topK 1.
__device__ __forceinline__ void storeFirst(const FinishArguments& a, int at, const HeadRow& wanted, const SliceResult& row) {
  const bool nothing = row.most == NOT_ALLOWED;
  const bool noNumber = isWithoutNumber(row);
  const float logProbability = nothing ? -INFINITY : noNumber ? NAN : logProbabilityOf(row.most, row, logf(row.sum));
  storePlace(a, wanted, 0, nothing ? 0 : row.token, logProbability);
  if (a.results.picked) a.results.picked[at] = nothing || noNumber ? 0 : row.token;
  if (wanted.draw >= 0) a.results.drawn[wanted.draw] = noNumber || (nothing && wanted.change >= 0) ? NOTHING_DRAWN : 0;
}

constexpr int GREEDY_THREADS = 128;

// One warp per row.
__global__ __launch_bounds__(GREEDY_THREADS) void finishGreedy(FinishArguments a) {
  letNextBegin();
  waitForEarlier();
  const int row = blockIdx.x * (GREEDY_THREADS / 32) + threadIdx.x / 32;
  if (row >= a.count) return;
  const HeadRow wanted = a.rows[row];
  if (wanted.topK == 0) return;
  const SliceResult all = joinedByWarp(a.workspace.slices + static_cast<size_t>(row) * a.workspace.slicesPerRow, a.workspace.slicesPerRow);
  if (threadIdx.x % 32 == 0) storeFirst(a, row, wanted, all);
}

// One block per row. ROOM: number of candidates sorted at once. The launch bound of one block per multiprocessor lets the compiler use as many
// registers as it needs.
template <int THREADS, int MAX_K, int ROOM>
__global__ __launch_bounds__(THREADS, 1) void finishTop(FinishArguments a) {
  static_assert(MAX_K * 2 <= ROOM, "weights and their sums reuse the memory of the candidates");
  __shared__ uint64_t candidates[ROOM];
  __shared__ Selection selection;
  __shared__ uint16_t groups[MAX_K];
  __shared__ int groupCount, candidateCount;
  __shared__ SliceResult all;
  __shared__ DrawCuts cuts;

  letNextBegin();
  waitForEarlier();
  const int row = blockIdx.x;
  const HeadRow wanted = a.rows[row];
  if (wanted.topK == 0) return;
  const int lane = threadIdx.x % 32;
  if (threadIdx.x < 32) {
    const SliceResult joint = joinedByWarp(a.workspace.slices + static_cast<size_t>(row) * a.workspace.slicesPerRow, a.workspace.slicesPerRow);
    if (lane == 0) {
      all = joint;
      groupCount = candidateCount = 0;
    }
  }
  __syncthreads();
  if (wanted.topK == 1) {
    if (threadIdx.x == 0) storeFirst(a, row, wanted, all);
    return;
  }
  const int topK = min(wanted.topK, MAX_K);

  const uint32_t* orders = a.workspace.groupOrders + static_cast<size_t>(row) * a.workspace.groupsPerRow;
  const auto groupKeyAt = [&](int group) { return keyOf(orders[group], group); };
  const uint64_t lastGroup = selectThreshold<THREADS>(selection, a.workspace.groupsPerRow, topK, groupKeyAt);
  for (int group = threadIdx.x; group < a.workspace.groupsPerRow; group += THREADS)
    if (groupKeyAt(group) >= lastGroup) groups[atomicAdd(&groupCount, 1)] = static_cast<uint16_t>(group);
  __syncthreads();

  // Key of candidate i; each group has 32 candidates.
  const float* logits = a.logits + static_cast<size_t>(row) * a.vocabulary;
  const uint32_t* mask = wanted.allowedWord < 0 ? nullptr : a.allowed + wanted.allowedWord;
  const auto tokenKeyAt = [&](int i) -> uint64_t {
    const int group = groups[i / GROUP], token = group * GROUP + i % GROUP;
    if (token >= a.vocabulary || (mask && !(mask[group] >> (i % GROUP) & 1))) return 0;
    if (wanted.change >= 0 && logits[token] == -INFINITY) return 0;
    return keyOf(orderOf(bounded(logits[token])), token);
  };
  const int possible = groupCount * GROUP;
  const auto gather = [&](uint64_t threshold) {
    // GROUP divides `possible` and THREADS, so all lanes of a warp stay active for the ballot.
    for (int i = threadIdx.x; i < possible; i += THREADS) {
      const uint64_t key = tokenKeyAt(i);
      const bool taken = key >= threshold;
      const uint32_t takers = __ballot_sync(0xffffffffu, taken);
      int first = 0;
      if (lane == 0) first = atomicAdd(&candidateCount, __popc(takers));
      const int place = __shfl_sync(0xffffffffu, first, 0) + __popc(takers & ((1u << lane) - 1));
      if (taken && place < ROOM) candidates[place] = key;
    }
    __syncthreads();
  };
  // The candidates are the tokens at least as probable as the last group's best token. They are seldom many more than topK.
  gather(max(uint64_t{1}, lastGroup >> INDEX_BITS << INDEX_BITS));
  if (candidateCount > ROOM) {
    const uint64_t last = selectThreshold<THREADS>(selection, possible, topK, tokenKeyAt);
    if (threadIdx.x == 0) candidateCount = 0;
    __syncthreads();
    gather(last);
  }
  const int found = min(candidateCount, topK);
  sortDescending<THREADS>(candidates, candidateCount);

  const SliceResult whole = all;
  const bool noNumber = isWithoutNumber(whole);
  const float logSum = logf(whole.sum);
  const auto logProbabilityAt = [&](int place) {
    return place < found ? logProbabilityOf(valueOf(orderOfKey(candidates[place])), whole, logSum) : -INFINITY;
  };
  for (int place = threadIdx.x; place < topK; place += THREADS)
    storePlace(a, wanted, place, place < found ? indexOfKey(candidates[place]) : 0, noNumber && place == 0 ? NAN : logProbabilityAt(place));
  if (wanted.draw < 0) {
    if (threadIdx.x == 0 && a.results.picked) a.results.picked[row] = noNumber || found == 0 ? 0 : indexOfKey(candidates[0]);
    return;
  }
  // The sums (`reached`) may overwrite the candidates, because the draw reads them only while it computes the weights.
  double* weights = reinterpret_cast<double*>(candidates + ROOM / 2);
  double* reached = reinterpret_cast<double*>(candidates);
  const bool nothing = noNumber || (found == 0 && wanted.change >= 0);
  const uint32_t place = nothing ? NOTHING_DRAWN : drawPlace<THREADS>(a.draws[wanted.draw], topK, logProbabilityAt, weights, reached, cuts);
  if (threadIdx.x > 0) return;
  a.results.drawn[wanted.draw] = place;
  // Another thread may have stored the token; a barrier in the draw orders that store before this read.
  if (a.results.picked) a.results.picked[row] = nothing ? 0 : a.results.tokens[wanted.firstResult + place];
}

size_t sliceBytes(int rows, int vocabulary) { return aligned256(sizeof(SliceResult) * rows * divideUp(vocabulary, SLICE)); }
size_t groupBytes(int rows, int vocabulary) { return aligned256(sizeof(uint32_t) * rows * divideUp(vocabulary, GROUP)); }

}  // namespace

size_t headWorkspaceBytes(int maxRows, int vocabulary) { return sliceBytes(maxRows, vocabulary) + groupBytes(maxRows, vocabulary); }

void launchTop(const HeadResults& results, const float* logits, const HeadRow* rows, const uint32_t* allowed, const Draw* draws, int count, int vocabulary,
               int maxTopK, void* workspace, cudaStream_t stream) {
  if (count == 0) return;
  auto* bytes = static_cast<unsigned char*>(workspace);
  const HeadWorkspace parts = {reinterpret_cast<SliceResult*>(bytes), reinterpret_cast<uint32_t*>(bytes + sliceBytes(count, vocabulary)),
                               divideUp(vocabulary, SLICE), divideUp(vocabulary, GROUP)};
  launchScan(parts, logits, rows, allowed, count, vocabulary, stream);
  const FinishArguments a = {results, parts, logits, rows, allowed, draws, count, vocabulary};
  if (maxTopK <= 1)
    LAUNCH_CHAINED(finishGreedy, divideUp(count, GREEDY_THREADS / 32), GREEDY_THREADS, 0, stream, a);
  else if (maxTopK <= SMALL_TOP_K)
    LAUNCH_CHAINED((finishTop<256, SMALL_TOP_K, 2048>), count, 256, 0, stream, a);
  else
    LAUNCH_CHAINED((finishTop<1024, MAX_TOP_K, 4096>), count, 1024, 0, stream, a);
}

}  // namespace pie
