// One warp's share of a tile of keys: scores, online softmax, weighted values (FlashAttention-2: Dao, 2023, algorithm 1). Device code.
#pragma once
#include "../device/copy.h"
#include "../device/mma.h"
#include "attention-item.h"

namespace pie::attention {

constexpr int TILE = ATTENTION_TILE;
constexpr int WARPS = THREADS / 32;

// 2^v, to about 2^-22 of it; 0 for what is too small to be normal.
__device__ __forceinline__ float exp2Approx(float v) {
#ifdef __CUDACC__
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(v));
  return power;
#else
  return exp2f(v);
#endif
}

// Where 16 bytes of a row lie in shared memory: turned by the row, so that eight rows' same pieces are in different banks (ldmatrix reads them at once).
template <int HEAD_DIM>
__device__ __forceinline__ int swizzled(int row, int piece) {
  return row * HEAD_DIM + ((piece ^ (row & 7)) * 8);
}

// The 8 values whose address a lane gives to ldmatrix: row `row`, piece `part` (0 or 1) of 16 columns. Of `columns`, a constant, nothing is left but two
// bits and an offset.
template <int HEAD_DIM>
__device__ __forceinline__ int piecePlace(int row, int part, int columns) {
  return row * HEAD_DIM + ((((part ^ row) & 7) ^ columns % 4 * 2) * 8) + columns / 4 * 64;
}
// Matrices in the order in which registers of an operand must lie side by side: rows 0–7, rows 8–15, then columns 8–15 of both (queries, and values,
// which are transposed); or rows 0–7, their columns 8–15, then rows 8–15 (keys).
template <int HEAD_DIM>
__device__ __forceinline__ int downFirst(int rows, int columns, int lane) {
  return rows * 16 * HEAD_DIM + piecePlace<HEAD_DIM>(lane % 16, lane / 16, columns);
}
template <int HEAD_DIM>
__device__ __forceinline__ int acrossFirst(int rows, int columns, int lane) {
  return rows * 16 * HEAD_DIM + piecePlace<HEAD_DIM>(lane % 8 + lane / 16 * 8, lane / 8 % 2, columns);
}

// How a block's warps share an item. Of few rows: all warps have all rows, each a quarter of every tile's keys. Of many: each has a quarter of the rows
// and all keys. A warp has 16 × BANDS rows; with two bands what it reads from shared memory serves two products, without which that would be the limit.
template <typename K, int HEAD_DIM_, int BANDS_, bool FEW_>
struct Variant {
  using Kv = K;
  static constexpr bool NARROW = sizeof(K) == 1;
  static constexpr int HEAD_DIM = HEAD_DIM_, BANDS = BANDS_;
  static constexpr bool FEW = FEW_;
  static constexpr int WARP_ROWS = 16 * BANDS;
  static constexpr int ROWS = FEW ? WARP_ROWS : WARPS * WARP_ROWS;
  static constexpr int KEYS = FEW ? TILE / WARPS : TILE;  // Of a tile, for one warp.
  // Few rows wait for memory, so they have more of it under way; many rows need the room for queries. Of codes, twice as many tiles are as many bytes.
  static constexpr int STAGES = ((FEW ? 3 : 2) + (HEAD_DIM == 64 ? 1 : 0)) * (NARROW ? 2 : 1);
  // In bf16: keys, then values, of one tile; of codes, then two scales of each key.
  static constexpr int STAGE = NARROW ? TILE * HEAD_DIM + 2 * TILE : 2 * TILE * HEAD_DIM;
  static constexpr int SHARED = ROWS * HEAD_DIM + STAGES * STAGE;  // In bf16; behind them the input of each row.
  static constexpr size_t BYTES = SHARED * sizeof(bf16) + ROWS * sizeof(int);
};

// What a warp knows of its rows so far. In fragments: a lane has columns lane % 4 × 2 and the next of rows lane / 4 and lane / 4 + 8 of each band (of codes,
// other columns: outputColumn).
template <typename V>
struct WarpRows {
  float sum[V::BANDS][V::HEAD_DIM / 8][4];
  float largest[V::BANDS][2];  // Unscaled.
  float total[V::BANDS][2];    // This lane's columns only.
};

template <typename V>
using Scores = float[V::BANDS][V::KEYS / 8][4];

template <typename V>
__device__ __forceinline__ void clear(WarpRows<V>& rows) {
#pragma unroll
  for (int band = 0; band < V::BANDS; band++) {
#pragma unroll
    for (int n = 0; n < V::HEAD_DIM / 8; n++)
#pragma unroll
      for (int e = 0; e < 4; e++) rows.sum[band][n][e] = 0;
#pragma unroll
    for (int half = 0; half < 2; half++) rows.largest[band][half] = -INFINITY, rows.total[band][half] = 0;
  }
}

// scores = queries · keysᵀ
template <typename V>
__device__ __forceinline__ void multiplyKeys(Scores<V>& scores, const bf16* queries, const bf16* keys, int lane) {
#pragma unroll
  for (int band = 0; band < V::BANDS; band++)
#pragma unroll
    for (int n = 0; n < V::KEYS / 8; n++)
#pragma unroll
      for (int e = 0; e < 4; e++) scores[band][n][e] = 0;
#pragma unroll
  for (int k = 0; k < V::HEAD_DIM / 16; k++) {
    uint32_t a[V::BANDS][4];
#pragma unroll
    for (int band = 0; band < V::BANDS; band++) loadMatrices(a[band], queries + downFirst<V::HEAD_DIM>(band, k, lane));
#pragma unroll
    for (int n = 0; n < V::KEYS / 16; n++) {
      uint32_t b[4];
      loadMatrices(b, keys + acrossFirst<V::HEAD_DIM>(n, k, lane));
#pragma unroll
      for (int band = 0; band < V::BANDS; band++) {
        multiplyAdd(scores[band][2 * n], a[band], {b[0], b[1]});
        multiplyAdd(scores[band][2 * n + 1], a[band], {b[2], b[3]});
      }
    }
  }
}

