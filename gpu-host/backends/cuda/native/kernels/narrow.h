// Float8 (e4m3: four bits of exponent, three of fraction, largest 448; Micikevicius et al., 2022) with one scale per row: for weights and keys that are kept
// at half the bytes of bf16.
#pragma once
#include "types.h"

namespace pie {

constexpr float FLOAT8_MOST = 448;

// values[r][i] ≈ codes[r][i] × scales[r]; a row's largest value takes the largest code. An error is at most 1/16 of the value, or 1/2^10 of the scale
// where that is more. NaN stays NaN; infinities become the largest finite code.
template <typename T>
void launchToFloat8(uint8_t* codes, float* scales, const T* values, int rows, int width, cudaStream_t stream);

template <typename T>
void launchFromFloat8(T* values, const uint8_t* codes, const float* scales, int rows, int width, cudaStream_t stream);

// The code of a float, rounded to nearest even; past the largest, the largest.
__device__ __forceinline__ uint8_t float8Of(float value) {
#ifdef __CUDA_ARCH__
  uint16_t two;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(two) : "f"(0.0f), "f"(value));
  return static_cast<uint8_t>(two);
#else
  const uint8_t sign = std::signbit(value) ? 0x80 : 0;
  if (std::isnan(value)) return sign | 0x7f;
  const float size = std::fabs(value);
  if (size >= FLOAT8_MOST) return sign | 0x7e;
  int exponent = size == 0 ? -6 : std::ilogb(size);
  if (exponent < -6) exponent = -6;  // Subnormal: the same steps as the least normal ones.
  const int steps = static_cast<int>(std::nearbyint(std::ldexp(size, 3 - exponent)));
  // Eight steps are the hidden bit; sixteen carry into the exponent.
  return sign | static_cast<uint8_t>((exponent + 6) * 8 + steps);
#endif
}

// Exact.
__device__ __forceinline__ float fromFloat8(uint8_t code) {
  const uint32_t size = code & 0x7fu;
  const uint32_t sign = (code & 0x80u) << 24;
  if (size == 0x7f) return __uint_as_float(sign | 0x7fc00000u);
  // The same fields in a float's places, and the difference of the biases; a subnormal is one there too.
  return __uint_as_float(sign | size << 20) * 0x1p120f;
}

}  // namespace pie
