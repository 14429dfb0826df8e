// The matrices of a step, with device memory for their products.
#pragma once
#include <algorithm>
#include <memory>
#include <optional>
#include <vector>
#include "../kernels/linear/linear-narrow.h"
#include "random_weights.h"

namespace pie::harness {

struct Matrix {
  const char* name;
  int outputs;
  int inputs;
  Epilogue epilogue;
  int perStep;
  std::optional<WeightFormat> format;  // None: bf16.
  int bits() const { return !format ? 16 : *format == WeightFormat::Int4 ? 4 : 8; }
  // Bytes of the weights and of the scales of groups, but not of the scales of outputs.
  double bytes() const {
    const double scales = format == WeightFormat::Int4 ? 2.0 * static_cast<double>(narrowGroupScales(outputs, inputs)) : 0;
    return 0.125 * bits() * outputs * inputs + scales;
  }
};

inline std::vector<Matrix> matricesOf(const ModelShape& shape, Precision precision) {
  std::optional<WeightFormat> format, head;
  if (precision == Precision::Fp8) format = head = WeightFormat::Float8;
  if (precision == Precision::Int8) format = head = WeightFormat::Int8;
  if (precision == Precision::Int4) format = WeightFormat::Int4, head = WeightFormat::Int8;
  return {
      {"qkv", shape.qkvWidth(), shape.hidden, Epilogue::Store, shape.layers, format},
      {"o", shape.hidden, shape.queryWidth(), Epilogue::Store, shape.layers, format},
      {"gate_up", 2 * shape.intermediate, shape.hidden, Epilogue::SwiGlu, shape.layers, format},
      {"down", shape.hidden, shape.intermediate, Epilogue::Store, shape.layers, format},
      {"head", shape.vocabulary, shape.hidden, Epilogue::Wide, 1, head},
  };
}

// Device memory for products of a shape's matrices. The weights are stored one after another, in total several times the cache size, and used in
// rotation. Inputs, outputs and workspace have room for any of the matrices with up to `maxRows` rows.
class MatrixBench {
 public:
  MatrixBench(const ModelShape& shape, int maxRows, Precision precision);
  // Number of launches that use all the weights once.
  int rotations(const Matrix& matrix) const;
  void launch(const Matrix& matrix, int turn, int rows, const LinearContext& context, cudaStream_t stream) const;
  bool supports(const Matrix& matrix, int rows, LinearKernel kernel, const LinearContext& context) const;
  LinearContext context() const;
  CublasLt* library() const { return cublas.get(); }

 private:
  Linear<bf16> linearOf(const Matrix& matrix, int turn) const;
  LinearNarrow narrowOf(const Matrix& matrix, int turn) const;

  int multiprocessors;
  int longest;  // Maximum inputs of any matrix.
  DeviceBytes weights, scales, x, y, workspace;
  std::unique_ptr<CublasLt, decltype(&closeCublasLt)> cublas;
};

}  // namespace pie::harness
