// What every kernel and the engine agree on: scalar types, the model's shape, the layout of the KV pool.
#pragma once
#include <cstddef>
#include <cstdint>
#include "../device/device.h"

namespace pie {

// Two builds of every kernel: bf16 weights, activations and KV, or float (the debug mode). The residual stream and logits are always float.
using bf16 = __nv_bfloat16;

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
template <typename T>
struct KvLayer {
  T* base;  // Of this layer.
  int slotWidth;
};

}  // namespace pie
