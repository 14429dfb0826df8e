// 8-bit weights against a plain sum in double over the very values that the integers and scales stand for: what quantising loses is checked apart.
#include "linear-int8.h"
#include <array>
#include <cmath>
#include "../testing/device.h"
#include "../testing/test.h"
#include "linear-choice.h"
#include "linear-weights.h"

using namespace pie;
using testing::DeviceArray;
using testing::Random;

namespace {

double wideOf(bf16 value) { return static_cast<double>(static_cast<float>(value)); }

struct Quantised {
  std::vector<int8_t> values;
  std::vector<float> scales;
};
Quantised quantised(const std::vector<bf16>& w, int outputs, int inputs) {
  const DeviceArray<bf16> from(w);
  const DeviceArray<int8_t> values(w.size());
  const DeviceArray<float> scales(outputs);
  launchQuantise(values, scales, from, outputs, inputs, nullptr);
  return {values.host(), scales.host()};
}

struct Shape {
  int rows, outputs, inputs;
  int yGap = 0;
};

void check(const Shape& shape, Epilogue epilogue, LinearTuning tuning) {
  const auto [rows, outputs, inputs, yGap] = shape;
  Random random(5);
  const Quantised q = quantised(random.normals<bf16>(static_cast<size_t>(outputs) * inputs), outputs, inputs);
  const std::vector<bf16> x = random.normals<bf16>(static_cast<size_t>(rows) * inputs, 1 / std::sqrt(inputs)), b = random.normals<bf16>(outputs);
  const int width = epilogue == Epilogue::SwiGlu ? outputs / 2 : outputs, stride = width + yGap;
  const bool wide = epilogue == Epilogue::Wide;
  const DeviceArray<int8_t> values(q.values);
  const DeviceArray<float> scales(q.scales), wideY(std::vector<float>(static_cast<size_t>(rows) * stride, 0.5f)), workspace(std::vector<float>(1 << 20, 0.0f));
  const DeviceArray<bf16> deviceX(x), bias(b), narrowY(std::vector<bf16>(static_cast<size_t>(rows) * stride, bf16(0.5f)));
  LinearContext context;
  context.workspace = workspace, context.workspaceBytes = workspace.size() * sizeof(float), context.multiprocessors = 3, context.tuning = tuning;
  const LinearInt8 linear{values, scales, bias, outputs, inputs};
  launchLinear(linear, deviceX, inputs, wide ? static_cast<void*>(wideY.get()) : narrowY.get(), stride, rows, epilogue, context, nullptr);
  testing::cudaOk(cudaGetLastError());
  const std::vector<float> wideResult = wideY.host();
  const std::vector<bf16> narrowResult = narrowY.host();
  double error = 0, norm = 0;
  for (int r = 0; r < rows; r++) {
    std::vector<double> sums(outputs);
    for (int o = 0; o < outputs; o++) {
      const int8_t* line = q.values.data() + static_cast<size_t>(o) * inputs;
      for (int k = 0; k < inputs; k++) sums[o] += wideOf(x[r * inputs + k]) * line[int8Place(k)];
      sums[o] = sums[o] * q.scales[o] + wideOf(b[o]);
    }
    for (int i = 0; i < stride; i++) {
      double expected = 0.5;
      if (i < width && epilogue == Epilogue::SwiGlu) {
        expected = sums[2 * i] / (1 + std::exp(-sums[2 * i])) * sums[2 * i + 1];
      } else if (i < width) {
        expected = sums[i] + (epilogue == Epilogue::Add ? 0.5 : 0);
      }
      const double actual = wide ? wideResult[r * stride + i] : static_cast<float>(narrowResult[r * stride + i]);
      error += std::pow(actual - expected, 2), norm += expected * expected;
    }
  }
  const double relative = std::sqrt(error / norm);
  if (!(relative <= (wide ? 2e-6 : 3e-3)))
    testing::fail(__FILE__, __LINE__,
                  testing::text(rows) + " × " + testing::text(outputs) + " × " + testing::text(inputs) + ", epilogue " + testing::text(epilogue) + ", kernel " +
                      testing::text(tuning.kernel) + ", tile " + testing::text(tuning.tile) + ": error " + testing::text(relative));
}

}  // namespace

