// Shared by the attention kernels: work-item scheduling, visibility, and the writing and merging of partial results. Device code.
#pragma once
#include "../../device/launch.h"
#include "attention.h"

namespace pie::attention {

constexpr int THREADS = 128;
constexpr unsigned ALL_LANES = 0xffffffffu;
// Scores are scaled by log2(e), so that the softmax needs exp2 instead of exp.
constexpr double LOG2_E = 1.4426950408889634;

inline float scoreScale(const ModelShape& shape) {
  return static_cast<float>(shape.attentionScale > 0 ? LOG2_E * shape.attentionScale : LOG2_E / sqrt(static_cast<double>(shape.headDim)));
}

// The kernel arguments that do not depend on the element types.
struct Arguments {
  AttentionTables tables;
  int heads, group, headDim;
  float scale;
  float cap;  // Of scaled scores; 0: none.
};

inline Arguments argumentsOf(const AttentionTables& tables, const ModelShape& shape) {
  return {tables, shape.heads, shape.heads / shape.kvHeads, shape.headDim, scoreScale(shape), static_cast<float>(LOG2_E * shape.attentionSoftcap)};
}

// A scaled score after the softcap (Gemma 2: Gemma Team, 2024).
__device__ __forceinline__ float capped(float score, const Arguments& a) { return a.cap > 0 ? a.cap * tanhf(score / a.cap) : score; }

// Each block starts with the item at its own block index and then claims further items from an atomic counter. Estimates of item cost in a mixed step
// are unreliable, so items are sorted by descending cost and an idle block takes the next one (dynamic scheduling). With a fixed assignment,
// one block could end later than the others by the cost of the most expensive item. The result does not depend on which block runs which item. The
// last block to finish resets the counters for the next launch; a step with no more items than blocks does not touch them.
// Items are uploaded before the chain of launches begins, and the step's first kernel writes the slots. Both are complete when a block of this kernel
// begins, because the kernel before the previous one is a product or follows one (launch.h). So a block fetches its first item, and looks up
// where its keys are, while the previous kernel still runs. These loads bypass L1 (__ldcg): L1 may hold lines of an earlier step's tables until the
// grid dependency wait.
// `run(item, wait, claim, computed)`: all threads call `wait()` before they access any global memory but the item and the slots. They call `claim()`
// once, after they have issued the item's first loads, so that the counter's latency is hidden. They call `computed()` when only results are left to
// be written; after the block's last item, this call lets the next kernel begin.
template <typename Run>
__device__ __forceinline__ void takeItems(const AttentionTables& tables, Run run) {
  __shared__ AttentionItem item;
  __shared__ int next;
  int index = static_cast<int>(blockIdx.x);
  if (index >= __ldcg(tables.itemCount)) index = -1;
  // True in thread 0 if no item is left for this block. It is not read from `next`, because the compiler would let all threads load `next` amid
  // thread 0's store.
  bool ends = false;
  while (index >= 0) {
    if (threadIdx.x < sizeof(AttentionItem) / sizeof(int4))
      reinterpret_cast<int4*>(&item)[threadIdx.x] = __ldcg(reinterpret_cast<const int4*>(tables.items + index) + threadIdx.x);
    __syncthreads();
    run(item, [] { waitForEarlier(); }, [&] {
      if (threadIdx.x > 0) return;
      const int count = __ldg(tables.itemCount), blocks = static_cast<int>(gridDim.x);
      const int claimed = count > blocks ? blocks + atomicAdd(&tables.counters[0], 1) : count;
      ends = claimed >= count;
      next = ends ? -1 : claimed;
    }, [&] {
      if (ends) letNextBegin();
    });
    __syncthreads();
    // No race on `next`: it is written again only after the barrier that follows the load of the item.
    index = next;
  }
  waitForEarlier();
  letNextBegin();
  const int blocks = static_cast<int>(gridDim.x);
  if (threadIdx.x == 0 && __ldg(tables.itemCount) > blocks && atomicAdd(&tables.counters[1], 1) == blocks - 1)
    tables.counters[0] = tables.counters[1] = 0;
}

// The first tile at or after `tile` that some row of the item sees; endTile if there is none.
__device__ __forceinline__ int visibleTile(const AttentionItem& item, const uint32_t* tileWords, int tile) {
  if (item.tileWord < 0) return tile;
  while (tile < item.endTile) {
    const uint32_t rest = __ldg(tileWords + item.tileWord + tile / 32) >> (tile % 32);
    if (rest != 0) return min(item.endTile, tile + __ffs(static_cast<int>(rest)) - 1);
    tile = (tile / 32 + 1) * 32;
  }
  return item.endTile;
}

// Bit i: the input sees key 32 × word + i.
__device__ __forceinline__ uint32_t visibleKeys(const AttentionItem& item, const uint32_t* mask, int input, int word) {
  const int some = (item.maskWord < 0 ? item.context + input + 1 : item.keys) - 32 * word;
  uint32_t bits = some >= 32 ? ~0u : some > 0 ? (1u << some) - 1 : 0;
  if (item.maskWord >= 0 && some > 0) bits &= __ldg(mask + item.maskWord + static_cast<size_t>(input) * item.maskStride + word);
  return bits;
}

// True if the rows are those of several sequences.
__device__ __forceinline__ bool isShared(const AttentionItem& item) { return item.merge == ATTENTION_SHARED; }

__device__ __forceinline__ const AttentionMember* memberOf(const AttentionItem& item, const Arguments& a, int packed) {
  return a.tables.members + item.firstPartial + packed / a.group;
}

// Index of a packed row among the step's rows × heads.
__device__ __forceinline__ size_t headRow(const AttentionItem& item, const Arguments& a, int packed) {
  const int row = item.firstRow + packed;
  const int within = row < a.group ? 0 : row / a.group;  // The first input's rows, often all, need no division.
  const int input = isShared(item) ? __ldg(&memberOf(item, a, packed)->queryRow) : item.queryRow + within;
  return static_cast<size_t>(input) * a.heads + item.kvHead * a.group + row - within * a.group;
}

// The partial results of one packed row: part q wrote row `first` + q × `stride` of `partials`.
struct RowParts {
  int first, stride, parts;
  int merge;
};
__device__ __forceinline__ RowParts partsOf(const AttentionItem& item, const Arguments& a, int packed) {
  if (!isShared(item)) return {item.firstPartial + packed, item.rows, item.parts, item.merge};
  // x: queryRow, y: firstPartial, z: parts, w: merge.
  const int4 member = __ldg(reinterpret_cast<const int4*>(memberOf(item, a, packed)));
  return {member.y + item.kvHead * member.z * a.group + packed % a.group, a.group, member.z, member.w + item.kvHead};
}
__device__ __forceinline__ float* partialRow(const RowParts& row, const Arguments& a, int part) {
  return a.tables.partials + static_cast<size_t>(row.first + part * row.stride) * (a.headDim + ATTENTION_PARTIAL_EXTRA);
}
__device__ __forceinline__ float* partialRow(const AttentionItem& item, const Arguments& a, int packed) {
  return partialRow(partsOf(item, a, packed), a, item.part);
}

// 2^v with a relative error of about 2^-22; subnormal results are flushed to 0.
__device__ __forceinline__ float exp2Approx(float v) {
#ifdef __CUDACC__
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(v));
  return power;
#else
  return exp2f(v);
#endif
}

