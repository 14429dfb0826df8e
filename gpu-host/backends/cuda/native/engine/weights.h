// A model's weights on the device, under the names of Hugging Face.
#pragma once
#include <vector>
#include "../kernels/linear-normed.h"
#include "engine.h"
#include "memory.h"
#include "streams.h"

namespace pie {

// A matrix to multiply by, as it is kept: of T, or of fewer bits beside activations of bf16.
template <typename T>
struct Product {
  Linear<T> plain;     // Without a weight where the matrix is narrow.
  LinearNarrow narrow;
  bool isNarrow = false;
  int outputs() const { return plain.outputs; }
  int inputs() const { return plain.inputs; }
};

template <typename T>
void launchProduct(const Product<T>& product, const T* x, void* y, size_t yStride, int rows, Epilogue epilogue, const LinearContext& context,
                   cudaStream_t stream);

// See ../kernels/linear-normed.h: false, and nothing is launched, where the norm is a kernel of its own.
template <typename T>
bool launchNormedProduct(const Product<T>& product, const NormedInput<T>& x, void* y, size_t yStride, int rows, Epilogue epilogue,
                         const LinearContext& context, cudaStream_t stream);

template <typename T>
struct LayerWeights {
  T* inputNorm = nullptr;
  Product<T> qkv;  // Queries, keys and values under each other, so that one product makes all three.
  T* queryNorm = nullptr;
  T* keyNorm = nullptr;
  Product<T> output;
  T* postNorm = nullptr;
  Product<T> gateUp;  // Rows of gate and up in turn, see Epilogue::SwiGlu.
  Product<T> down;
};

template <typename T>
struct Weights {
  T* embeddings = nullptr;
  std::vector<LayerWeights<T>> layers;
  T* norm = nullptr;
  Product<T> head;  // The embeddings themselves where they are tied, unless it is narrow.
};

// Places of all weights; their sizes alone with a carver that has no memory.
template <typename T>
Weights<T> layWeights(Carver& carver, const EngineOptions& options);

// Most bytes of a row of a matrix: what loading needs of `work`, at least.
size_t widestRowBytes(const ModelShape& shape, size_t valueBytes);

// Brings each tensor to its place, converted on the way; what becomes narrow goes by way of `work` on the device. Throws EngineError "invalid" for a tensor of
// another size than the shape says.
template <typename T>
void loadWeights(const Weights<T>& weights, const EngineOptions& options, const WeightSource& source, void* work, size_t workBytes, const Stream& stream);

}  // namespace pie