// Scores of keys that a row does not see become -Infinity. The warp's keys begin at `firstKey` of the sequence, a multiple of 16; `inputs`, in shared
// memory, are those of its rows.
template <typename V>
__device__ __forceinline__ void hideKeys(Scores<V>& scores, const AttentionItem& item, const Arguments& a, const int* inputs, int firstKey, int lane) {
#pragma unroll
  for (int band = 0; band < V::BANDS; band++) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int input = inputs[16 * band + 8 * half + lane / 4];
#pragma unroll
      for (int word = 0; word < (V::KEYS + 31) / 32; word++) {
        const uint32_t bits = visibleKeys(item, a.tables.mask, input, firstKey / 32 + word) >> (firstKey % 32 + lane % 4 * 2);
#pragma unroll
        for (int n = 0; n < V::KEYS / 8 && n < 4; n++) {
          if (!(bits >> (8 * n) & 1)) scores[band][4 * word + n][2 * half] = -INFINITY;
          if (!(bits >> (8 * n + 1) & 1)) scores[band][4 * word + n][2 * half + 1] = -INFINITY;
        }
      }
    }
  }
}

// Turns scores into powers and what was summed up so far to the new maximum.
template <typename V>
__device__ __forceinline__ void takeMaxima(Scores<V>& scores, WarpRows<V>& rows, float scale) {
  float earlier[V::BANDS][2];
  bool grown = false;
#pragma unroll
  for (int band = 0; band < V::BANDS; band++) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float largest = rows.largest[band][half];
#pragma unroll
      for (int n = 0; n < V::KEYS / 8; n++) largest = fmaxf(largest, fmaxf(scores[band][n][2 * half], scores[band][n][2 * half + 1]));
      largest = fmaxf(largest, __shfl_xor_sync(ALL_LANES, largest, 1));
      largest = fmaxf(largest, __shfl_xor_sync(ALL_LANES, largest, 2));
      grown |= largest > rows.largest[band][half];
      const float base = largest == -INFINITY ? 0 : largest * scale;
      // Exactly 1 where nothing grew: a fused product and difference would leave the rounding of `base`, the same way in every tile.
      earlier[band][half] = largest == rows.largest[band][half] ? 1.0f : exp2Approx(rows.largest[band][half] * scale - base);
      rows.largest[band][half] = largest;
      float total = rows.total[band][half] * earlier[band][half];
#pragma unroll
      for (int n = 0; n < V::KEYS / 8; n++) {
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; e++) {
          scores[band][n][e] = exp2Approx(scores[band][n][e] * scale - base);
          total += scores[band][n][e];
        }
      }
      rows.total[band][half] = total;
    }
  }
  // After the first tiles maxima seldom grow.
  if (!__any_sync(ALL_LANES, grown)) return;
#pragma unroll
  for (int band = 0; band < V::BANDS; band++)
#pragma unroll
    for (int n = 0; n < V::HEAD_DIM / 8; n++)
#pragma unroll
      for (int e = 0; e < 4; e++) rows.sum[band][n][e] *= earlier[band][e / 2];
}

// sum += powers · values
template <typename V>
__device__ __forceinline__ void multiplyValues(WarpRows<V>& rows, const Scores<V>& powers, const bf16* values, int lane) {
#pragma unroll
  for (int k = 0; k < V::KEYS / 16; k++) {
    uint32_t a[V::BANDS][4];
#pragma unroll
    for (int band = 0; band < V::BANDS; band++) {
#pragma unroll
      for (int i = 0; i < 4; i++) a[band][i] = packed(powers[band][2 * k + i / 2][i % 2 * 2], powers[band][2 * k + i / 2][i % 2 * 2 + 1]);
    }
#pragma unroll
    for (int n = 0; n < V::HEAD_DIM / 16; n++) {
      uint32_t b[4];
      loadMatricesTransposed(b, values + downFirst<V::HEAD_DIM>(k, n, lane));
#pragma unroll
      for (int band = 0; band < V::BANDS; band++) {
        multiplyAdd(rows.sum[band][2 * n], a[band], {b[0], b[1]});
        multiplyAdd(rows.sum[band][2 * n + 1], a[band], {b[2], b[3]});
      }
    }
  }
}

// Pair n of a lane's outputs in one row, and its first column. Codes come out of a transposed load by twos: the lane has four columns of 16, its even ones in
// one fragment, its odd ones in the next.
template <typename V>
__device__ __forceinline__ float2 outputPair(const WarpRows<V>& rows, int band, int half, int n) {
  const auto& sum = rows.sum[band];
  if constexpr (V::NARROW) return make_float2(sum[n / 2 * 2][2 * half + n % 2], sum[n / 2 * 2 + 1][2 * half + n % 2]);
  else return make_float2(sum[n][2 * half], sum[n][2 * half + 1]);
}
template <typename V>
__device__ __forceinline__ int outputColumn(int n, int lane) {
  if constexpr (V::NARROW) return n / 2 * 16 + lane % 4 * 4 + n % 2 * 2;
  else return 8 * n + lane % 4 * 2;
}

// Each lane had the total of its own columns.
template <typename V>
__device__ __forceinline__ void joinTotals(WarpRows<V>& rows) {
#pragma unroll
  for (int band = 0; band < V::BANDS; band++) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float& total = rows.total[band][half];
      total += __shfl_xor_sync(ALL_LANES, total, 1);
      total += __shfl_xor_sync(ALL_LANES, total, 2);
    }
  }
}

}  // namespace pie::attention
