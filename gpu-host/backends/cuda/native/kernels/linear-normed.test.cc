// Products that normalise their input against separate norm and product kernels, which have their own tests: bit for bit.
#include "linear-normed.h"
#include <cstring>
#include "../testing/device.h"
#include "../testing/test.h"
#include "linear-choice.h"
#include "rows.h"

using namespace pie;
using testing::DeviceArray;
using testing::Random;

namespace {

constexpr float EPSILON = 1e-5f;
constexpr int ROWS_THERE = 7;  // Rows of the residual, of which some are picked.

enum class Weights { Bf16, Int8, Float8, Int4 };
constexpr Weights ALL_WEIGHTS[] = {Weights::Bf16, Weights::Int8, Weights::Float8, Weights::Int4};

// A matrix with weights of any format.
struct Matrix {
  DeviceArray<bf16> plain, bias, groupScales;
  DeviceArray<uint8_t> codes;
  DeviceArray<float> scales;
  Linear<bf16> linear;
  LinearNarrow narrow;
  bool isNarrow;

  Matrix(Weights weights, int outputs, int inputs, Random& random)
      : plain(random.normals<bf16>(static_cast<size_t>(outputs) * inputs)), bias(random.normals<bf16>(outputs)),
        groupScales(narrowGroupScales(outputs, inputs) + 8), codes(static_cast<size_t>(outputs) * inputs), scales(outputs),
        linear{plain, bias, outputs, inputs}, isNarrow(weights != Weights::Bf16) {
    if (!isNarrow) return;
    const WeightFormat format = weights == Weights::Int8 ? WeightFormat::Int8 : weights == Weights::Float8 ? WeightFormat::Float8 : WeightFormat::Int4;
    narrow = {format, codes, scales, groupScales, bias, outputs, inputs};
    launchQuantise(narrow, plain, 0, outputs, nullptr);
  }

