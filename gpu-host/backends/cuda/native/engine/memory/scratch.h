// Working memory of the steps. All steps share it, because they run one after another on one stream.
#pragma once
#include "../../kernels/attention/attention.h"
#include "../../kernels/linear/linear.h"
#include "memory.h"
#include "../step/plan.h"

namespace pie {

template <typename T>
struct Scratch {
  float* residual = nullptr;    // rows × hidden. Always float: in bf16, every layer would round the sum again.
  T* normed = nullptr;          // rows × hidden
  T* delta = nullptr;           // rows × hidden: a block's output. The next norm adds it to `residual`, so that the addition needs no launch.
  T* qkv = nullptr;             // rows × qkvWidth. After the last attention: the residual of the rows whose outputs are wanted (layers.cu).
  T* queries = nullptr;         // rows × queryWidth. After the last attention: the same rows of `attended`.
  T* attended = nullptr;        // rows × queryWidth
  T* activated = nullptr;       // rows × intermediate
  T* states = nullptr;          // max(rows, HEAD_ROWS) × hidden: inputs of the head, for steps and for callers' states (side.cu).
  float2* rotation = nullptr;   // rotations × rows × headDim / 2. All layers use the angles of one computation.
  float2* statistics = nullptr; // rows × heads: softmax statistics, for computing the attention that each key received.
  double* frequencies = nullptr;  // rotations × headDim / 2. In float, the angle at position 131,072 would be wrong by up to 0.008.
  double* rotationScales = nullptr;  // As many; null: all are 1.
  int* rotationOf = nullptr;    // By layer; null: all layers have the first rotation.
  float* partials = nullptr;    // Partial results of attention.
  int* counters = nullptr;      // Counters of attention. Zeroed at start; each launch leaves them zero, so that none needs to clear them.
  float* workspace = nullptr;   // Workspace of products.
  size_t workspaceBytes = 0;
  void* headWorkspace = nullptr;
  // Memory for one of four uses at a time: the logits of HEAD_ROWS rows; gate and up as separate values, where adapters change them (rows × 2
  // intermediate of T); slots being copied; at start, weights being quantised.
  void* wide = nullptr;
  size_t wideBytes = 0;

  float* logits() const { return static_cast<float*>(wide); }
  T* gateUp() const { return static_cast<T*>(wide); }
};

template <typename T>
Scratch<T> layScratch(Carver& carver, const PlanContext& context);

}  // namespace pie
