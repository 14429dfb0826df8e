// Storage layouts of W, and the conversion of weights to mma operands.
#pragma once
#include "../../device/float8.h"
#include "../types.h"

namespace pie {

// Storage types of W besides bf16 and int8_t. The bits of a Float8 code are not contiguous; see float8Bits.
struct Float8 {
  uint8_t bits;
};
struct Int4 {
  uint8_t two;
};

template <typename W>
constexpr int WEIGHT_BITS = 8 * sizeof(W);
template <>
inline constexpr int WEIGHT_BITS<Int4> = 4;

// Values in 16 bytes.
template <typename W>
constexpr int WEIGHTS_PER_LOAD = 128 / WEIGHT_BITS<W>;

// Pointer to the value with index `values`.
template <typename W>
__host__ __device__ constexpr const W* weightsFrom(const W* weight, size_t values) {
  return weight + (WEIGHT_BITS<W> == 4 ? values / 2 : values);
}

// W as the kernels receive it.
template <typename W>
struct LinearLines {
  const W* values;
};
template <>
struct LinearLines<Int4> {
  const Int4* values;
  const bf16* scales;    // scales[group × stride + output]
  int stride;
  int shift;             // log₂ of the inputs per group.
};

// 8 bits: the inputs of each sixteen are stored in the order 0 1 8 9, 2 3 10 11, 4 5 12 13, 6 7 14 15, so that four adjacent bytes are one lane's
// operand for a product over sixteen inputs.
__host__ __device__ constexpr int bytePlace(int input) { return (input & ~15) | (input & 6) << 1 | (input & 8) >> 2 | (input & 1); }
__host__ __device__ constexpr int inputOfPlace(int place) { return (place & ~15) | (place & 12) >> 1 | (place & 2) << 2 | (place & 1); }

// Float8: the codes of places 0 and 2 share the lower half of four bytes, those of 1 and 3 the upper half. The first code of a half has its sign at
// bit 15 and its other seven bits at 10 to 4, as a bf16 with the same fields has them. The second code takes the remaining bits: its sign at 11, the
// upper three bits at 14 to 12, the lower four at 3 to 0. One operation extracts the first pair, four operations the second.
__host__ __device__ constexpr uint32_t float8Bits(uint8_t code, int place) {
  const uint32_t c = code, half = place < 2 ? (c & 0x80u) << 8 | (c & 0x7fu) << 4 : (c & 0x80u) << 4 | (c & 0x70u) << 8 | (c & 0x0fu);
  return half << (place & 1) * 16;
}
__host__ __device__ constexpr uint8_t float8Code(uint32_t word, int place) {
  const uint32_t half = word >> (place & 1) * 16;
  return static_cast<uint8_t>(place < 2 ? (half >> 8 & 0x80u) | (half >> 4 & 0x7fu) : (half >> 4 & 0x80u) | (half >> 8 & 0x70u) | (half & 0x0fu));
}

// Int4: of each 32 inputs, four bytes hold one lane's operands for two products over sixteen inputs. A code is its value plus 8.
__host__ __device__ constexpr int int4Word(int input) { return input / 32 * 4 + (input >> 1 & 3); }
__host__ __device__ constexpr int int4Shift(int input) { return (input & 24) / 8 * 4 + (input & 1) * 16; }

// The stored value of input k of a line, without its scale.
__device__ __forceinline__ float weightAt(const int8_t* line, int k) { return line[bytePlace(k)]; }
__device__ __forceinline__ float weightAt(const Float8* line, int k) {
  const int place = bytePlace(k);
  return fromFloat8(float8Code(reinterpret_cast<const uint32_t*>(line)[place / 4], place % 4));
}
__device__ __forceinline__ float weightAt(const Int4* line, int k) {
  return static_cast<float>(static_cast<int>(reinterpret_cast<const uint32_t*>(line)[int4Word(k)] >> int4Shift(k) & 15) - 8);
}

__device__ __forceinline__ __nv_bfloat162 bf16Pair(uint32_t bits) {
  __nv_bfloat162 pair;
  memcpy(&pair, &bits, 4);
  return pair;
}
__device__ __forceinline__ uint32_t bitsOf(__nv_bfloat162 pair) {
  uint32_t bits;
  memcpy(&bits, &pair, 4);
  return bits;
}

// (value & MASK) | bits in one instruction. For two constant operands the compiler would emit two instructions.
template <uint32_t MASK>
__device__ __forceinline__ uint32_t maskedOr(uint32_t value, uint32_t bits) {
#ifdef __CUDA_ARCH__
  uint32_t result;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(result) : "r"(value), "n"(MASK), "r"(bits));
  return result;
#else
  return (value & MASK) | bits;
#endif
}

