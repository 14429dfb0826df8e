// A model's weights on the device, under their Hugging Face names.
#pragma once
#include <vector>
#include "../../kernels/linear/linear-narrow.h"
#include "../engine.h"
#include "memory.h"
#include "../streams.h"

namespace pie {

// The stored matrix of a product: values of T, or quantised values that multiply bf16 activations.
template <typename T>
struct Product {
  Linear<T> plain;     // Without a weight if the matrix is quantised.
  LinearNarrow narrow;
  bool isNarrow = false;
  int outputs() const { return plain.outputs; }
  int inputs() const { return plain.inputs; }
};

template <typename T>
void launchProduct(const Product<T>& product, const T* x, void* y, size_t yStride, int rows, Epilogue epilogue, const LinearContext& context,
                   cudaStream_t stream);

template <typename T>
struct LayerWeights {
  T* inputNorm = nullptr;
  Product<T> qkv;  // Queries, keys and values stacked, so that one product computes all three. Heads are in the order ModelTraits::headOrder.
  T* queryNorm = nullptr;
  T* keyNorm = nullptr;
  Product<T> output;
  T* outputNorm = nullptr;  // Of attention's output, for models with norms after blocks.
  T* postNorm = nullptr;    // Before gate and up. This and inputNorm are null for models whose norms only stand after blocks.
  Product<T> gateUp;        // Rows of gate and up interleaved, see Epilogue::SwiGlu.
  Product<T> down;
  T* downNorm = nullptr;    // Of the output of the feed-forward network, as outputNorm.
};

template <typename T>
struct Weights {
  T* embeddings = nullptr;
  std::vector<LayerWeights<T>> layers;
  T* norm = nullptr;
  Product<T> head;  // The embeddings themselves if they are tied, unless the head is quantised.
};

// Lays out all weights; with a carver without memory it only computes their sizes.
template <typename T>
Weights<T> layWeights(Carver& carver, const EngineOptions& options);

// Bytes of the widest row of any matrix: the minimum size of `work` for loadWeights.
size_t widestRowBytes(const ModelShape& shape, size_t valueBytes);

// Uploads each tensor to its place and converts it on the way; matrices to be quantised pass through `work` on the device. Throws EngineError
// "invalid" if a tensor's size does not match the shape.
template <typename T>
void loadWeights(const Weights<T>& weights, const EngineOptions& options, const WeightSource& source, void* work, size_t workBytes,
                 const Stream& stream);

}  // namespace pie