template <int WIDTH>
struct alignas(WIDTH * sizeof(float)) Floats {
  float at[WIDTH];
};
// These loads bypass L1, which is not coherent with writes of other blocks.
__device__ __forceinline__ Floats<2> loadShared(const Floats<2>* p) {
  const float2 v = __ldcg(reinterpret_cast<const float2*>(p));
  return {{v.x, v.y}};
}
__device__ __forceinline__ Floats<4> loadShared(const Floats<4>* p) {
  const float4 v = __ldcg(reinterpret_cast<const float4*>(p));
  return {{v.x, v.y, v.z, v.w}};
}

// A running result. `powers` is the sum of 2^(score − largest); `sum` is the outputs times `powers`.
template <int WIDTH>
struct Merged {
  Floats<WIDTH> sum = {};
  float largest = -INFINITY, powers = 0;

  __device__ __forceinline__ float share() const { return powers > 0 ? 1 / powers : 0; }
};
// Merges partial results. Each pair of `statistics` is a result's largest score and its sum of powers. Rescaling to the common maximum first keeps
// every exponent ≤ 0 (Milakov and Gimelshein, 2018).
template <int WIDTH, int COUNT>
__device__ __forceinline__ void mergeInto(Merged<WIDTH>& merged, const Floats<WIDTH> (&sums)[COUNT], const Floats<2> (&statistics)[COUNT]) {
  const float before = merged.largest;
#pragma unroll
  for (int q = 0; q < COUNT; q++) merged.largest = fmaxf(merged.largest, statistics[q].at[0]);
  const float base = merged.largest == -INFINITY ? 0 : merged.largest, kept = exp2Approx(before - base);
#pragma unroll
  for (int i = 0; i < WIDTH; i++) merged.sum.at[i] *= kept;
  merged.powers *= kept;
#pragma unroll
  for (int q = 0; q < COUNT; q++) {
    const float weight = exp2Approx(statistics[q].at[0] - base);
#pragma unroll
    for (int i = 0; i < WIDTH; i++) merged.sum.at[i] += sums[q].at[i] * weight;
    merged.powers += statistics[q].at[1] * weight;
  }
}

