// Shared by all kernels and the engine: scalar types, the model's shape, the layout of the KV pool.
#pragma once
#include <cstddef>
#include <cstdint>
#include "../device/device.h"

namespace pie {

// Kernels are templates over the type of weights, activations and KV: bf16, or float (for debugging). Residual stream and logits are always float.
using bf16 = __nv_bfloat16;
// Optional storage type of keys and values beside bf16 activations; see ../device/float8.h.
struct float8 {
  uint8_t code;
};

// Rounds a size or an offset up to the alignment of cudaMalloc.
constexpr size_t aligned256(size_t bytes) { return (bytes + 255) / 256 * 256; }

struct ModelShape {
  int hidden = 0;
  int intermediate = 0;
  int layers = 0;
  int heads = 0;
  int kvHeads = 0;
  // Even. The fast kernels support 64 and 128; other sizes use the plain kernels.
  int headDim = 0;
  int vocabulary = 0;
  float rmsEpsilon = 0;
  // Factor of the products of queries and keys; 0: 1 / √headDim.
  double attentionScale = 0;
  // Scores become cap × tanh(score / cap); 0: they stay. Only the plain attention kernel computes it.
  float attentionSoftcap = 0;
  // Added to the stored weights of norms.
  float normOffset = 0;
  // The gate's function is GELU with tanh instead of SiLU.
  bool gelu = false;

  int queryWidth() const { return heads * headDim; }
  int kvWidth() const { return kvHeads * headDim; }
  // Width of a row of the joint projection: queries, then keys, then values.
  int qkvWidth() const { return queryWidth() + 2 * kvWidth(); }
  // Values per slot and layer: keys of all heads, then values of all heads.
  int slotWidth() const { return 2 * kvWidth(); }
};

// The pool is `layers × slots × slotWidth`. A page's slots are adjacent, so a page of one layer is contiguous. Beyond the slots of the pages the
// engine has slots for keys that live during one call only, and one slot that receives the writes of padding rows.
template <typename K>
struct KvLayer {
  K* base;  // Start of this layer.
  int slotWidth;
};
// A float8 slot has the codes of all keys, those of all values, and for each KV head two float16 scales: the keys', then the values'. A scale is a
// power of two, chosen when the head is written (kv-rows.h), so that code × scale is exact in bf16. Slots are padded to 32-byte sectors.
template <>
struct KvLayer<float8> {
  float8* base;
  int slotWidth;  // Stride between slots, including padding.
  int values;     // Offset of the values in a slot.
  int scales;     // Offset of the scales in a slot.
};

template <typename K>
KvLayer<K> kvLayer(K* base, const ModelShape& shape) {
  return {base, shape.slotWidth()};
}
template <>
inline KvLayer<float8> kvLayer(float8* base, const ModelShape& shape) {
  const int scales = (shape.slotWidth() + 3) / 4 * 4;
  return {base, (scales + 4 * shape.kvHeads + 31) / 32 * 32, shape.kvWidth(), scales};
}

// Bytes of one slot of one layer.
template <typename K>
int slotBytes(const ModelShape& shape) {
  return kvLayer<K>(nullptr, shape).slotWidth * static_cast<int>(sizeof(K));
}

}  // namespace pie
