// The epilogue of every product kernel: scales, bias, SwiGLU, narrowing and the store.
#pragma once
#include "linear.h"
#include "../vectors.h"

namespace pie {

// The destination of a product and its epilogue.
template <typename T>
struct LinearOutput {
  void* y;
  size_t stride;
  const T* bias;
  const float* scales;  // Per line of W, or null.
  int rows;
  int outputs;
  Epilogue epilogue;
  bool vectors;  // Runs of values can be stored and loaded as vectors; `outputs` is a multiple of the run.
};

// The output of a kernel whose threads finish runs of `run` adjacent outputs.
template <typename T>
LinearOutput<T> linearOutput(void* y, size_t yStride, const T* bias, const float* scales, int rows, int outputs, Epilogue epilogue, int run) {
  const bool vectors = outputs % run == 0 && yStride % 8 == 0 && areAligned(y, bias, scales);
  return {y, yStride, bias, scales, rows, outputs, epilogue, vectors};
}

template <typename T>
__device__ __forceinline__ float swiGlu(float gate, float up) {
  if constexpr (sizeof(T) == 2) {
    return __fdividef(gate, 1.0f + __expf(-gate)) * up;
  } else {
    return gate / (1.0f + expf(-gate)) * up;
  }
}

// gelu(gate) · up; GELU with tanh (Hendrycks and Gimpel, 2016).
__device__ __forceinline__ float geGlu(float gate, float up) {
  constexpr float SLOPE = 0.7978845608028654f;  // √(2 / π)
  return 0.5f * gate * (1.0f + tanhf(SLOPE * (gate + 0.044715f * gate * gate * gate))) * up;
}

template <typename T>
__device__ __forceinline__ T narrowed(float value) {
  if constexpr (sizeof(T) == 2) {
    return __float2bfloat16(value);
  } else {
    return value;
  }
}

// `COUNT` adjacent values, accessed as one vector if they fit 16 bytes.
template <typename T, int COUNT>
struct alignas(sizeof(T) * COUNT < 16 ? sizeof(T) * COUNT : 16) Run {
  T values[COUNT];
};

template <int N, typename T>
__device__ __forceinline__ void storeRun(T* at, const float (&values)[N]) {
  Run<T, N> run;
#pragma unroll
  for (int i = 0; i < N; i++) run.values[i] = narrowed<T>(values[i]);
  *reinterpret_cast<Run<T, N>*>(at) = run;
}

// Finishes the sums of N adjacent outputs of one row, starting at a multiple of N; requires `vectors`. Kernels without scales pass SCALED = false.
template <bool SCALED, int N, typename T>
__device__ __forceinline__ void finishWholeRun(const LinearOutput<T>& to, int row, int output, float (&sums)[N]) {
  if (row >= to.rows || output >= to.outputs) return;
  if (SCALED && to.scales) {
    const Run<float, N> scales = *reinterpret_cast<const Run<float, N>*>(to.scales + output);
#pragma unroll
    for (int i = 0; i < N; i++) sums[i] *= scales.values[i];
  }
  if (to.bias) {
    const Run<T, N> bias = *reinterpret_cast<const Run<T, N>*>(to.bias + output);
#pragma unroll
    for (int i = 0; i < N; i++) sums[i] += widen(bias.values[i]);
  }
  if (to.epilogue == Epilogue::SwiGlu) {
    float halves[N / 2];
#pragma unroll
    for (int i = 0; i < N / 2; i++) halves[i] = swiGlu<T>(sums[2 * i], sums[2 * i + 1]);
    storeRun(static_cast<T*>(to.y) + row * to.stride + output / 2, halves);
  } else if (to.epilogue == Epilogue::Wide) {
    storeRun(static_cast<float*>(to.y) + row * to.stride + output, sums);
  } else {
    storeRun(static_cast<T*>(to.y) + row * to.stride + output, sums);
  }
}

// Finishes a pair of outputs that starts at an even one. Unlike finishWholeRun, it also handles edges and odd strides.
template <bool SCALED, typename T>
__device__ __forceinline__ void finishPair(const LinearOutput<T>& to, int row, int output, float (&sums)[2]) {
  if (to.vectors) return finishWholeRun<SCALED>(to, row, output, sums);
  if (row >= to.rows || output >= to.outputs) return;
  const int count = min(2, to.outputs - output);
  if (SCALED && to.scales) {
    sums[0] *= to.scales[output];
    if (count == 2) sums[1] *= to.scales[output + 1];
  }
  if (to.bias) {
    sums[0] += widen(to.bias[output]);
    if (count == 2) sums[1] += widen(to.bias[output + 1]);
  }
  if (to.epilogue == Epilogue::SwiGlu) {
    static_cast<T*>(to.y)[row * to.stride + output / 2] = narrowed<T>(swiGlu<T>(sums[0], sums[1]));
    return;
  }
#pragma unroll
  for (int i = 0; i < 2; i++) {
    if (i >= count) return;
    const size_t at = row * to.stride + output + i;
    if (to.epilogue == Epilogue::Wide) {
      static_cast<float*>(to.y)[at] = sums[i];
    } else {
      static_cast<T*>(to.y)[at] = narrowed<T>(sums[i]);
    }
  }
}

}  // namespace pie
