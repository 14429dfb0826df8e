// The products of attention-tile.h for float8 keys and values. Codes stay float8 up to the registers, where they are converted to float16 for the
// tensor cores. Every code is exactly representable in float16, and so is every value times its scale; the keys' scales are applied to the scores.
// Device code.
#pragma once
#include "../../device/float8.h"
#include "attention-tile.h"

namespace pie::attention {

// The swizzle of rows of codes in shared memory (see `swizzled`). Two rows of headDim 64 share 128 bytes.
template <int HEAD_DIM>
__device__ __forceinline__ int codeTurn(int row) {
  return HEAD_DIM == 64 ? row / 2 & 3 : row & 7;
}
template <int HEAD_DIM>
__device__ __forceinline__ int codePlace(int row, int piece) {
  return row * HEAD_DIM + (piece ^ codeTurn<HEAD_DIM>(row)) * 16;
}

// Address of a stage's scales from key `warpKey` on, given `keys`, the address of that key's codes. The lower half of each word is the key's scale,
// the upper half the value's.
template <typename V>
__device__ __forceinline__ const uint32_t* scalesIn(const float8* keys, int warpKey) {
  return reinterpret_cast<const uint32_t*>(keys + (2 * TILE - warpKey) * V::HEAD_DIM) + warpKey;
}
template <typename V>
__device__ __forceinline__ uint32_t* scalesIn(float8* codes) {
  return reinterpret_cast<uint32_t*>(codes + 2 * TILE * V::HEAD_DIM);
}

// Hides from the compiler that the lane number is loop-invariant, so that cheap values derived from it are recomputed per tile instead of occupying
// registers.
__device__ __forceinline__ int foundAnew(int lane) {
#ifdef __CUDACC__
  asm volatile("" : "+r"(lane));
#endif
  return lane;
}

// scores = queries · codesᵀ. A register holds four consecutive codes of a key. With t the lane's index among four lanes, they serve as columns 2t, 2t
// + 1, 2t + 8 and 2t + 9 of the product; loadHalfQueries stores the queries in the same order.
template <typename V>
__device__ __forceinline__ void multiplyKeys8(Scores<V>& scores, const bf16* queries, const float8* keys, int lane) {
  // One ldmatrix loads four 8×16 matrices of codes: four blocks of 8 keys, or two blocks × two pieces of 16 codes where a warp has only 16 keys.
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

// Multiplies each score by the scale of its key. `scales`: the scales of this warp's keys.
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

// sum += powers · values, where a value is its code times its key's scale. A transposed ldmatrix moves codes in pairs, so a register has an even and
// an odd column for each of two keys; the two columns go to separate products (see outputColumn).
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
        // Reorders the register's bytes by column: the two keys' codes of the even column, then of the odd one.
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
