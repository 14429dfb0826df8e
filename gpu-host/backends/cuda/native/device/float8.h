// Conversions between float, float8 (e4m3: four exponent bits, three fraction bits, largest 448; Micikevicius et al., 2022) and float16, which is
// represented by its bits. Every float8 is exact in float16, and so is its product with any power of two from 2^-15 to 2^7.
#pragma once
#include <cstdint>
#include "capability.h"
#include "device.h"
#if defined(__CUDACC__) && PIE_CAPABILITY < 89
#include <cuda_fp8.h>
#endif

namespace pie {

constexpr float FLOAT8_MOST = 448;

// The code of a float, rounded to nearest even; larger magnitudes saturate at FLOAT8_MOST. NaN stays NaN.
__device__ __forceinline__ uint8_t float8Of(float value) {
#if defined(__CUDA_ARCH__) && PIE_CAPABILITY < 89
  // Cards before capability 8.9 have no instruction for this conversion.
  return __nv_cvt_float_to_fp8(value, __NV_SATFINITE, __NV_E4M3);
#elif defined(__CUDA_ARCH__)
  uint16_t two;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(two) : "f"(0.0f), "f"(value));
  return static_cast<uint8_t>(two);
#else
  const uint8_t sign = std::signbit(value) ? 0x80 : 0;
  if (std::isnan(value)) return sign | 0x7f;
  const float size = std::fabs(value);
  if (size >= FLOAT8_MOST) return sign | 0x7e;
  int exponent = size == 0 ? -6 : std::ilogb(size);
  if (exponent < -6) exponent = -6;  // Subnormals have the step size of the smallest normals.
  const int steps = static_cast<int>(std::nearbyint(std::ldexp(size, 3 - exponent)));
  // The hidden bit is 8 of the steps and raises the exponent field by one; 16 steps (rounded up) raise it by two.
  return sign | static_cast<uint8_t>((exponent + 6) * 8 + steps);
#endif
}

// The codes of two floats, that of `low` in the lower byte.
__device__ __forceinline__ uint32_t float8Pair(float low, float high) {
#if defined(__CUDA_ARCH__) && PIE_CAPABILITY >= 89
  uint16_t two;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(two) : "f"(high), "f"(low));
  return two;
#else
  return float8Of(low) | static_cast<uint32_t>(float8Of(high)) << 8;
#endif
}

// The value of a code, exactly.
__device__ __forceinline__ float fromFloat8(uint8_t code) {
#if defined(__CUDA_ARCH__) && PIE_CAPABILITY >= 89
  uint32_t two;
  float value;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(two) : "h"(static_cast<uint16_t>(code)));
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(static_cast<uint16_t>(two)));
  return value;
#else
  const uint32_t size = code & 0x7fu;
  const uint32_t sign = (code & 0x80u) << 24;
  if (size == 0x7f) return __uint_as_float(sign | 0x7fc00000u);
  // Moves the fields to their places in a float and corrects the exponent bias. A subnormal code is a subnormal float in between.
  return __uint_as_float(sign | size << 20) * 0x1p120f;
#endif
}

// The bits of a float16, rounded to nearest even.
__device__ __forceinline__ uint16_t halfOf(float value) {
#ifdef __CUDACC__
  uint16_t bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
#else
  return emulation::halfOf(value);
#endif
}
__device__ __forceinline__ float fromHalf(uint16_t bits) {
#ifdef __CUDACC__
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
#else
  return emulation::fromHalf(bits);
#endif
}

// Two float16 in one register, `low` in the lower half, as mma operands require.
__device__ __forceinline__ uint32_t packedHalves(float low, float high) {
#ifdef __CUDACC__
  uint32_t bits;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
  return bits;
#else
  return emulation::halfOf(low) | static_cast<uint32_t>(emulation::halfOf(high)) << 16;
#endif
}
// The float16 values of two codes, exactly: lowHalves converts the lower half of `codes`, highHalves the upper half.
__device__ __forceinline__ uint32_t lowHalves(uint32_t codes) {
#if defined(__CUDA_ARCH__) && PIE_CAPABILITY >= 89
  uint32_t bits;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(bits) : "h"(static_cast<uint16_t>(codes)));
  return bits;
#else
  return packedHalves(fromFloat8(static_cast<uint8_t>(codes)), fromFloat8(static_cast<uint8_t>(codes >> 8)));
#endif
}
__device__ __forceinline__ uint32_t highHalves(uint32_t codes) { return lowHalves(codes >> 16); }

// Multiplies both halves, rounded to nearest even.
__device__ __forceinline__ uint32_t multiplyHalves(uint32_t a, uint32_t b) {
#ifdef __CUDACC__
  uint32_t product;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
  return product;
#else
  const auto of = [](uint32_t pair) { return emulation::fromHalf(static_cast<uint16_t>(pair)); };
  return packedHalves(of(a) * of(b), of(a >> 16) * of(b >> 16));
#endif
}

}  // namespace pie
