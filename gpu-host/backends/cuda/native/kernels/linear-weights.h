// How W may lie in memory, and how its values become operands of mma.
#pragma once
#include "types.h"

namespace pie {

// As 8-bit integers, the inputs of each sixteen stand in the order 0 1 8 9, 2 3 10 11, 4 5 12 13, 6 7 14 15: four neighbouring bytes are what one lane wants
// for one product of sixteen inputs.
__host__ __device__ constexpr int int8Place(int input) { return (input & ~15) | (input & 6) << 1 | (input & 8) >> 2 | (input & 1); }

// Values in 16 bytes.
template <typename W>
constexpr int WEIGHTS_PER_LOAD = 16 / sizeof(W);

// Two 8-bit integers (the low bytes of each half) as two bf16, exactly: 128 + the lower seven bits, less 128 or, for negative ones, 256.
__device__ __forceinline__ uint32_t int8Pair(uint32_t bytes) {
  const uint32_t high = (bytes & 0x007f007fu) | 0x43004300u, less = (bytes & 0x00800080u) | 0x43004300u;
  __nv_bfloat162 a, b;
  memcpy(&a, &high, 4);
  memcpy(&b, &less, 4);
  const __nv_bfloat162 difference = __hsub2(a, b);
  uint32_t pair;
  memcpy(&pair, &difference, 4);
  return pair;
}

// Four bytes as the two registers of an operand.
__device__ __forceinline__ void widenInt8(uint32_t (&operand)[2], uint32_t bytes) {
  operand[0] = int8Pair(__byte_perm(bytes, 0, 0x4140));
  operand[1] = int8Pair(__byte_perm(bytes, 0, 0x4342));
}

// What a lane has loaded of one line of W, as operands of mma: operand i goes with the words xWord(i, 0) and xWord(i, 1) of the same inputs of x.
template <typename W>
struct LoadedWeights {
  static constexpr int OPERANDS = WEIGHTS_PER_LOAD<W> / 4;
  __device__ __forceinline__ static constexpr int xWord(int operand, int half) {
    return sizeof(W) == 2 ? operand * 2 + half : operand + half * 4;
  }
  __device__ __forceinline__ static void operand(uint32_t (&to)[2], const uint4& loaded, int i) {
    const uint32_t words[4] = {loaded.x, loaded.y, loaded.z, loaded.w};
    if constexpr (sizeof(W) == 2) {
      to[0] = words[2 * i], to[1] = words[2 * i + 1];
    } else {
      widenInt8(to, words[i]);
    }
  }
};

}  // namespace pie
