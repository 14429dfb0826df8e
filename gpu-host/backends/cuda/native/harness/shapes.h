// The shapes to measure, with random weights.
#pragma once
#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>
#include "../engine/engine.h"

namespace pie::harness {

struct NamedShape {
  const char* name;
  ModelShape shape;
  bool tied;
  double ropeTheta;
};

inline const std::vector<NamedShape>& namedShapes() {
  static const std::vector<NamedShape> shapes = {
      // hidden, intermediate, layers, heads, KV heads, head dimension, vocabulary
      {"1B", {2048, 8192, 16, 32, 8, 64, 128256, 1e-5f}, true, 5e5},
      {"3B", {3072, 8192, 28, 24, 8, 128, 128256, 1e-5f}, true, 5e5},
      {"8B", {4096, 14336, 32, 32, 8, 128, 128256, 1e-5f}, false, 5e5},
      // For testing the harness on the emulation.
      {"toy", {128, 256, 2, 4, 2, 64, 512, 1e-5f}, true, 1e4},
  };
  return shapes;
}

inline const NamedShape& shapeNamed(const std::string& name) {
  for (const NamedShape& each : namedShapes())
    if (name == each.name) return each;
  throw std::invalid_argument("there is no shape \"" + name + "\"");
}

inline std::vector<double> plainFrequencies(const NamedShape& named) {
  std::vector<double> frequencies(named.shape.headDim / 2);
  for (size_t i = 0; i < frequencies.size(); i++) frequencies[i] = std::pow(named.ropeTheta, -2.0 * static_cast<double>(i) / named.shape.headDim);
  return frequencies;
}

// Number of values of one layer's matrices.
inline double layerWeights(const ModelShape& shape) {
  return static_cast<double>(shape.hidden) * (shape.qkvWidth() + shape.queryWidth() + 3.0 * shape.intermediate);
}
inline Precision precisionNamed(const std::string& name) {
  if (name == "bf16") return Precision::Bf16;
  if (name == "int8") return Precision::Int8;
  if (name == "fp8") return Precision::Fp8;
  if (name == "int4") return Precision::Int4;
  throw std::invalid_argument("precision=" + name + ": bf16, int8, fp8 or int4");
}

// Minimum bytes of weights that a decode step reads: all matrices once (of the embeddings only some rows, unless they are the head). Scales of
// outputs are not counted; those of groups are 16 bits per 128 weights.
inline double weightBytes(const ModelShape& shape, Precision precision) {
  const double head = precision == Precision::Bf16 ? 2 : 1, layers = precision == Precision::Int4 ? 0.5 + 2.0 / 128 : head;
  return layers * layerWeights(shape) * shape.layers + head * shape.vocabulary * shape.hidden;
}
// Minimum bytes of keys and values that a decode step reads. The first `prefix` slots of all contexts are the same.
inline double contextBytes(const ModelShape& shape, bool narrowKv, int batch, int context, int prefix) {
  const double slots = static_cast<double>(batch) * (context - prefix) + prefix;
  return static_cast<double>(narrowKv ? slotBytes<float8>(shape) : slotBytes<bf16>(shape)) * shape.layers * slots;
}

// Operations of a prefill that computes the head for the last row only; attention counts the pairs that a causal mask shows.
inline double prefillFlops(const ModelShape& shape, double tokens) {
  const double linear = 2 * tokens * layerWeights(shape) * shape.layers + 2.0 * shape.vocabulary * shape.hidden;
  const double attention = 4.0 * shape.queryWidth() * shape.layers * tokens * (tokens + 1) / 2;
  return linear + attention;
}

}  // namespace pie::harness
