// A small stand-in for cuBLASLt, which implements the documented semantics of the arguments. It computes on host copies of the matrices, so that its
// tests run on a GPU as well as in the emulation. Status 7 is cublaslt::INVALID_VALUE.
#pragma once
#include <cstring>
#include <map>
#include <vector>
#include "device.h"
#include "test.h"
#include "../kernels/linear/linear-cublas.h"

namespace pie::cublasTesting {

struct Layout {
  int type;
  uint64_t rows, columns;
  int64_t leading;
};
struct Operation {
  std::map<int, std::vector<uint8_t>> attributes;
  template <typename T>
  T get(int attribute, T otherwise) const {
    const auto at = attributes.find(attribute);
    if (at == attributes.end()) return otherwise;
    T value;
    if (at->second.size() != sizeof value) throw std::runtime_error("an attribute has another size");
    std::memcpy(&value, at->second.data(), sizeof value);
    return value;
  }
};
struct Library {
  int objects = 0, heuristics = 0, products = 0, attempts = 0;
  bool knowsAny = true;
  int failure = 0;  // The status of products; 0: they are computed.
  size_t wanted = 1024;  // Workspace bytes of the algorithm.
};
inline Library library;

inline std::vector<double> fetch(const void* from, const Layout& layout) {
  const size_t count = layout.leading * (layout.columns - 1) + layout.rows;
  std::vector<double> values(count);
  if (layout.type == cublaslt::R_32F) {
    std::vector<float> raw(count);
    testing::cudaOk(cudaMemcpy(raw.data(), from, count * sizeof(float), cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < count; i++) values[i] = raw[i];
  } else {
    std::vector<bf16> raw(count);
    testing::cudaOk(cudaMemcpy(raw.data(), from, count * sizeof(bf16), cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < count; i++) values[i] = static_cast<float>(raw[i]);
  }
  return values;
}
template <typename T>
inline void store(void* to, const Layout& layout, const std::vector<double>& values) {
  for (uint64_t c = 0; c < layout.columns; c++) {
    std::vector<T> column(layout.rows);
    for (uint64_t r = 0; r < layout.rows; r++) column[r] = static_cast<T>(static_cast<float>(values[c * layout.rows + r]));
    testing::cudaOk(cudaMemcpy(static_cast<T*>(to) + c * layout.leading, column.data(), column.size() * sizeof(T), cudaMemcpyHostToDevice));
  }
}

template <typename T>
inline int make(void** object, T value) {
  library.objects++;
  *object = new T(value);
  return 0;
}
template <typename T>
inline int destroy(void* object) {
  library.objects--;
  delete static_cast<T*>(object);
  return 0;
}
inline int setAttribute(void* object, int attribute, const void* value, size_t bytes) {
  const auto* from = static_cast<const uint8_t*>(value);
  static_cast<Operation*>(object)->attributes[attribute].assign(from, from + bytes);
  return 0;
}
inline int heuristic(void*, void* operation, void*, void*, void*, void*, void* preference, int, CublasLtHeuristic* results, int* found) {
  library.heuristics++;
  const auto& preferences = *static_cast<Operation*>(preference);
  for (int i = 0; i < 4; i++) {
    const uint32_t alignment = preferences.get<uint32_t>(cublaslt::PREFERENCE_ALIGNMENT_A + i, 0);
    if (alignment < 2 || alignment > 256 || (alignment & (alignment - 1)) != 0) return 7;
  }
  if (static_cast<Operation*>(operation)->get<int>(cublaslt::OPERATION_TRANSA, 0) != 1) return 7;
  *found = library.knowsAny ? 1 : 0;
  results->workspaceBytes = library.wanted;
  results->algorithm[3] = 42;  // By this value matmul recognises the algorithm.
  return preferences.get<size_t>(cublaslt::PREFERENCE_WORKSPACE, 0) == 0 ? 7 : 0;
}
inline int matmul(void*, void* operation, const void* alpha, const void* a, void* layoutA, const void* b, void* layoutB, const void* beta, const void* c,
           void* layoutC, void* d, void* layoutD, const void* algorithm, void* workspace, size_t workspaceBytes, cudaStream_t stream) {
  library.attempts++;
  if (library.failure != 0) return library.failure;
  const auto &la = *static_cast<Layout*>(layoutA), &lb = *static_cast<Layout*>(layoutB);
  const auto &lc = *static_cast<Layout*>(layoutC), &ld = *static_cast<Layout*>(layoutD);
  if (static_cast<const uint64_t*>(algorithm)[3] != 42 || !workspace || workspaceBytes < library.wanted) return 7;
  if (la.rows != lb.rows || ld.rows != la.columns || ld.columns != lb.columns || c != d || lc.leading != ld.leading) return 7;
  library.products++;
  testing::cudaOk(cudaStreamSynchronize(stream));
  const std::vector<double> av = fetch(a, la), bv = fetch(b, lb);
  const float scale = *static_cast<const float*>(alpha);
  if (*static_cast<const float*>(beta) != 0) return 7;
  std::vector<double> bias;
  const auto& attributes = *static_cast<Operation*>(operation);
  if (attributes.get<int>(cublaslt::OPERATION_EPILOGUE, 1) == cublaslt::EPILOGUE_BIAS)
    bias = fetch(attributes.get<const void*>(cublaslt::OPERATION_BIAS_POINTER, nullptr),
                 {attributes.get<int>(cublaslt::OPERATION_BIAS_TYPE, 0), ld.rows, 1, 0});
  std::vector<double> dv(ld.rows * ld.columns);
  for (uint64_t column = 0; column < ld.columns; column++)
    for (uint64_t row = 0; row < ld.rows; row++) {
      double sum = 0;
      for (uint64_t k = 0; k < la.rows; k++) sum += av[row * la.leading + k] * bv[column * lb.leading + k];
      dv[column * ld.rows + row] = scale * sum + (bias.empty() ? 0 : bias[row]);
    }
  if (ld.type == cublaslt::R_32F) {
    store<float>(d, ld, dv);
  } else {
    store<bf16>(d, ld, dv);
  }
  return 0;
}

inline CublasLt* open() {
  library = {};
  CublasLtFunctions f{};
  f.create = [](void** handle) { return make(handle, 0); };
  f.destroy = destroy<int>;
  f.matmul = matmul;
  f.createOperation = [](void** operation, int compute, int scale) {
    return compute == cublaslt::COMPUTE_32F && scale == cublaslt::R_32F ? make(operation, Operation{}) : 7;
  };
  f.destroyOperation = destroy<Operation>;
  f.setOperation = setAttribute;
  f.createLayout = [](void** layout, int type, uint64_t rows, uint64_t columns, int64_t leading) { return make(layout, Layout{type, rows, columns, leading}); };
  f.destroyLayout = destroy<Layout>;
  f.createPreference = [](void** preference) { return make(preference, Operation{}); };
  f.destroyPreference = destroy<Operation>;
  f.setPreference = setAttribute;
  f.heuristic = heuristic;
  return makeCublasLt(f, nullptr);
}

}  // namespace pie::cublasTesting
