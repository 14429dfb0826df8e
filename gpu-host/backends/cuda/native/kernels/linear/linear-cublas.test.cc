// Tests the layouts, transposition, bias and plans of the cuBLASLt wrapper, with a stand-in for the library.
#include "linear-cublas.h"
#include <algorithm>
#include <cmath>
#include "linear-choice.h"
#include "../../testing/cublas.h"

using namespace pie;
using testing::DeviceArray;
using testing::Random;
using namespace cublasTesting;

namespace {

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

TEST("cublas: every epilogue is computed, plans are cached, and every object is destroyed") {
  Context context;
  context.cublas = open();
  REQUIRE(context.cublas);
  const Product product;
  product.checkAll(context);
  CHECK_EQUAL(library.products, 3);
  CHECK_EQUAL(library.heuristics, 3);
  // The library refuses each product once. Another kernel computes it, and the second run does not ask the library again.
  library.failure = cublaslt::NOT_SUPPORTED;
  product.checkAll(context);
  product.checkAll(context);
  CHECK_EQUAL(library.products, 3);
  CHECK_EQUAL(library.attempts, 6);
  closeCublasLt(context.cublas);
  CHECK_EQUAL(library.objects, 0);
}

TEST("cublas: a product whose launch failed is tried again") {
  constexpr int EXECUTION_FAILED = 13;
  Context context;
  context.cublas = open();
  REQUIRE(context.cublas);
  const Product product;
  library.failure = EXECUTION_FAILED;
  product.checkAll(context);
  CHECK_EQUAL(library.products, 0);
  library.failure = 0;
  product.checkAll(context);
  CHECK_EQUAL(library.products, 3);
  CHECK_EQUAL(library.heuristics, 3);
  closeCublasLt(context.cublas);
  CHECK_EQUAL(library.objects, 0);
}

TEST("cublas: another kernel runs if the library has no algorithm, or only one that needs too much workspace") {
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
