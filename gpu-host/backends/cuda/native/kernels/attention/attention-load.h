// Loads of queries, keys and values into shared memory for the tensor-core attention kernels. Device code.
#pragma once
#include "attention-tile.h"
#include "attention-tile8.h"
#include "../rows/kv-rows.h"
#include "../vectors.h"

namespace pie::attention {

// Loads tiles of keys and values from their slots into shared memory; each warp loads a quarter of the tile's rows.
template <typename V>
struct TileLoader {
  static constexpr int ROWS = TILE / WARPS;
  int tile;  // Next tile to load.
  int slot;  // Slot of the warp's key lane % ROWS in that tile; -1 past the end.

  __device__ __forceinline__ void seek(const AttentionItem& item, const Arguments& a, int from) {
    tile = visibleTile(item, a.tables.tileWords, from);
    const int key = tile * TILE + static_cast<int>(threadIdx.x / 32 * ROWS + threadIdx.x % ROWS);
    slot = tile < item.endTile && key < item.keys ? __ldcg(a.tables.slots + item.firstKey + key) : -1;
  }

  __device__ __forceinline__ void load(bf16* stage, const KvLayer<bf16>& layer, const AttentionItem& item) const {
    constexpr int PIECES = V::HEAD_DIM / 8, ROWS_AT_ONCE = 32 / PIECES;
    const int warp = static_cast<int>(threadIdx.x / 32), row = static_cast<int>(threadIdx.x % 32) / PIECES, piece = static_cast<int>(threadIdx.x) % PIECES;
    const bf16* head = layer.base + item.kvHead * V::HEAD_DIM + piece * 8;
#pragma unroll
    for (int i = 0; i < ROWS; i += ROWS_AT_ONCE) {
      const int from = __shfl_sync(ALL_LANES, slot, i + row);
      const int to = swizzled<V::HEAD_DIM>(warp * ROWS + i + row, piece);
      const bf16* key = head + static_cast<size_t>(max(from, 0)) * layer.slotWidth;
      // Missing keys are zero-filled: the mask hides their scores, but their values still enter the product with weight 0, and 0 × NaN is NaN.
      copyAsync16(stage + to, key, from >= 0);
      copyAsync16(stage + TILE * V::HEAD_DIM + to, key + valuesIn(layer), from >= 0);
    }
  }

  // Loads codes, then both scales of each key. The scales of missing keys are zero-filled, too.
  __device__ __forceinline__ void load(bf16* stage, const KvLayer<float8>& layer, const AttentionItem& item) const {
    constexpr int PIECES = V::HEAD_DIM / 16, ROWS_AT_ONCE = 32 / PIECES;
    const int warp = static_cast<int>(threadIdx.x / 32), lane = foundAnew(static_cast<int>(threadIdx.x % 32));
    const int row = lane / PIECES, piece = lane % PIECES;
    float8* const codes = reinterpret_cast<float8*>(stage);
    const float8* head = layer.base + item.kvHead * V::HEAD_DIM + piece * 16;
#pragma unroll
    for (int i = 0; i < ROWS; i += ROWS_AT_ONCE) {
      const int from = __shfl_sync(ALL_LANES, slot, i + row);
      const int to = codePlace<V::HEAD_DIM>(warp * ROWS + i + row, piece);
      const float8* key = head + static_cast<size_t>(max(from, 0)) * layer.slotWidth;
      copyAsync16(codes + to, key, from >= 0);
      copyAsync16(codes + TILE * V::HEAD_DIM + to, key + valuesIn(layer), from >= 0);
    }
    if (lane < ROWS) copyAsync4(scalesIn<V>(codes) + warp * ROWS + lane, scalesOf(layer, max(slot, 0), item.kvHead), slot >= 0);
  }
};

// Stores each row's input index in shared memory, because the masked variant with many rows has no registers left for it. Padding rows repeat the
// last row's input.
template <typename V>
__device__ __forceinline__ void storeInputs(bf16* shared, const AttentionItem& item, const Arguments& a) {
  for (int row = static_cast<int>(threadIdx.x); row < V::ROWS; row += THREADS)
    reinterpret_cast<int*>(shared + V::SHARED)[row] = (item.firstRow + min(row, item.rows - 1)) / a.group;
}

// Issues the asynchronous copies of the queries to shared memory.
template <typename V>
__device__ __forceinline__ void loadQueries(bf16* shared, const bf16* queries, const AttentionItem& item, const Arguments& a) {
  constexpr int PIECES = V::HEAD_DIM / 8;
  for (int i = static_cast<int>(threadIdx.x); i < V::ROWS * PIECES; i += THREADS) {
    const int row = i / PIECES, piece = i % PIECES;
    const bf16* from = queries + headRow(item, a, min(row, item.rows - 1)) * V::HEAD_DIM + piece * 8;
    copyAsync16(shared + swizzled<V::HEAD_DIM>(row, piece), from, row < item.rows);
  }
}

// Stores queries as float16 in the order in which codes lie in registers (attention-tile8.h): of 16 values the even-numbered pairs (0, 2, 4, 6), then
// the odd-numbered ones.
template <typename V>
__device__ __forceinline__ void loadHalfQueries(bf16* shared, const bf16* queries, const AttentionItem& item, const Arguments& a) {
  constexpr int PIECES = V::HEAD_DIM / 16;
  constexpr float MOST = 65504;  // The largest float16.
  for (int i = static_cast<int>(threadIdx.x); i < V::ROWS * PIECES; i += THREADS) {
    const int row = i / PIECES, piece = i % PIECES;
    uint32_t pairs[8] = {};
    if (row < item.rows) {
      const bf16* from = queries + headRow(item, a, row) * V::HEAD_DIM + piece * 16;
#pragma unroll
      for (int part = 0; part < 2; part++) {
        Eight x = widenEight(loadKept16(from + 8 * part));
#pragma unroll
        for (int k = 0; k < EIGHT; k++) x.values[k] = fminf(fmaxf(x.values[k], -MOST), MOST);
#pragma unroll
        for (int k = 0; k < EIGHT / 2; k++) pairs[4 * part + k] = packedHalves(x.values[2 * k], x.values[2 * k + 1]);
      }
    }
#pragma unroll
    for (int odd = 0; odd < 2; odd++)
      *reinterpret_cast<uint4*>(shared + swizzled<V::HEAD_DIM>(row, 2 * piece + odd)) =
          make_uint4(pairs[odd], pairs[2 + odd], pairs[4 + odd], pairs[6 + odd]);
  }
}

}  // namespace pie::attention
