// Access to one head of one slot. Device code.
#pragma once
#include "../../device/float8.h"
#include "../types.h"

namespace pie {

// The keys or the values of one head, read as floats.
template <typename K>
struct KvRow {
  const K* at;
  __device__ __forceinline__ float operator[](int i) const { return static_cast<float>(at[i]); }
};
template <>
struct KvRow<float8> {
  const float8* at;
  float scale;
  __device__ __forceinline__ float operator[](int i) const { return fromFloat8(at[i].code) * scale; }
};

// Offset of the values in a slot.
template <typename K>
__device__ __forceinline__ int valuesIn(const KvLayer<K>& layer) {
  return layer.slotWidth / 2;
}
__device__ __forceinline__ int valuesIn(const KvLayer<float8>& layer) { return layer.values; }

template <typename K>
__device__ __forceinline__ KvRow<K> keysOf(const KvLayer<K>& layer, int slot, int head, int headDim) {
  return {layer.base + static_cast<size_t>(slot) * layer.slotWidth + head * headDim};
}
template <typename K>
__device__ __forceinline__ KvRow<K> valuesOf(const KvLayer<K>& layer, int slot, int head, int headDim) {
  return {layer.base + static_cast<size_t>(slot) * layer.slotWidth + valuesIn(layer) + head * headDim};
}

// The scales of keys and values of a head; the address is a multiple of 4.
__device__ __forceinline__ uint16_t* scalesOf(const KvLayer<float8>& layer, int slot, int head) {
  return reinterpret_cast<uint16_t*>(layer.base + static_cast<size_t>(slot) * layer.slotWidth + layer.scales) + 2 * head;
}
__device__ __forceinline__ KvRow<float8> keysOf(const KvLayer<float8>& layer, int slot, int head, int headDim) {
  return {layer.base + static_cast<size_t>(slot) * layer.slotWidth + head * headDim, fromHalf(scalesOf(layer, slot, head)[0])};
}
__device__ __forceinline__ KvRow<float8> valuesOf(const KvLayer<float8>& layer, int slot, int head, int headDim) {
  return {layer.base + static_cast<size_t>(slot) * layer.slotWidth + valuesIn(layer) + head * headDim, fromHalf(scalesOf(layer, slot, head)[1])};
}

// The smallest power of two that, as the scale of a head with the largest magnitude `most`, makes the head fit float8. A finer scale would not be
// more exact: dividing by a power of two is exact, and a code's error is relative to its own value (at most 1/16). The scale is at least 2^-24 (the
// smallest float16) and at most 2^7 (every code × scale is still a float16). So magnitudes above 57344 are clamped, and those below 2^-16 lose bits.
struct Float8Scale {
  float scale, perScale;
};
__device__ __forceinline__ Float8Scale float8Scale(float most) {
  // FLOAT8_MOST is 448 = 1.75 × 2^8. Adding 0x1fffff makes a significand above 1.75 carry into the exponent.
  const int exponent = static_cast<int>((__float_as_uint(most) + 0x1fffffu) >> 23) - 127 - 8;
  const int within = min(max(exponent, -24), 7);
  return {__uint_as_float(static_cast<uint32_t>(127 + within) << 23), __uint_as_float(static_cast<uint32_t>(127 - within) << 23)};
}

}  // namespace pie
