// Tests the wrapper's layouts, transposition, bias and sums with a small stand-in that implements cuBLASLt's documented argument semantics.
// The stand-in copies matrices through the host, so that these tests also run on a GPU.
#include "linear-cublas.h"
#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include "../testing/device.h"
#include "../testing/test.h"
#include "linear-choice.h"

using namespace pie;
using testing::DeviceArray;
using testing::Random;

namespace {

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
  int objects = 0, heuristics = 0, products = 0;
  bool knowsAny = true, fails = false;
  size_t wanted = 1024;
} library;

std::vector<double> fetch(const void* from, const Layout& layout) {
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
void store(void* to, const Layout& layout, const std::vector<double>& values) {
  for (uint64_t c = 0; c < layout.columns; c++) {
    std::vector<T> column(layout.rows);
    for (uint64_t r = 0; r < layout.rows; r++) column[r] = static_cast<T>(static_cast<float>(values[c * layout.rows + r]));
    testing::cudaOk(cudaMemcpy(static_cast<T*>(to) + c * layout.leading, column.data(), column.size() * sizeof(T), cudaMemcpyHostToDevice));
  }
}

template <typename T>
int make(void** object, T value) {
  library.objects++;
  *object = new T(value);
  return 0;
}
template <typename T>
int destroy(void* object) {
  library.objects--;
  delete static_cast<T*>(object);
  return 0;
}
int setAttribute(void* object, int attribute, const void* value, size_t bytes) {
  const auto* from = static_cast<const uint8_t*>(value);
  static_cast<Operation*>(object)->attributes[attribute].assign(from, from + bytes);
  return 0;
}
int heuristic(void*, void* operation, void*, void*, void*, void*, void* preference, int, CublasLtHeuristic* results, int* found) {
  library.heuristics++;
  const auto& preferences = *static_cast<Operation*>(preference);
  for (int i = 0; i < 4; i++) {
    const uint32_t alignment = preferences.get<uint32_t>(cublaslt::PREFERENCE_ALIGNMENT_A + i, 0);
    if (alignment < 2 || alignment > 256 || (alignment & (alignment - 1)) != 0) return 7;
  }
  if (static_cast<Operation*>(operation)->get<int>(cublaslt::OPERATION_TRANSA, 0) != 1) return 7;
  *found = library.knowsAny ? 1 : 0;
  results->workspaceBytes = library.wanted;
  results->algorithm[3] = 42;
  return preferences.get<size_t>(cublaslt::PREFERENCE_WORKSPACE, 0) == 0 ? 7 : 0;
}
int matmul(void*, void* operation, const void* alpha, const void* a, void* layoutA, const void* b, void* layoutB, const void* beta, const void* c,
           void* layoutC, void* d, void* layoutD, const void* algorithm, void* workspace, size_t workspaceBytes, cudaStream_t stream) {
  if (library.fails) return 13;
  const auto &la = *static_cast<Layout*>(layoutA), &lb = *static_cast<Layout*>(layoutB);
  const auto &lc = *static_cast<Layout*>(layoutC), &ld = *static_cast<Layout*>(layoutD);
  if (static_cast<const uint64_t*>(algorithm)[3] != 42 || !workspace || workspaceBytes < library.wanted) return 7;
  if (la.rows != lb.rows || ld.rows != la.columns || ld.columns != lb.columns || c != d || lc.leading != ld.leading) return 7;
  library.products++;
  testing::cudaOk(cudaStreamSynchronize(stream));
  const std::vector<double> av = fetch(a, la), bv = fetch(b, lb);
  const float scale = *static_cast<const float*>(alpha), keep = *static_cast<const float*>(beta);
  std::vector<double> before, bias;
  if (keep != 0) before = fetch(c, lc);
  const auto& attributes = *static_cast<Operation*>(operation);
  if (attributes.get<int>(cublaslt::OPERATION_EPILOGUE, 1) == cublaslt::EPILOGUE_BIAS)
    bias = fetch(attributes.get<const void*>(cublaslt::OPERATION_BIAS_POINTER, nullptr),
                 {attributes.get<int>(cublaslt::OPERATION_BIAS_TYPE, 0), ld.rows, 1, 0});
  std::vector<double> dv(ld.rows * ld.columns);
  for (uint64_t column = 0; column < ld.columns; column++)
    for (uint64_t row = 0; row < ld.rows; row++) {
      double sum = 0;
      for (uint64_t k = 0; k < la.rows; k++) sum += av[row * la.leading + k] * bv[column * lb.leading + k];
      sum *= scale;
      if (keep != 0) sum += keep * before[column * lc.leading + row];
      dv[column * ld.rows + row] = sum + (bias.empty() ? 0 : bias[row]);
    }
  if (ld.type == cublaslt::R_32F) {
    store<float>(d, ld, dv);
  } else {
    store<bf16>(d, ld, dv);
  }
  return 0;
}

CublasLt* open() {
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

struct Product {
  static constexpr int ROWS = 133, OUTPUTS = 48, INPUTS = 40, X_STRIDE = 48, Y_STRIDE = 56;
  std::vector<bf16> w, x, b, before;
  Product() {
    Random random(3);
    w = random.normals<bf16>(OUTPUTS * INPUTS), x = random.normals<bf16>(ROWS * X_STRIDE, 0.15), b = random.normals<bf16>(OUTPUTS);
    before = random.normals<bf16>(ROWS * Y_STRIDE);
  }
  template <typename Y>
  void check(Epilogue epilogue, const LinearContext& context) const {
    const DeviceArray<bf16> weight(w), input(x), bias(b);
    std::vector<Y> start(ROWS * Y_STRIDE);
    for (size_t i = 0; i < start.size(); i++) start[i] = static_cast<Y>(static_cast<float>(before[i]));
    const DeviceArray<Y> y(start);
    launchLinear<bf16>({weight, bias, OUTPUTS, INPUTS}, input, X_STRIDE, y, Y_STRIDE, ROWS, epilogue, context, nullptr);
    std::vector<double> expected(start.size());
    for (size_t i = 0; i < start.size(); i++) expected[i] = static_cast<float>(start[i]);
    for (int r = 0; r < ROWS; r++) {
      std::vector<double> sums(OUTPUTS);
      for (int o = 0; o < OUTPUTS; o++) {
        sums[o] = static_cast<float>(b[o]);
        for (int k = 0; k < INPUTS; k++) sums[o] += static_cast<double>(static_cast<float>(x[r * X_STRIDE + k])) * static_cast<float>(w[o * INPUTS + k]);
      }
      for (int o = 0; o < OUTPUTS; o++) {
        double& to = expected[r * Y_STRIDE + (epilogue == Epilogue::SwiGlu ? o / 2 : o)];
        if (epilogue == Epilogue::Store || epilogue == Epilogue::Wide) to = sums[o];
        if (epilogue == Epilogue::SwiGlu && o % 2 == 0) to = sums[o] / (1 + std::exp(-sums[o])) * sums[o + 1];
      }
    }
    std::vector<float> actual;
    for (const Y value : y.host()) actual.push_back(static_cast<float>(value));
    CHECK_ALL_CLOSE(actual, expected, epilogue == Epilogue::Wide ? 1e-5 : 6e-2);  // Half a step of bf16 at 8; SwiGLU's factors are rounded as well.
  }
  void checkAll(const LinearContext& context) const {
    for (const Epilogue epilogue : {Epilogue::Store, Epilogue::SwiGlu}) check<bf16>(epilogue, context);
    check<float>(Epilogue::Wide, context);
  }
};

struct Context : LinearContext {
  const DeviceArray<float> memory{linearWorkspaceBytes(256, 64, 2) / sizeof(float)};
  Context() {
    testing::cudaOk(cudaMemset(memory, 0, LINEAR_COUNTERS * sizeof(unsigned)));
    testing::cudaOk(cudaDeviceSynchronize());
    workspace = memory, workspaceBytes = memory.size() * sizeof(float), multiprocessors = 2;
  }
};

}  // namespace

TEST("cublas: every epilogue, plans are cached, every object is destroyed") {
  Context context;
  context.cublas = open();
  REQUIRE(context.cublas);
  const Product product;
  product.checkAll(context);
  CHECK_EQUAL(library.products, 3);
  CHECK_EQUAL(library.heuristics, 3);
  library.fails = true;  // Another kernel takes over.
  product.checkAll(context);
  CHECK_EQUAL(library.products, 3);
  closeCublasLt(context.cublas);
  CHECK_EQUAL(library.objects, 0);
}

TEST("cublas: a library without an algorithm, or whose algorithm needs too much workspace") {
  Context context;
  const Product product;
  for (const bool knowsAny : {false, true}) {
    context.cublas = open();
    library.knowsAny = knowsAny, library.wanted = size_t{1} << 40;
    product.checkAll(context);
    context.workspaceBytes = 100000;
    product.checkAll(context);
    context.workspaceBytes = context.memory.size() * sizeof(float);
    CHECK_EQUAL(library.products, 0);
    closeCublasLt(context.cublas);
    CHECK_EQUAL(library.objects, 0);
  }
}

TEST("cublas: nearby row counts share an algorithm, and each has its own layout") {
  Context context;
  context.cublas = open();
  REQUIRE(context.cublas);
  const Product product;
  const DeviceArray<bf16> weight(product.w), input(product.x), bias(product.b);
  const auto rowsOf = [&](int rows) {
    const DeviceArray<bf16> y(std::vector<bf16>(Product::ROWS * Product::OUTPUTS, bf16(0.0f)));
    launchLinear<bf16>({weight, bias, Product::OUTPUTS, Product::INPUTS}, input, Product::X_STRIDE, y, Product::OUTPUTS, rows, Epilogue::Store, context,
                       nullptr);
    std::vector<float> values;
    for (const bf16 value : y.host()) values.push_back(static_cast<float>(value));
    return values;
  };
  const std::vector<float> most = rowsOf(133);
  for (const int rows : {129, 132, 130}) {
    std::vector<float> expected = most;
    std::fill(expected.begin() + rows * Product::OUTPUTS, expected.end(), 0.0f);
    CHECK(rowsOf(rows) == expected);
  }
  CHECK_EQUAL(library.products, 4);
  CHECK_EQUAL(library.heuristics, 1);
  closeCublasLt(context.cublas);
  CHECK_EQUAL(library.objects, 0);
}