  void product(const bf16* x, void* y, int yStride, int rows, Epilogue epilogue, const LinearContext& context) const {
    if (isNarrow) launchLinear(narrow, x, linear.inputs, y, yStride, rows, epilogue, context, nullptr);
    else launchLinear(linear, x, linear.inputs, y, yStride, rows, epilogue, context, nullptr);
  }
  bool normed(const NormedInput<bf16>& x, void* y, int yStride, int rows, Epilogue epilogue, const LinearContext& context) const {
    return isNarrow ? launchNormedLinear(narrow, x, y, yStride, rows, epilogue, context, nullptr)
                    : launchNormedLinear(linear, x, y, yStride, rows, epilogue, context, nullptr);
  }
};

template <typename T>
bool same(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

struct Shape {
  Weights weights;
  int rows, outputs, inputs;
  bool delta = true, pick = false;
  int splits = 0;
  Epilogue epilogue = Epilogue::Store;
};

LinearContext contextOf(const Shape& shape) {
  LinearContext context;
  context.multiprocessors = 2;  // Few, so that each block computes several groups of outputs.
  context.tuning.kernel = LinearKernel::Vector;
  context.tuning.splits = shape.splits;
  return context;
}

// Returns whether the kernel accepted the shape; if so, checks its result.
bool check(const Shape& shape) {
  const auto [weights, rows, outputs, inputs, delta, pick, splits, epilogue] = shape;
  Random random(inputs + outputs);
  const Matrix matrix(weights, outputs, inputs, random);
  const size_t width = static_cast<size_t>(ROWS_THERE) * inputs, results = static_cast<size_t>(ROWS_THERE) * outputs;
  const std::vector<float> values = random.normals<float>(width, 3);
  const DeviceArray<float> residual(values), added(values), sum(std::vector<float>(width, 0.5f));
  const DeviceArray<bf16> deltas(random.normals<bf16>(width)), norm(random.normals<bf16>(inputs)), x(width);
  const DeviceArray<int> picked(std::vector<int>{5, 2, 6, 0, 3});
  // Holds floats, or twice as many bf16 values.
  const DeviceArray<float> separate(std::vector<float>(results, 0.5f)), joined(std::vector<float>(results, 0.5f));
  const int yStride = epilogue == Epilogue::SwiGlu ? outputs / 2 : outputs;
  const LinearContext context = contextOf(shape);
  const bool keep = delta && !pick;
  const NormedInput<bf16> input{keep ? sum.get() : nullptr, residual, delta ? deltas.get() : nullptr, pick ? picked.get() : nullptr, norm, EPSILON};
  const bool taken = matrix.normed(input, joined, yStride, rows, epilogue, context);
  testing::cudaOk(cudaGetLastError());
  CHECK(same(residual.host(), values));
  std::vector<float> expectedSum(width, 0.5f);
  if (taken) {
    if (pick) launchPickNorm<bf16>(nullptr, x, residual, input.delta, picked, norm, rows, inputs, EPSILON, nullptr);
    else launchAddNorm<bf16>(x, added, input.delta, norm, rows, inputs, EPSILON, nullptr);
    matrix.product(x, separate, yStride, rows, epilogue, context);
    testing::cudaOk(cudaGetLastError());
    const std::vector<float> after = added.host();
    if (keep) std::copy(after.begin(), after.begin() + static_cast<size_t>(rows) * inputs, expectedSum.begin());
  }
  CHECK(same(joined.host(), separate.host()));
  CHECK(same(sum.host(), expectedSum));
  return taken;
}

}  // namespace

TEST("a normalising product equals norm and product bit for bit, for all weights, widths and splits") {
  for (const Weights weights : ALL_WEIGHTS) {
    for (const int rows : {1, 2})
      for (const int inputs : {32, 96, 2080, 4096})
        for (const bool delta : {true, false}) CHECK(check({weights, rows, 70, inputs, delta}));
    for (const int splits : {1, 2, 4, 8}) CHECK(check({weights, 2, 198, 1056, true, false, splits}));
    for (const Epilogue epilogue : {Epilogue::Wide, Epilogue::SwiGlu, Epilogue::Add}) CHECK(check({weights, 1, 130, 512, true, false, 0, epilogue}));
    for (const int rows : {1, 2}) CHECK(check({weights, rows, 77, 512, true, true, 0, Epilogue::Wide}));
  }
  // Odd output counts, fewer than a block computes.
  CHECK(check({Weights::Bf16, 1, 1, 64}));
  CHECK(check({Weights::Bf16, 2, 3, 8}));
}

TEST("a normalising product declines more rows or inputs, odd widths and addresses, and other kernels") {
  for (const Weights weights : ALL_WEIGHTS) {
    CHECK(!check({weights, 3, 64, 128}));
    CHECK(!check({weights, 5, 64, 128}));
    CHECK(!check({weights, 1, 64, 4128}));
  }
  CHECK(!check({Weights::Bf16, 1, 64, 100}));
  CHECK(!check({Weights::Bf16, 0, 64, 128}));
  Random random(1);
  const Matrix matrix(Weights::Bf16, 16, 64, random);
  const DeviceArray<float> residual(128), y(64);
  const DeviceArray<bf16> norm(random.normals<bf16>(64));
  LinearContext context = contextOf({});
  CHECK(matrix.normed({nullptr, residual, nullptr, nullptr, norm, EPSILON}, y, 16, 1, Epilogue::Store, context));
  CHECK(!matrix.normed({nullptr, residual + 1, nullptr, nullptr, norm, EPSILON}, y, 16, 1, Epilogue::Store, context));
  CHECK(!matrix.normed({nullptr, residual, nullptr, nullptr, norm + 1, EPSILON}, y, 16, 1, Epilogue::Store, context));
  context.tuning.kernel = LinearKernel::Plain;
  CHECK(!matrix.normed({nullptr, residual, nullptr, nullptr, norm, EPSILON}, y, 16, 1, Epilogue::Store, context));
  testing::cudaOk(cudaDeviceSynchronize());
}