// Called by all threads of a block after the block has written its part. For each sequence of the item, the block that finishes last merges all parts
// in order. `store(row, piece, merged)` gets WIDTH outputs at a time; `row` counts the step's rows × heads. headDim must be a multiple of WIDTH.
// A different block is last in each launch, so its multiprocessor often has to fetch this code from memory. That takes longer than running it, so the
// code is kept short.
template <int WIDTH, typename Store>
__device__ __forceinline__ void finishPart(const AttentionItem& item, const Arguments& a, int headDim, Store store) {
  __shared__ bool last[THREADS];  // By sequence; an item has at most THREADS rows.
  const int thread = static_cast<int>(threadIdx.x);
  __threadfence();
  __syncthreads();
  bool isLast = false;
  if (thread < (isShared(item) ? item.rows / a.group : 1)) {
    const RowParts row = partsOf(item, a, thread * a.group);
    isLast = atomicAdd(&a.tables.counters[2 + row.merge], 1) == row.parts - 1;
    if (isLast) a.tables.counters[2 + row.merge] = 0;
    last[thread] = isLast;
  }
  if (!__syncthreads_or(isLast)) return;
  __threadfence();
  constexpr int AHEAD = 4;  // Loads in flight.
  const int pieces = headDim / WIDTH;
#pragma unroll 1
  for (int i = thread; i < item.rows * pieces; i += THREADS) {
    const int packed = i / pieces, piece = i % pieces;
    if (!last[isShared(item) ? packed / a.group : 0]) continue;
    const RowParts row = partsOf(item, a, packed);
    Merged<WIDTH> merged;
#pragma unroll 1
    for (int first = 0; first < row.parts; first += AHEAD) {
      Floats<WIDTH> sums[AHEAD];
      Floats<2> statistics[AHEAD];
#pragma unroll
      for (int q = 0; q < AHEAD; q++) {
        const float* from = partialRow(row, a, min(first + q, row.parts - 1));
        sums[q] = loadShared(reinterpret_cast<const Floats<WIDTH>*>(from) + piece);
        statistics[q] = loadShared(reinterpret_cast<const Floats<2>*>(from + headDim));
        if (first + q >= row.parts) statistics[q].at[0] = -INFINITY;
      }
      mergeInto(merged, sums, statistics);
    }
    store(headRow(item, a, packed), piece, merged);
  }
}

}  // namespace pie::attention
