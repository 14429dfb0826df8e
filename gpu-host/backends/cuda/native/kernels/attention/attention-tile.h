// One warp's share of a tile of keys: scores, online softmax, weighted values (FlashAttention-2: Dao, 2023, algorithm 1). Device code.
#pragma once
#include "../../device/copy.h"
#include "../../device/mma.h"
#include "attention-fast.h"

namespace pie::attention {

constexpr int TILE = ATTENTION_TILE;
constexpr int WARPS = THREADS / 32;

// Offset of a 16-byte piece of a row in shared memory. XOR with the row number puts the same piece of eight consecutive rows into different banks,
// because ldmatrix reads those eight together.
template <int HEAD_DIM>
__device__ __forceinline__ int swizzled(int row, int piece) {
  return row * HEAD_DIM + ((piece ^ (row & 7)) * 8);
}

// Offset of the 8 values whose address a lane passes to ldmatrix: row `row`, piece `part` (0 or 1) of the 16 columns from 16 × `columns` on.
// `columns` is a compile-time constant, so its contribution reduces to two bits and an immediate offset.
template <int HEAD_DIM>
__device__ __forceinline__ int piecePlace(int row, int part, int columns) {
  return row * HEAD_DIM + ((((part ^ row) & 7) ^ columns % 4 * 2) * 8) + columns / 4 * 64;
}
// The two functions order the four 8×8 matrices of one ldmatrix as the operand's registers require. downFirst: rows 0–7, rows 8–15, then columns 8–15
// of both (queries, and values, which are loaded transposed). acrossFirst: rows 0–7, their columns 8–15, then rows 8–15 (keys).
template <int HEAD_DIM>
__device__ __forceinline__ int downFirst(int rows, int columns, int lane) {
  return rows * 16 * HEAD_DIM + piecePlace<HEAD_DIM>(lane % 16, lane / 16, columns);
}
template <int HEAD_DIM>
__device__ __forceinline__ int acrossFirst(int rows, int columns, int lane) {
  return rows * 16 * HEAD_DIM + piecePlace<HEAD_DIM>(lane % 8 + lane / 16 * 8, lane / 8 % 2, columns);
}

// How the warps of a block divide an item. FEW: every warp has all rows and a quarter of each tile's keys. Otherwise every warp has a quarter of the
// rows and all keys. A warp has 16 × BANDS rows; with two bands each operand of keys or values that is read from shared memory feeds two products.
// Otherwise shared-memory bandwidth would be the limit.
template <typename K, int HEAD_DIM_, int BANDS_, bool FEW_>
struct Variant {
  using Kv = K;
  static constexpr bool NARROW = sizeof(K) == 1;
  static constexpr int HEAD_DIM = HEAD_DIM_, BANDS = BANDS_;
  static constexpr bool FEW = FEW_;
  static constexpr int WARP_ROWS = 16 * BANDS;
  static constexpr int ROWS = FEW ? WARP_ROWS : WARPS * WARP_ROWS;
  static constexpr int KEYS = FEW ? TILE / WARPS : TILE;  // Keys of a tile per warp.
  static constexpr int STAGES = fastStages(HEAD_DIM, FEW) * (NARROW ? 2 : 1);
  // Size of one stage in bf16 units: the keys, then the values of one tile. For float8: the codes of both, then two scales per key.
  static constexpr int STAGE = NARROW ? TILE * HEAD_DIM + 2 * TILE : 2 * TILE * HEAD_DIM;
  static constexpr int SHARED = ROWS * HEAD_DIM + STAGES * STAGE;  // In bf16 units; the input index of each row follows.
  static constexpr size_t BYTES = SHARED * sizeof(bf16) + ROWS * sizeof(int);
  static_assert(BYTES <= SHARED_BYTES && ROWS <= fastRows(FEW));
};

// A warp's running state per row, as mma fragments: a lane has columns lane % 4 × 2 and lane % 4 × 2 + 1 in rows lane / 4 and lane / 4 + 8 of each
// band (other columns for float8: see outputColumn).
template <typename V>
struct WarpRows {
  float sum[V::BANDS][V::HEAD_DIM / 8][4];
  float largest[V::BANDS][2];  // Before scaling.
  float total[V::BANDS][2];    // Over this lane's columns only.
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

// Sets the scores of hidden keys to -Infinity. The warp's keys begin at `firstKey` of the sequence, a multiple of 16; `inputs`, in shared memory,
// holds the input index of each of the warp's rows.
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

// Updates the running maxima, turns scores into powers of two relative to them, and rescales the running sums.
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
      // Exactly 1 where the maximum did not change: a fused multiply-subtract would leave the rounding error of `base`, with the same sign in every
      // tile.
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
  // After the first tiles the maxima seldom change, so the rescaling is usually skipped.
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

// Pair n of a lane's outputs in one row, and the pair's first column. A transposed ldmatrix moves codes in pairs, so for float8 a lane has four
// columns of each 16: the even ones in one fragment, the odd ones in the next.
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

// Adds the lanes' totals: until now each lane summed only its own columns.
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