// Converts two 8-bit integers (the low byte of each half) to two bf16, exactly. It computes 128 + the lower seven bits, and subtracts 128, or 256 for
// a negative integer. The mask is an immediate operand, because the vector kernels have no register left for a second constant.
__device__ __forceinline__ uint32_t int8Pair(uint32_t bytes) {
  return bitsOf(__hsub2(bf16Pair(maskedOr<0x007f007fu>(bytes, 0x43004300u)), bf16Pair((bytes & 0x00800080u) | 0x43004300u)));
}

// Converts four bytes to the two registers of an operand.
__device__ __forceinline__ void widenWord(uint32_t (&operand)[2], uint32_t word, int8_t) {
  operand[0] = int8Pair(__byte_perm(word, 0, 0x4140));
  operand[1] = int8Pair(__byte_perm(word, 0, 0x4342));
}
// The fields of a code already stand where bf16 has them; a factor of 2¹²⁰ corrects for the difference of the exponent biases. Subnormal codes are
// subnormal bf16, which the multiplication handles.
__device__ __forceinline__ void widenWord(uint32_t (&operand)[2], uint32_t word, Float8) {
  const __nv_bfloat162 bias = bf16Pair(0x7b807b80u);
  operand[0] = bitsOf(__hmul2(bf16Pair(word & 0x87f087f0u), bias));
  operand[1] = bitsOf(__hmul2(bf16Pair(maskedOr<0x80f080f0u>(word << 4, word >> 4 & 0x07000700u)), bias));
}
// Converts four of eight codes: those of the product over sixteen inputs with number `slice` (0 or 1). It computes 128 + code, minus 136.
__device__ __forceinline__ void widenInt4(uint32_t (&operand)[2], uint32_t word, int slice) {
#pragma unroll
  for (int i = 0; i < 2; i++)
    operand[i] = bitsOf(__hsub2(bf16Pair(maskedOr<0x000f000fu>(word >> (slice * 8 + i * 4), 0x43004300u)), bf16Pair(0x43084308u)));
}

// A lane's 16 bytes of one line of W as mma operands: operand i is multiplied with the words xWord(i, 0) and xWord(i, 1) of the same inputs of x.
// Int4 operands are not scaled yet.
template <typename W>
struct LoadedWeights {
  static constexpr int OPERANDS = WEIGHTS_PER_LOAD<W> / 4;
  __device__ __forceinline__ static constexpr int xWord(int operand, int half) {
    return WEIGHT_BITS<W> == 16 ? operand * 2 + half : operand / 4 * 8 + operand % 4 + half * 4;
  }
  __device__ __forceinline__ static void operand(uint32_t (&to)[2], const uint4& loaded, int i) {
    const uint32_t words[4] = {loaded.x, loaded.y, loaded.z, loaded.w};
    if constexpr (WEIGHT_BITS<W> == 16) {
      to[0] = words[2 * i], to[1] = words[2 * i + 1];
    } else if constexpr (WEIGHT_BITS<W> == 8) {
      widenWord(to, words[i], W{});
    } else {
      widenInt4(to, words[i % 4], i / 4);
    }
  }
};

// The group scale of `input` for Int4; other formats have no group scales.
__device__ __forceinline__ bf16 groupScale(const LinearLines<Int4>& lines, int output, unsigned input) {
  return lines.scales[static_cast<size_t>(input >> lines.shift) * lines.stride + output];
}
template <typename W>
__device__ __forceinline__ bf16 groupScale(const LinearLines<W>&, int, unsigned) {
  return bf16(1.0f);
}
// Multiplies an Int4 operand by its scale, which both halves of `both` hold. The product is exact, because a scale has few significant bits.
template <typename W>
__device__ __forceinline__ void scaleOperand(uint32_t (&operand)[2], __nv_bfloat162 both) {
  if constexpr (WEIGHT_BITS<W> == 4) {
    operand[0] = bitsOf(__hmul2(bf16Pair(operand[0]), both));
    operand[1] = bitsOf(__hmul2(bf16Pair(operand[1]), both));
  }
}

}  // namespace pie
