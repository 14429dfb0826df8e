// float16, represented by its bits.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>

namespace emulation {

// Rounds to nearest, ties to even.
inline uint16_t halfOf(float value) {
  uint32_t wide;
  std::memcpy(&wide, &value, 4);
  const uint16_t sign = static_cast<uint16_t>(wide >> 16 & 0x8000u);
  wide &= 0x7fffffffu;
  if (wide > 0x7f800000u) return 0x7fff;
  // From halfway past the largest float16 on, the result is infinite.
  if (wide >= 0x477ff000u) return sign | 0x7c00;
  if (wide >= 0x38800000u) return sign | static_cast<uint16_t>((wide - 0x38000000u + 0xfffu + (wide >> 13 & 1u)) >> 13);
  // Subnormal results are multiples of the smallest float16. The last bit of a float in [0.5, 1) has this value, so adding 0.5 rounds correctly.
  const float moved = std::fabs(value) + 0.5f;
  std::memcpy(&wide, &moved, 4);
  return sign | static_cast<uint16_t>(wide - 0x3f000000u);
}

inline float fromHalf(uint16_t bits) {
  // Moves the fields to their places in a float and corrects the exponent bias.
  uint32_t wide = static_cast<uint32_t>(bits & 0x7fff) << 13;
  if (wide >= 0x0f800000u) wide |= 0x7f800000u;
  float value;
  std::memcpy(&value, &wide, 4);
  if (wide < 0x7f800000u) value *= 0x1p112f;
  return bits & 0x8000 ? -value : value;
}

}  // namespace emulation
