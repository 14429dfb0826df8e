#include "convert.h"
#include <cstdint>
#include <cstring>

namespace pie {

namespace {

uint32_t bitsOf(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

float floatOf(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// float16 has 5 exponent bits: multiplying by 2^112 corrects the exponent bias of normal and subnormal numbers alike.
float fromHalf(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16, rest = static_cast<uint32_t>(half & 0x7fff) << 13;
  const float value = floatOf(rest) * 0x1p112f;
  const uint32_t bits = rest >= (0x1fu << 23) ? (rest | 0x7f800000u) : bitsOf(value);
  return floatOf(bits | sign);
}

uint16_t toBf16(float value) {
  const uint32_t bits = bitsOf(value);
  const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  const bool isNan = (bits & 0x7fffffff) > 0x7f800000;
  return static_cast<uint16_t>(isNan ? (bits >> 16) | 0x40 : rounded);
}

template <typename From>
From read(const uint8_t* from, size_t i) {
  From value;
  std::memcpy(&value, from + i * sizeof(From), sizeof value);
  return value;
}

void toWide(float* to, HostTensor::Type type, const uint8_t* from, size_t count) {
  if (type == HostTensor::Type::F32) std::memcpy(to, from, count * sizeof(float));
  else if (type == HostTensor::Type::BF16)
    for (size_t i = 0; i < count; i++) to[i] = floatOf(static_cast<uint32_t>(read<uint16_t>(from, i)) << 16);
  else
    for (size_t i = 0; i < count; i++) to[i] = fromHalf(read<uint16_t>(from, i));
}

void toNarrow(uint16_t* to, HostTensor::Type type, const uint8_t* from, size_t count) {
  if (type == HostTensor::Type::BF16) std::memcpy(to, from, count * sizeof(uint16_t));
  else if (type == HostTensor::Type::F32)
    for (size_t i = 0; i < count; i++) to[i] = toBf16(read<float>(from, i));
  else
    for (size_t i = 0; i < count; i++) to[i] = toBf16(fromHalf(read<uint16_t>(from, i)));
}

}  // namespace

size_t elementBytes(HostTensor::Type type) { return type == HostTensor::Type::F32 ? 4 : 2; }

template <>
void convertNumbers<float>(float* to, HostTensor::Type type, const void* from, size_t count) {
  toWide(to, type, static_cast<const uint8_t*>(from), count);
}

template <>
void convertNumbers<bf16>(bf16* to, HostTensor::Type type, const void* from, size_t count) {
  static_assert(sizeof(bf16) == sizeof(uint16_t), "bf16 is two bytes");
  toNarrow(reinterpret_cast<uint16_t*>(to), type, static_cast<const uint8_t*>(from), count);
}

}  // namespace pie
