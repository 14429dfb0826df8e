// The plain attention kernel for any even headDim, and the choice between it and the tensor-core kernel.
#include "attention.h"
#include <type_traits>
#include "attention-fast.h"
#include "attention-item.h"
#include "../rows/kv-rows.h"
#include "../vectors.h"

namespace pie {

using namespace attention;

namespace {

constexpr int WARPS = THREADS / 32;
constexpr int BLOCKS_PER_MULTIPROCESSOR = 2;

// A warp's state for its current row.
struct WarpRow {
  float* query;   // headDim, scaled
  float* sum;     // headDim
  float* powers;  // 2^(score − largest) of the current 32 keys.
  int* slots;     // The slots of these keys.
  float largest, total;
};

template <typename K>
__device__ __forceinline__ float product(const float* query, const KvRow<K>& key, int headDim) {
  float sum = 0;
  for (int i = 0; i < headDim; i++) sum += query[i] * key[i];
  return sum;
}
// Not unrolled: converting several codes at a time needs more registers than are available.
__device__ __forceinline__ float product(const float* query, const KvRow<float8>& key, int headDim) {
  float sum = 0;
#pragma unroll 1
  for (int i = 0; i < headDim; i++) sum += query[i] * key[i];
  return sum;
}

// Processes 32 keys: first one key per lane for the scores, then the output elements across lanes.
template <typename K>
__device__ void addKeys(WarpRow& row, const KvLayer<K>& layer, const AttentionItem& item, const Arguments& a, uint32_t visible, int firstKey) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const bool seen = visible >> lane & 1;
  const int slot = seen ? a.tables.slots[item.firstKey + firstKey + lane] : 0;
  float score = -INFINITY;
  if (seen) {
    const KvRow<K> key = keysOf(layer, slot, item.kvHead, a.headDim);
    score = capped(product(row.query, key, a.headDim), a);
  }
  const float largest = fmaxf(row.largest, warpMax(score)), earlier = exp2f(row.largest - largest), power = seen ? exp2f(score - largest) : 0;
  row.largest = largest;
  row.total = row.total * earlier + power;
  row.powers[lane] = power;
  row.slots[lane] = slot;
  __syncwarp();
  for (int i = lane; i < a.headDim; i += 32) {
    float sum = row.sum[i] * earlier;
    for (uint32_t left = visible; left != 0; left &= left - 1) {
      const int k = __ffs(static_cast<int>(left)) - 1;
      sum += row.powers[k] * valuesOf(layer, row.slots[k], item.kvHead, a.headDim)[i];
    }
    row.sum[i] = sum;
  }
  __syncwarp();
}

// Each warp processes its rows one after another.
template <typename T, typename K>
__global__ void __launch_bounds__(THREADS) plainAttention(T* out, const T* queries, KvLayer<K> layer, Arguments a) {
  DYNAMIC_SHARED(float, shared);
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  float* mine = shared + warp * (2 * a.headDim + 64);
  WarpRow row = {mine, mine + a.headDim, mine + 2 * a.headDim, reinterpret_cast<int*>(mine + 2 * a.headDim + 32), 0, 0};
  takeItems(a.tables, [&](const AttentionItem& item, auto wait, auto claim, auto) {
    wait();
    claim();
    for (int r = warp; r < item.rows; r += WARPS) {
      const size_t target = headRow(item, a, r);
      const int input = (item.firstRow + r) / a.group;
      row.largest = -INFINITY, row.total = 0;
      for (int i = lane; i < a.headDim; i += 32) row.query[i] = static_cast<float>(queries[target * a.headDim + i]) * a.scale, row.sum[i] = 0;
      __syncwarp();
      for (int tile = visibleTile(item, a.tables.tileWords, item.firstTile); tile < item.endTile; tile = visibleTile(item, a.tables.tileWords, tile + 1)) {
        for (int word = tile * ATTENTION_TILE / 32; word < (tile + 1) * ATTENTION_TILE / 32; word++) {
          const uint32_t visible = visibleKeys(item, a.tables.mask, input, word);
          if (visible != 0) addKeys(row, layer, item, a, visible, 32 * word);
        }
      }
      const float total = warpSum(row.total);
      if (item.parts > 1) {
        float* partial = partialRow(item, a, r);
        for (int i = lane; i < a.headDim; i += 32) partial[i] = row.sum[i];
        if (lane == 0) partial[a.headDim] = row.largest, partial[a.headDim + 1] = total;
      } else {
        const float share = total > 0 ? 1 / total : 0;
        for (int i = lane; i < a.headDim; i += 32) out[target * a.headDim + i] = static_cast<T>(row.sum[i] * share);
        if (lane == 0 && a.tables.statistics != nullptr) a.tables.statistics[target] = make_float2(row.largest, total);
      }
      __syncwarp();
    }
    if (item.parts > 1)
      finishPart<2>(item, a, a.headDim, [&](size_t target, int piece, const Merged<2>& merged) {
        for (int e = 0; e < 2; e++) out[target * a.headDim + 2 * piece + e] = static_cast<T>(merged.sum.at[e] * merged.share());
        if (piece == 0 && a.tables.statistics != nullptr) a.tables.statistics[target] = make_float2(merged.largest, merged.powers);
      });
  });
}

}  // namespace

template <typename T>
bool attentionIsFast(const ModelShape& shape) {
  return std::is_same_v<T, bf16> && (shape.headDim == 64 || shape.headDim == 128) && shape.heads / shape.kvHeads <= 128 && shape.attentionSoftcap == 0;
}

int attentionBlocks(const ModelShape& shape, int multiprocessors, bool fast) {
  return multiprocessors * (fast ? fastBlocks(shape.headDim) : BLOCKS_PER_MULTIPROCESSOR);
}

template <typename T, typename K>
void launchAttention(T* out, const T* queries, KvLayer<K> layer, const AttentionTables& tables, const ModelShape& shape, int blocks, cudaStream_t stream) {
  const Arguments a = argumentsOf(tables, shape);
  if constexpr (std::is_same_v<T, bf16>) {
    if (attentionIsFast<T>(shape)) return launchFast(out, queries, layer, a, blocks, stream);
  }
  LAUNCH_CHAINED((plainAttention<T, K>), blocks, THREADS, WARPS * (2 * shape.headDim + 64) * sizeof(float), stream, out, queries, layer, a);
}

template bool attentionIsFast<bf16>(const ModelShape&);
template bool attentionIsFast<float>(const ModelShape&);
template void launchAttention(bf16*, const bf16*, KvLayer<bf16>, const AttentionTables&, const ModelShape&, int, cudaStream_t);
template void launchAttention(bf16*, const bf16*, KvLayer<float8>, const AttentionTables&, const ModelShape&, int, cudaStream_t);
template void launchAttention(float*, const float*, KvLayer<float>, const AttentionTables&, const ModelShape&, int, cudaStream_t);

}  // namespace pie
