// Attention received per key: a second pass over the scores that uses the row statistics of the first pass.
#include "attention-item.h"
#include "../rows/kv-rows.h"
#include "../vectors.h"

namespace pie {

using namespace attention;

namespace {

constexpr int KEYS = 32, WARPS = 8;

// Each block handles 32 keys: one key per lane, every eighth packed row per warp. The warps' sums are added in a fixed order, so the result is
// deterministic.
template <typename T, typename K>
__global__ void __launch_bounds__(32 * WARPS) sumReceived(float* received, const T* queries, KvLayer<K> layer, AttentionItem item, const int* slots,
                                                           const uint32_t* mask, const float2* statistics, Arguments a, int kvHeads) {
  DYNAMIC_SHARED(float, shared);
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  const int word = static_cast<int>(blockIdx.x), count = min(KEYS, item.keys - KEYS * word), stride = a.headDim + 1;
  float sum = 0;
  for (item.kvHead = 0; item.kvHead < kvHeads; item.kvHead++) {
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < count * a.headDim; i += 32 * WARPS) {
      const int key = i / a.headDim, element = i % a.headDim;
      shared[key * stride + element] = keysOf(layer, slots[item.firstKey + KEYS * word + key], item.kvHead, a.headDim)[element];
    }
    __syncthreads();
    for (int row = warp; row < item.rows; row += WARPS) {
      const uint32_t visible = visibleKeys(item, mask, row / a.group, word);
      if (!(visible >> lane & 1)) continue;
      const size_t from = headRow(item, a, row);
      const T* query = queries + from * a.headDim;
      float score = 0;
      for (int i = 0; i < a.headDim; i++) score += static_cast<float>(query[i]) * shared[lane * stride + i];
      const float2 known = statistics[from];
      sum += exp2f(capped(score * a.scale, a) - known.x) / known.y;
    }
  }
  __syncthreads();
  shared[threadIdx.x] = sum;
  __syncthreads();
  if (warp > 0 || lane >= count) return;
  for (int w = 1; w < WARPS; w++) sum += shared[32 * w + lane];
  received[KEYS * word + lane] += sum;
}

}  // namespace

template <typename T, typename K>
void launchReceived(float* received, const T* queries, KvLayer<K> layer, const AttentionSequence& sequence, const int* slots, const uint32_t* mask,
                    const float2* statistics, const ModelShape& shape, cudaStream_t stream) {
  if (sequence.rows == 0) return;
  const Arguments a = argumentsOf({}, shape);
  AttentionItem item = {};
  item.queryRow = sequence.firstRow, item.rows = sequence.rows * a.group, item.firstKey = sequence.firstKey, item.keys = sequence.keys;
  item.context = sequence.keys - sequence.rows, item.maskWord = sequence.maskWord, item.maskStride = sequence.maskStride;
  const size_t keysBytes = KEYS * (shape.headDim + 1) * sizeof(float), sumsBytes = 32 * WARPS * sizeof(float);
  LAUNCH((sumReceived<T, K>), divideUp(sequence.keys, KEYS), 32 * WARPS, keysBytes > sumsBytes ? keysBytes : sumsBytes, stream, received, queries, layer, item,
         slots, mask, statistics, a, shape.kvHeads);
}

template void launchReceived(float*, const bf16*, KvLayer<bf16>, const AttentionSequence&, const int*, const uint32_t*, const float2*, const ModelShape&,
                             cudaStream_t);
template void launchReceived(float*, const bf16*, KvLayer<float8>, const AttentionSequence&, const int*, const uint32_t*, const float2*, const ModelShape&,
                             cudaStream_t);
template void launchReceived(float*, const float*, KvLayer<float>, const AttentionSequence&, const int*, const uint32_t*, const float2*, const ModelShape&,
                             cudaStream_t);

}  // namespace pie
