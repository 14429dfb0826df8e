// The tensor-core attention kernel for head dimensions 64 and 128 and every KV type. Device code.
#pragma once
#include "attention-fast.h"
#include "attention-load.h"

namespace pie::attention {

template <typename K>
struct Pointers {
  bf16* out;
  const bf16* queries;
  KvLayer<K> layer;
};

// Runs this warp's rows over the item's visible tiles: online softmax with a cp.async pipeline of V::STAGES stages. `wait` and `claim`: see
// takeItems.
template <typename V, typename Wait, typename Claim>
__device__ __forceinline__ void attendTiles(WarpRows<V>& rows, bf16* shared, const Pointers<typename V::Kv>& p, const AttentionItem& item,
                                            const Arguments& a, Wait wait, Claim claim) {
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  const int warpRow = V::FEW ? 0 : warp * V::WARP_ROWS, warpKey = V::FEW ? warp * V::KEYS : 0;
  bf16* const stages = shared + V::ROWS * V::HEAD_DIM;
  TileLoader<V> loader, ahead[V::STAGES - 1];
  // The words that say which tiles are visible are read through L1, so only after the wait.
  if (item.tileWord >= 0) wait();
#pragma unroll
  for (int s = 0; s < V::STAGES - 1; s++) ahead[s].seek(item, a, s == 0 ? item.firstTile : ahead[s - 1].tile + 1);
  storeInputs<V>(shared, item, a);
  wait();
  const int first = ahead[0].tile;
  if (first >= item.endTile) return claim();
  if constexpr (!V::NARROW) loadQueries<V>(shared, p.queries, item, a);
#pragma unroll
  for (int s = 0; s < V::STAGES - 1; s++) {
    if (ahead[s].tile < item.endTile) ahead[s].load(stages + s * V::STAGE, p.layer, item);
    commitCopies();
  }
  loader.seek(item, a, ahead[V::STAGES - 2].tile + 1);
  // loadHalfQueries loads through registers and blocks until its data arrives, so it runs after the asynchronous copies are issued.
  if constexpr (V::NARROW) loadHalfQueries<V>(shared, p.queries, item, a);
  claim();
  const int* inputs = reinterpret_cast<const int*>(shared + V::SHARED) + warpRow;
  int stage = 0;
  for (int tile = first; tile < item.endTile; tile = visibleTile(item, a.tables.tileWords, tile + 1)) {
    waitForCopies<V::STAGES - 2>();
    // The barrier makes every warp's part of this stage visible and guarantees that all warps have finished reading the previous stage. In the FEW
    // variant a warp reads only what it loaded itself, so __syncwarp suffices.
    if (V::FEW && tile != first) __syncwarp();
    else __syncthreads();
    if (loader.tile < item.endTile) {
      loader.load(stages + (stage == 0 ? V::STAGES - 1 : stage - 1) * V::STAGE, p.layer, item);
      loader.seek(item, a, loader.tile + 1);
    }
    commitCopies();
    const int firstKey = tile * TILE + warpKey;
    // The last row of a warp sees the most keys, the first row the fewest.
    const int visibleEnd = item.maskWord >= 0 ? item.keys : item.context + inputs[V::WARP_ROWS - 1] + 1;
    if (firstKey < visibleEnd && warpRow < item.rows) {
      const bf16* queries = shared + warpRow * V::HEAD_DIM;
      const auto* keys = reinterpret_cast<const typename V::Kv*>(stages + stage * V::STAGE) + warpKey * V::HEAD_DIM;
      Scores<V> scores;
      if constexpr (V::NARROW) multiplyKeys8<V>(scores, queries, keys, lane), scaleScores<V>(scores, scalesIn<V>(keys, warpKey), lane);
      else multiplyKeys<V>(scores, queries, keys, lane);
      if (item.maskWord >= 0 || firstKey + V::KEYS > item.context + inputs[0] + 1) hideKeys<V>(scores, item, a, inputs, firstKey, lane);
      takeMaxima<V>(scores, rows, a.scale);
      const auto* values = keys + TILE * V::HEAD_DIM;
      if constexpr (V::NARROW) multiplyValues8<V>(rows, scores, values, scalesIn<V>(keys, warpKey), lane);
      else multiplyValues<V>(rows, scores, values, lane);
    }
    stage = stage + 1 == V::STAGES ? 0 : stage + 1;
  }
  waitForCopies<0>();
  joinTotals<V>(rows);
}

// Stores four outputs of a row; with the first four outputs, also the row's statistics.
template <int HEAD_DIM>
__device__ __forceinline__ void storeOutputs(bf16* out, size_t row, int piece, const Merged<4>& merged, const Arguments& a) {
  const float share = merged.share();
  const float* sum = merged.sum.at;
  *reinterpret_cast<uint2*>(out + row * HEAD_DIM + 4 * piece) =
      make_uint2(packed(sum[0] * share, sum[1] * share), packed(sum[2] * share, sum[3] * share));
  if (piece == 0 && a.tables.statistics != nullptr) a.tables.statistics[row] = make_float2(merged.largest, merged.powers);
}

// FEW variant: each warp processed different keys of the same rows; the block merges the partial results in shared memory.
template <typename V>
__device__ __forceinline__ void writeFew(const WarpRows<V>& rows, bf16* shared, const Pointers<typename V::Kv>& p, const AttentionItem& item, const Arguments& a) {
  // The padding of 8 floats shifts consecutive rows by 8 banks.
  constexpr int STRIDE = V::HEAD_DIM + 8;
  static_assert(WARPS * V::ROWS * (STRIDE + 2) * sizeof(float) <= V::SHARED * sizeof(bf16), "partial sums fit into the memory of queries and stages");
  float* const sums = reinterpret_cast<float*>(shared);
  float2* const statistics = reinterpret_cast<float2*>(sums + WARPS * V::ROWS * STRIDE);
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  __syncthreads();
#pragma unroll
  for (int band = 0; band < V::BANDS; band++) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int row = 16 * band + 8 * half + lane / 4;
      if (row >= item.rows) continue;
#pragma unroll
      for (int n = 0; n < V::HEAD_DIM / 8; n++)
        *reinterpret_cast<float2*>(sums + (warp * V::ROWS + row) * STRIDE + outputColumn<V>(n, lane)) = outputPair<V>(rows, band, half, n);
      if (lane % 4 == 0) statistics[warp * V::ROWS + row] = make_float2(rows.largest[band][half] * a.scale, rows.total[band][half]);
    }
  }
  __syncthreads();
  constexpr int PIECES = V::HEAD_DIM / 4;
  for (int i = static_cast<int>(threadIdx.x); i < item.rows * PIECES; i += THREADS) {
    const int row = i / PIECES, piece = i % PIECES;
    Floats<4> parts[WARPS];
    Floats<2> shares[WARPS];
#pragma unroll
    for (int w = 0; w < WARPS; w++) {
      parts[w] = *reinterpret_cast<const Floats<4>*>(sums + (w * V::ROWS + row) * STRIDE + 4 * piece);
      shares[w] = *reinterpret_cast<const Floats<2>*>(statistics + w * V::ROWS + row);
    }
    Merged<4> merged;
    mergeInto(merged, parts, shares);
    if (item.parts > 1) {
      float* partial = partialRow(item, a, row);
      reinterpret_cast<Floats<4>*>(partial)[piece] = merged.sum;
      if (piece == 0) *reinterpret_cast<float2*>(partial + V::HEAD_DIM) = make_float2(merged.largest, merged.powers);
    } else {
      storeOutputs<V::HEAD_DIM>(p.out, headRow(item, a, row), piece, merged, a);
    }
  }
}

