// What attention-tile.h does with keys and values, of float8: codes stay what they are up to registers, where tensor cores get them as float16. Every code is
// a float16, and so is every value times its scale; keys' scales go to the scores. Device code.
#pragma once
#include "../device/float8.h"
#include "attention-tile.h"

namespace pie::attention {

// How rows of codes are turned in shared memory: see `swizzled`. Two rows of 64 share 128 bytes.
template <int HEAD_DIM>
__device__ __forceinline__ int codeTurn(int row) {
  return HEAD_DIM == 64 ? row / 2 & 3 : row & 7;
}
template <int HEAD_DIM>
__device__ __forceinline__ int codePlace(int row, int piece) {
  return row * HEAD_DIM + (piece ^ codeTurn<HEAD_DIM>(row)) * 16;
}

// Of a stage's codes, its scales from key `warpKey` on: keys' in the lower halves, values' in the upper. `keys`: the codes of that key.
template <typename V>
__device__ __forceinline__ const uint32_t* scalesIn(const float8* keys, int warpKey) {
  return reinterpret_cast<const uint32_t*>(keys + (2 * TILE - warpKey) * V::HEAD_DIM) + warpKey;
}
template <typename V>
__device__ __forceinline__ uint32_t* scalesIn(float8* codes) {
  return reinterpret_cast<uint32_t*>(codes + 2 * TILE * V::HEAD_DIM);
}

// The lane, as if it were another for each tile: what follows from it and is cheap is found anew, where registers to keep it are scarce.
__device__ __forceinline__ int foundAnew(int lane) {
#ifdef __CUDACC__
  asm volatile("" : "+r"(lane));
#endif
  return lane;
}

// scores = queries · codesᵀ. A register has four neighbouring codes of a key: they are columns 2t, 2t + 1, 2t + 8 and 2t + 9 of the product, t the lane's
// place among four, and queries lie in that order, too.
template <typename V>
__device__ __forceinline__ void multiplyKeys8(Scores<V>& scores, const bf16* queries, const float8* keys, int lane) {
  // One load brings pieces of 16 codes of blocks of 8 keys: as many pieces as there are not blocks enough.
  constexpr int PIECES = V::KEYS >= 32 ? 1 : 2, BLOCKS = 4 / PIECES;
#pragma unroll
  for (int band = 0; band < V::BANDS; band++)
#pragma unroll
    for (int n = 0; n < V::KEYS / 8; n++)
#pragma unroll
      for (int e = 0; e < 4; e++) scores[band][n][e] = 0;
  lane = foundAnew(lane);
  const int row = lane / 8 / PIECES * 8 + lane % 8, turned = lane / 8 % PIECES ^ codeTurn<V::HEAD_DIM>(row);
#pragma unroll 4
  for (int k = 0; k < V::HEAD_DIM / 16; k += PIECES) {
    uint32_t a[PIECES][V::BANDS][4];
#pragma unroll
    for (int piece = 0; piece < PIECES; piece++)
#pragma unroll
      for (int band = 0; band < V::BANDS; band++) loadMatrices(a[piece][band], queries + downFirst<V::HEAD_DIM>(band, k + piece, lane));
#pragma unroll
    for (int n = 0; n < V::KEYS / 8; n += BLOCKS) {
      uint32_t codes[4];
      loadMatrices(codes, keys + (row + 8 * n) * V::HEAD_DIM + (turned ^ k) * 16);
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const uint32_t b[2] = {lowHalves(codes[i]), highHalves(codes[i])};
#pragma unroll
        for (int band = 0; band < V::BANDS; band++) multiplyAddHalves(scores[band][n + i / PIECES], a[i % PIECES][band], b);
      }
    }
  }
}

// `scales`: of this warp's keys.
template <typename V>
__device__ __forceinline__ void scaleScores(Scores<V>& scores, const uint32_t* scales, int lane) {
#pragma unroll
  for (int n = 0; n < V::KEYS / 8; n++) {
    const uint2 two = *reinterpret_cast<const uint2*>(scales + 8 * n + lane % 4 * 2);
    const float scale[2] = {fromHalf(static_cast<uint16_t>(two.x)), fromHalf(static_cast<uint16_t>(two.y))};
#pragma unroll
    for (int band = 0; band < V::BANDS; band++)
#pragma unroll
      for (int e = 0; e < 4; e++) scores[band][n][e] *= scale[e % 2];
  }
}

// sum += powers · values, values being codes times their keys' scales. A transposed load brings codes by twos: for two keys each, an even and an odd column,
// which go to products of their own (outputColumn).
template <typename V>
__device__ __forceinline__ void multiplyValues8(WarpRows<V>& rows, const Scores<V>& powers, const float8* values, const uint32_t* scales, int lane) {
  lane = foundAnew(lane);
  const int row = lane % 16, turned = lane / 16 ^ codeTurn<V::HEAD_DIM>(row);
#pragma unroll
  for (int k = 0; k < V::KEYS / 16; k++) {
    uint32_t a[V::BANDS][4];
#pragma unroll
    for (int band = 0; band < V::BANDS; band++) {
#pragma unroll
      for (int i = 0; i < 4; i++) a[band][i] = packedHalves(powers[band][2 * k + i / 2][i % 2 * 2], powers[band][2 * k + i / 2][i % 2 * 2 + 1]);
    }
    uint32_t scale[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const uint2 two = *reinterpret_cast<const uint2*>(scales + 16 * k + 8 * half + lane % 4 * 2);
      scale[half] = __byte_perm(two.x, two.y, 0x7632);
    }
#pragma unroll
    for (int n = 0; n < V::HEAD_DIM / 16; n += 2) {
      uint32_t codes[4];
      loadMatricesTransposed(codes, values + (row + 16 * k) * V::HEAD_DIM + (turned ^ n) * 16);
#pragma unroll
      for (int piece = 0; piece < 2; piece++) {
        // Column by column: two keys' codes of the even one, then of the odd one.
        const uint32_t first = __byte_perm(codes[2 * piece], 0, 0x3120), second = __byte_perm(codes[2 * piece + 1], 0, 0x3120);
        const uint32_t even[2] = {multiplyHalves(lowHalves(first), scale[0]), multiplyHalves(lowHalves(second), scale[1])};
        const uint32_t odd[2] = {multiplyHalves(highHalves(first), scale[0]), multiplyHalves(highHalves(second), scale[1])};
#pragma unroll
        for (int band = 0; band < V::BANDS; band++) {
          multiplyAddHalves(rows.sum[band][2 * (n + piece)], a[band], even);
          multiplyAddHalves(rows.sum[band][2 * (n + piece) + 1], a[band], odd);
        }
      }
    }
  }
}

}  // namespace pie::attention
