// Working memory of the steps: a single set, because steps run one after another on one stream.
#pragma once
#include "../kernels/attention.h"
#include "../kernels/linear.h"
#include "memory.h"
#include "plan.h"

namespace pie {

template <typename T>
struct Scratch {
  float* residual = nullptr;    // rows × hidden
  T* normed = nullptr;          // rows × hidden
  T* delta = nullptr;           // rows × hidden: a block's addition to the residual stream.
  T* qkv = nullptr;             // rows × qkvWidth
  T* queries = nullptr;         // rows × queryWidth
  T* attended = nullptr;        // rows × queryWidth
  T* activated = nullptr;       // rows × intermediate
  T* states = nullptr;          // rows × hidden: normalised rows for the head.
  float2* rotation = nullptr;   // rows × headDim / 2
  float2* statistics = nullptr; // rows × heads
  double* frequencies = nullptr;
  float* partials = nullptr;    // Of attention.
  int* counters = nullptr;
  float* workspace = nullptr;   // Of products.
  size_t workspaceBytes = 0;
  void* headWorkspace = nullptr;
  // Holds one of these at a time: logits of HEAD_ROWS rows; rows × 2 intermediate of T, the separate gate and up (adapters); slots being copied;
  // weights being quantised (at start).
  void* wide = nullptr;
  size_t wideBytes = 0;

  float* logits() const { return static_cast<float*>(wide); }
  T* gateUp() const { return static_cast<T*>(wide); }
};

template <typename T>
Scratch<T> layScratch(Carver& carver, const PlanContext& context);

}  // namespace pie