TEST("linear int8: quantising by line: largest values exact, others within half a step") {
  constexpr int OUTPUTS = 6, INPUTS = 272;
  Random random(2);
  std::vector<bf16> w = random.normals<bf16>(OUTPUTS * INPUTS);
  for (int k = 0; k < INPUTS; k++) w[3 * INPUTS + k] = bf16(0.0f);
  w[4 * INPUTS + 7] = bf16(INFINITY);
  w[5 * INPUTS + 9] = bf16(NAN);
  const Quantised q = quantised(w, OUTPUTS, INPUTS);
  for (int o = 0; o < 3; o++) {
    float most = 0;
    for (int k = 0; k < INPUTS; k++) most = std::max(most, static_cast<float>(std::fabs(wideOf(w[o * INPUTS + k]))));
    CHECK_CLOSE(q.scales[o], most / 127, 1e-7);
    double worst = 0;
    for (int k = 0; k < INPUTS; k++)
      worst = std::max(worst, std::fabs(wideOf(w[o * INPUTS + k]) - static_cast<double>(q.values[o * INPUTS + int8Place(k)]) * q.scales[o]));
    CHECK(worst <= q.scales[o] * 0.501);
  }
  CHECK_EQUAL(q.scales[3], 0.0f);
  CHECK(std::isnan(q.scales[4]));
  CHECK(std::isnan(q.scales[5]));
}

TEST("linear int8: every byte becomes its own bf16") {
  // One line that holds all values from -127 to 127, times a unit vector each.
  constexpr int INPUTS = 256;
  std::vector<bf16> w(2 * INPUTS);
  for (int k = 0; k < INPUTS; k++) w[k] = w[INPUTS + k] = bf16(static_cast<float>(k < 255 ? k - 127 : 0));
  const Quantised q = quantised(w, 2, INPUTS);
  std::vector<bf16> x(32 * INPUTS, bf16(0.0f));
  const DeviceArray<int8_t> values(q.values);
  const DeviceArray<float> scales(q.scales), y(32 * 2);
  LinearContext context;
  context.multiprocessors = 2;
  for (const LinearKernel kernel : {LinearKernel::Skinny, LinearKernel::Vector}) {
    const int rows = kernel == LinearKernel::Skinny ? 32 : 4;
    context.tuning.kernel = kernel;
    size_t wrong = 0;
    for (int first = 0; first < INPUTS; first += 32) {
      for (int r = 0; r < rows; r++)
        for (int k = 0; k < INPUTS; k++) x[r * INPUTS + k] = bf16(k == first + r * 32 / rows ? 1.0f : 0.0f);
      const DeviceArray<bf16> deviceX(x);
      launchLinear(LinearInt8{values, scales, nullptr, 2, INPUTS}, deviceX, INPUTS, y, 2, rows, Epilogue::Wide, context, nullptr);
      const std::vector<float> result = y.host();
      for (int r = 0; r < rows; r++) wrong += result[r * 2] != static_cast<float>(w[first + r * 32 / rows]);
    }
    CHECK_EQUAL(wrong, size_t{0});
  }
}

TEST("linear int8: every kernel and epilogue") {
  int turn = 0;
  for (const Epilogue epilogue : {Epilogue::Store, Epilogue::Wide, Epilogue::SwiGlu, Epilogue::Add}) {
    LinearTuning tuning;
    tuning.kernel = LinearKernel::Plain;
    check({5, 46, 80, 3}, epilogue, tuning);
    tuning.kernel = LinearKernel::Vector;
    for (const int rows : {1, 2, 3}) check({rows, 46, 1104, 3}, epilogue, tuning);
    tuning.kernel = LinearKernel::Skinny;
    for (const int columns : LINEAR_SKINNY_COLUMNS) {
      tuning.columns = columns;
      check({std::array{7, 13, 30}[turn++ % 3], 54, 1104, 3}, epilogue, tuning);
    }
    tuning.kernel = LinearKernel::Tiles;
    for (tuning.tile = 0; tuning.tile < LINEAR_TILE_COUNT; tuning.tile++) {
      tuning.blocks = turn++ % 2 == 0 ? 1 : 3;
      check({21, 272, 208}, epilogue, tuning);
    }
    tuning.tile = 1;
    check({21, 46, 80, 1}, epilogue, tuning);
  }
  for (const int rows : {1, 3, 20, 70, 140}) check({rows, 144, 144}, Epilogue::Store, {});
}