// MANY variant: each warp owns its rows and writes them without communication.
template <typename V>
__device__ __forceinline__ void writeMany(const WarpRows<V>& rows, bf16* shared, const Pointers<typename V::Kv>& p, const AttentionItem& item, const Arguments& a) {
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32), warpRow = warp * V::WARP_ROWS;
  // The warp no longer needs its queries: it stages its outputs in their place and stores them from there in 16-byte vectors.
  bf16* const mine = shared + warpRow * V::HEAD_DIM;
#pragma unroll
  for (int band = 0; band < V::BANDS; band++) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int row = 16 * band + 8 * half + lane / 4;
      const float largest = rows.largest[band][half] * a.scale, total = rows.total[band][half], share = total > 0 ? 1 / total : 0;
      if (warpRow + row >= item.rows) continue;
      if (item.parts > 1) {
        float* partial = partialRow(item, a, warpRow + row);
#pragma unroll
        for (int n = 0; n < V::HEAD_DIM / 8; n++)
          *reinterpret_cast<float2*>(partial + outputColumn<V>(n, lane)) = outputPair<V>(rows, band, half, n);
        if (lane % 4 == 0) *reinterpret_cast<float2*>(partial + V::HEAD_DIM) = make_float2(largest, total);
      } else {
#pragma unroll
        for (int n = 0; n < V::HEAD_DIM / 8; n++) {
          const float2 two = outputPair<V>(rows, band, half, n);
          *reinterpret_cast<uint32_t*>(mine + swizzled<V::HEAD_DIM>(row, outputColumn<V>(n, 0) / 8 + outputColumn<V>(0, lane) / 8) +
                                       outputColumn<V>(n, lane) % 8) = packed(two.x * share, two.y * share);
        }
        if (lane % 4 == 0 && a.tables.statistics != nullptr) a.tables.statistics[headRow(item, a, warpRow + row)] = make_float2(largest, total);
      }
    }
  }
  if (item.parts > 1) return;
  __syncwarp();
  constexpr int PIECES = V::HEAD_DIM / 8;
  for (int i = lane; i < V::WARP_ROWS * PIECES; i += 32) {
    const int row = i / PIECES, piece = i % PIECES;
    if (warpRow + row >= item.rows) continue;
    reinterpret_cast<uint4*>(p.out + headRow(item, a, warpRow + row) * V::HEAD_DIM)[piece] =
        *reinterpret_cast<const uint4*>(mine + swizzled<V::HEAD_DIM>(row, piece));
  }
}

