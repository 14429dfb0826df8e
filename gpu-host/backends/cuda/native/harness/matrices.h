// The matrices of a step, with device memory to multiply them by.
#pragma once
#include <algorithm>
#include <memory>
#include <vector>
#include "../kernels/linear.h"
#include "random_weights.h"

namespace pie::harness {

struct Matrix {
  const char* name;
  int outputs;
  int inputs;
  Epilogue epilogue;
  int perStep;
  double bytes() const { return 2.0 * outputs * inputs; }
};

inline std::vector<Matrix> matricesOf(const ModelShape& shape) {
  return {
      {"qkv", shape.qkvWidth(), shape.hidden, Epilogue::Store, shape.layers},
      {"o", shape.hidden, shape.queryWidth(), Epilogue::Store, shape.layers},
      {"gate_up", 2 * shape.intermediate, shape.hidden, Epilogue::SwiGlu, shape.layers},
      {"down", shape.hidden, shape.intermediate, Epilogue::Store, shape.layers},
      {"head", shape.vocabulary, shape.hidden, Epilogue::Wide, 1},
  };
}

// Weights that lie one after another and are taken in turn, several times what the cache holds; inputs, outputs and workspace for any of a shape's
// matrices at up to `maxRows` rows.
class MatrixBench {
 public:
  MatrixBench(const ModelShape& shape, int maxRows);
  // How many launches it takes to go through all the weights once.
  int rotations(const Matrix& matrix) const;
  void launch(const Matrix& matrix, int turn, int rows, const LinearContext& context, cudaStream_t stream) const;
  bool supports(const Matrix& matrix, int rows, LinearKernel kernel, const LinearContext& context) const;
  LinearContext context() const;
  CublasLt* library() const { return cublas.get(); }

 private:
  Linear<bf16> linearOf(const Matrix& matrix, int turn) const;

  int multiprocessors;
  int longest;  // Most inputs of a matrix.
  DeviceBytes weights, x, y, workspace;
  std::unique_ptr<CublasLt, decltype(&closeCublasLt)> cublas;
};

}  // namespace pie::harness
