// What every kernel and the engine agree on: scalar types, the model's shape, the layout of the KV pool.
#pragma once
#include <cstddef>
#include <cstdint>
#include "../device/device.h"

namespace pie {

// Two builds of every kernel: bf16 weights, activations and KV, or float (the debug mode). The residual stream and logits are always float.
using bf16 = __nv_bfloat16;
// Of keys and values beside bf16: see ../device/float8.h.
struct float8 {
  uint8_t code;
};

struct ModelShape {
  int hidden = 0;
  int intermediate = 0;
  int layers = 0;
  int heads = 0;
  int kvHeads = 0;
  // Even. The fast kernels take 64 and 128; others run on plain ones.
  int headDim = 0;
  int vocabulary = 0;
  float rmsEpsilon = 0;

  int queryWidth() const { return heads * headDim; }
  int kvWidth() const { return kvHeads * headDim; }
  // One row of the joint projection: queries, then keys, then values.
  int qkvWidth() const { return queryWidth() + 2 * kvWidth(); }
  // Values of one slot of one layer: keys of all heads, then values of all heads.
  int slotWidth() const { return 2 * kvWidth(); }
};

// The pool is `layers × slots × slotWidth`: a page's slots are neighbours, so that a page of one layer is one piece of memory. The engine has some
// slots past those of the pages: for keys that live during one call only, and one that takes what padding rows write.
template <typename K>
struct KvLayer {
  K* base;  // Of this layer.
  int slotWidth;
};
// In float8 a slot has the codes of all keys, those of all values, and for each key head two scales in float16: its keys', then its values'. A scale is a
// power of two, found when the head is written (kv-rows.h), so that a code times its scale is exact in bf16. Slots are whole sectors of 32 bytes.
template <>
struct KvLayer<float8> {
  float8* base;
  int slotWidth;  // From a slot to the next, padding included.
  int values;     // Where values begin in a slot,
  int scales;     // and where scales do.
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