template <typename V, typename Wait, typename Claim, typename Computed>
__device__ __forceinline__ void attend(bf16* shared, const Pointers<typename V::Kv>& p, const AttentionItem& item, const Arguments& a, Wait wait,
                                       Claim claim, Computed computed) {
  WarpRows<V> rows;
  clear<V>(rows);
  attendTiles<V>(rows, shared, p, item, a, wait, claim);
  computed();
  if constexpr (V::FEW) writeFew<V>(rows, shared, p, item, a);
  else writeMany<V>(rows, shared, p, item, a);
}

template <typename K, int HEAD_DIM>
constexpr size_t sharedBytes() {
  const size_t few = Variant<K, HEAD_DIM, 2, true>::BYTES, many = Variant<K, HEAD_DIM, 2, false>::BYTES;
  return few > many ? few : many;
}

template <typename K, int HEAD_DIM>
__global__ void __launch_bounds__(THREADS, fastBlocks(HEAD_DIM)) fastAttention(Pointers<K> p, Arguments a) {
  DYNAMIC_SHARED(bf16, shared);
  takeItems(a.tables, [&](const AttentionItem& item, auto wait, auto claim, auto computed) {
    if (item.rows <= 16) attend<Variant<K, HEAD_DIM, 1, true>>(shared, p, item, a, wait, claim, computed);
    else if (item.rows <= 32) attend<Variant<K, HEAD_DIM, 2, true>>(shared, p, item, a, wait, claim, computed);
    else if (item.rows <= 64) attend<Variant<K, HEAD_DIM, 1, false>>(shared, p, item, a, wait, claim, computed);
    else attend<Variant<K, HEAD_DIM, 2, false>>(shared, p, item, a, wait, claim, computed);
    if (item.parts > 1)
      finishPart<4>(item, a, HEAD_DIM, [&](size_t row, int piece, const Merged<4>& merged) { storeOutputs<HEAD_DIM>(p.out, row, piece, merged, a); });
  });
}

template <typename K, int HEAD_DIM>
void launchOf(const Pointers<K>& p, const Arguments& a, int blocks, cudaStream_t stream) {
  constexpr size_t BYTES = sharedBytes<K, HEAD_DIM>();
  // More than 48 KB of dynamic shared memory needs an opt-in. If the attribute call fails, the launch reports the error.
  (void)cudaFuncSetAttribute(fastAttention<K, HEAD_DIM>, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(BYTES));
  LAUNCH_CHAINED((fastAttention<K, HEAD_DIM>), blocks, THREADS, BYTES, stream, p, a);
}

// Each KV type is instantiated in its own source file because these templates compile slowly.
template <typename K>
void launchFastOf(bf16* out, const bf16* queries, KvLayer<K> layer, const Arguments& arguments, int blocks, cudaStream_t stream) {
  const Pointers<K> pointers = {out, queries, layer};
  if (arguments.headDim == 64) launchOf<K, 64>(pointers, arguments, blocks, stream);
  else launchOf<K, 128>(pointers, arguments, blocks, stream);
}

}  // namespace pie::attention
