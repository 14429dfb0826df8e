// Test helpers: shapes, frequencies of rotations, slots on the host and their values in double. The float8 encoder follows the format's definition
// literally.
#pragma once
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <vector>
#include "../kernels/types.h"

namespace pie::kvTesting {

inline ModelShape shapeOf(int heads, int kvHeads, int headDim, int layers = 1) {
  ModelShape shape;
  shape.heads = heads, shape.kvHeads = kvHeads, shape.headDim = headDim, shape.layers = layers, shape.rmsEpsilon = 1e-5f;
  return shape;
}

inline std::vector<double> frequenciesOf(int headDim) {
  std::vector<double> frequencies;
  for (int i = 0; i < headDim / 2; i++) frequencies.push_back(std::pow(10000.0, -2.0 * i / headDim));
  return frequencies;
}

inline double meaningOfFloat8(int code) {
  const int exponent = code >> 3 & 15, fraction = code & 7;
  if ((code & 0x7f) == 0x7f) return NAN;
  const double size = exponent == 0 ? std::ldexp(fraction / 8.0, -6) : std::ldexp(1 + fraction / 8.0, exponent - 7);
  return code & 0x80 ? -size : size;
}

inline const std::array<double, 0x100>& meaningsOfFloat8() {
  static const std::array<double, 0x100> meanings = [] {
    std::array<double, 0x100> all;
    for (int code = 0; code < 0x100; code++) all[code] = meaningOfFloat8(code);
    return all;
  }();
  return meanings;
}

// The nearest code; ties go to the even code.
inline uint8_t nearestFloat8(double value) {
  // The values of the codes without a sign (0 to 0x7e) ascend.
  const double* sizes = meaningsOfFloat8().data();
  const double size = std::fabs(value);
  int code = static_cast<int>(std::upper_bound(sizes, sizes + 0x7f, size) - sizes) - 1;
  if (code < 0x7e) {
    const double below = size - sizes[code], above = sizes[code + 1] - size;
    if (above < below || (above == below && code % 2 == 1)) code++;
  }
  return static_cast<uint8_t>(code | (std::signbit(value) ? 0x80 : 0));
}

// The smallest exponent in [-24, 7] with which no value exceeds the largest code.
inline int scaleExponent(const double* values, int count) {
  double most = 0;
  for (int i = 0; i < count; i++) most = std::max(most, std::fabs(values[i]));
  int exponent = -24;
  while (exponent < 7 && most > std::ldexp(448, exponent)) exponent++;
  return exponent;
}

inline uint16_t halfPower(int exponent) { return static_cast<uint16_t>(exponent < -14 ? 1 << (exponent + 24) : (exponent + 15) << 10); }
inline double halfMeaning(uint16_t bits) {
  return bits >> 10 == 0 ? std::ldexp(bits, -24) : std::ldexp(1024 + (bits & 1023), (bits >> 10) - 25);
}

// Encodes `values` (the keys of all heads, then their values) as K into the slot at `raw`.
template <typename K>
void writeSlot(K* raw, const double* values, const ModelShape& shape) {
  for (int i = 0; i < shape.slotWidth(); i++) raw[i] = static_cast<K>(static_cast<float>(values[i]));
}
inline void writeSlot(float8* raw, const double* values, const ModelShape& shape) {
  const KvLayer<float8> layer = kvLayer(raw, shape);
  for (int head = 0; head < 2 * shape.kvHeads; head++) {
    const double* from = values + head * shape.headDim;
    const int exponent = scaleExponent(from, shape.headDim);
    const double scale = std::ldexp(1, -exponent);
    for (int i = 0; i < shape.headDim; i++) raw[head * shape.headDim + i].code = nearestFloat8(from[i] * scale);
    const uint16_t bits = halfPower(exponent);
    std::memcpy(&raw[layer.scales + 4 * (head % shape.kvHeads) + 2 * (head / shape.kvHeads)].code, &bits, 2);
  }
}

// Decodes a slot.
template <typename K>
std::vector<double> readSlot(const K* raw, const ModelShape& shape) {
  std::vector<double> values(shape.slotWidth());
  for (int i = 0; i < shape.slotWidth(); i++) values[i] = static_cast<float>(raw[i]);
  return values;
}
inline std::vector<double> readSlot(const float8* raw, const ModelShape& shape) {
  const KvLayer<float8> layer = kvLayer(const_cast<float8*>(raw), shape);
  const double* meanings = meaningsOfFloat8().data();
  std::vector<double> values(shape.slotWidth());
  for (int head = 0; head < 2 * shape.kvHeads; head++) {
    uint16_t bits;
    std::memcpy(&bits, &raw[layer.scales + 4 * (head % shape.kvHeads) + 2 * (head / shape.kvHeads)].code, 2);
    const double scale = halfMeaning(bits);
    for (int i = head * shape.headDim; i < (head + 1) * shape.headDim; i++) values[i] = meanings[raw[i].code] * scale;
  }
  return values;
}

}  // namespace pie::kvTesting
