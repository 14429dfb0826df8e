// bfloat16: the upper half of a float. The names are those of cuda_bf16.h.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include "vectors.h"

struct __nv_bfloat16 {
  unsigned short bits;

  __nv_bfloat16() = default;
  __nv_bfloat16(float value) : bits(rounded(value)) {}
  __nv_bfloat16(double value) : bits(rounded(static_cast<float>(value))) {}
  __nv_bfloat16(int value) : bits(rounded(static_cast<float>(value))) {}
  __nv_bfloat16(unsigned value) : bits(rounded(static_cast<float>(value))) {}
  operator float() const {
    const uint32_t wide = static_cast<uint32_t>(bits) << 16;
    float value;
    std::memcpy(&value, &wide, 4);
    return value;
  }

 private:
  // Rounds to nearest, ties to even; every NaN becomes the hardware's canonical NaN.
  static unsigned short rounded(float value) {
    uint32_t wide;
    std::memcpy(&wide, &value, 4);
    if ((wide & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
    return static_cast<unsigned short>((wide + 0x7fffu + ((wide >> 16) & 1u)) >> 16);
  }
};

struct alignas(4) __nv_bfloat162 {
  __nv_bfloat16 x, y;
  __nv_bfloat162() = default;
  __nv_bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) : x(x), y(y) {}
};

inline __nv_bfloat16 __float2bfloat16(float value) { return __nv_bfloat16(value); }
inline __nv_bfloat16 __double2bfloat16(double value) { return __nv_bfloat16(value); }
inline float __bfloat162float(__nv_bfloat16 value) { return static_cast<float>(value); }
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 value) { return value.bits; }
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) { return {__nv_bfloat16(x), __nv_bfloat16(y)}; }
inline __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 value) { return {value, value}; }

inline __nv_bfloat16 __hsub(__nv_bfloat16 a, __nv_bfloat16 b) { return static_cast<float>(a) - static_cast<float>(b); }
inline __nv_bfloat16 __hmul(__nv_bfloat16 a, __nv_bfloat16 b) { return static_cast<float>(a) * static_cast<float>(b); }
inline __nv_bfloat162 __hsub2(__nv_bfloat162 a, __nv_bfloat162 b) { return {__hsub(a.x, b.x), __hsub(a.y, b.y)}; }
inline __nv_bfloat162 __hmul2(__nv_bfloat162 a, __nv_bfloat162 b) { return {__hmul(a.x, b.x), __hmul(a.y, b.y)}; }
