// Tests weights of 8 and 4 bits: compares codes and scales with a plain rounding in double, and products with a plain sum in double over the decoded
// values. The quantisation error is checked separately.
#include "linear-narrow.h"
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include "../../testing/device.h"
#include "../../testing/test.h"
#include "linear-choice.h"
#include "../../testing/cublas.h"
#include "linear-weights.h"
#include "linear-widen.h"

using namespace pie;
using testing::DeviceArray;
using testing::Random;

namespace {

constexpr WeightFormat FORMATS[] = {WeightFormat::Int8, WeightFormat::Float8, WeightFormat::Int4};

double wideOf(bf16 value) { return static_cast<double>(static_cast<float>(value)); }

// A quantised matrix on the device.
struct Quantised {
  DeviceArray<uint8_t> weight;
  DeviceArray<float> scales;
  DeviceArray<bf16> groupScales;
  LinearNarrow linear;

  Quantised(WeightFormat format, const std::vector<bf16>& w, int outputs, int inputs)
      : weight(narrowWeightBytes(format, outputs, inputs)), scales(outputs), groupScales(narrowGroupScales(outputs, inputs)) {
    linear = {format, weight, scales, groupScales, nullptr, outputs, inputs};
    const DeviceArray<bf16> from(w);
    // In two parts, as the weight loader does.
    const int some = outputs / 3;
    launchQuantise(linear, from, 0, some, nullptr);
    launchQuantise(linear, from + static_cast<size_t>(some) * inputs, some, outputs - some, nullptr);
    testing::cudaOk(cudaGetLastError());
  }

  // Codes as numbers, in the order of the inputs.
  std::vector<double> codes() const {
    const std::vector<uint8_t> bytes = weight.host();
    std::vector<uint32_t> words(bytes.size() / 4);
    std::memcpy(words.data(), bytes.data(), bytes.size());
    std::vector<double> result;
    for (int o = 0; o < linear.outputs; o++)
      for (int k = 0; k < linear.inputs; k++) {
        if (linear.format == WeightFormat::Int4) {
          result.push_back(static_cast<int>(words[static_cast<size_t>(o) * (linear.inputs / 8) + int4Word(k)] >> int4Shift(k) & 15) - 8);
          continue;
        }
        const uint32_t word = words[static_cast<size_t>(o) * (linear.inputs / 4) + bytePlace(k) / 4];
        if (linear.format == WeightFormat::Int8) {
          result.push_back(static_cast<int8_t>(word >> bytePlace(k) % 4 * 8));
        } else {
          const uint8_t code = float8Code(word, bytePlace(k) % 4);
          const int exponent = code >> 3 & 15, fraction = code & 7;
          CHECK((code & 0x7f) != 0x7f);
          result.push_back((code & 0x80 ? -1 : 1) * std::ldexp(exponent == 0 ? fraction : fraction + 8, std::max(exponent, 1) - 10));
        }
      }
    return result;
  }
  // The scale of each value.
  std::vector<float> valueScales() const {
    const std::vector<float> byLine = scales.host();
    const std::vector<bf16> byGroup = groupScales.host();
    std::vector<float> result;
    for (int o = 0; o < linear.outputs; o++)
      for (int k = 0; k < linear.inputs; k++)
        result.push_back(linear.format == WeightFormat::Int4
                             ? static_cast<float>(byGroup[static_cast<size_t>(k / narrowGroup(linear.inputs)) * narrowGroupStride(linear.outputs) + o])
                             : byLine[o]);
    return result;
  }
};

// The nearest representable value; ties go to the even code.
double nearest(WeightFormat format, double value) {
  if (format == WeightFormat::Int8) return std::min(std::max(std::nearbyint(value), -127.0), 127.0);
  if (format == WeightFormat::Int4) return std::min(std::max(std::nearbyint(value), -8.0), 7.0);
  double best = 0, distance = INFINITY;
  for (int code = 0; code < 127; code++) {
    const double size = code < 8 ? code / 512.0 : std::ldexp(1 + code % 8 / 8.0, code / 8 - 7), its = std::fabs(std::fabs(value) - size);
    if (its < distance || (its == distance && code % 2 == 0)) best = size, distance = its;
  }
  return value < 0 ? -best : best;
}

// The scale that the values of one line or group share.
float scaleOf(WeightFormat format, const bf16* values, int count) {
  double most = 0, least = 0;
  for (int i = 0; i < count; i++) most = std::max(most, wideOf(values[i])), least = std::min(least, wideOf(values[i]));
  const double size = std::max(most, -least);
  if (format != WeightFormat::Int4) return static_cast<float>(size) / (format == WeightFormat::Int8 ? 127 : 448);
  if (size == 0) return 0;
  // A value of magnitude `size` maps to -8; the scale keeps five significant bits.
  const int exponent = std::ilogb(size / 8) - 4;
  return static_cast<float>((most >= -least ? -1 : 1) * std::ldexp(std::nearbyint(std::ldexp(size / 8, -exponent)), exponent));
}

struct Shape {
  int rows, outputs, inputs;
  int yGap = 0;
};

// Operands, and the plain sums of their product.
struct Product {
  Quantised q;
  std::vector<bf16> x, b;
  std::vector<double> sums;  // rows × outputs, with the bias.

  Product(WeightFormat format, int rows, int outputs, int inputs, Random random = Random(5))
      : q(format, random.normals<bf16>(static_cast<size_t>(outputs) * inputs), outputs, inputs),
        x(random.normals<bf16>(static_cast<size_t>(rows) * inputs, 1 / std::sqrt(inputs))),
        b(random.normals<bf16>(outputs)) {
    std::vector<double> values = q.codes();
    const std::vector<float> valueScales = q.valueScales();
    for (size_t i = 0; i < values.size(); i++) values[i] *= valueScales[i];
    for (int r = 0; r < rows; r++) {
      std::vector<double> row(inputs);
      for (int k = 0; k < inputs; k++) row[k] = wideOf(x[r * inputs + k]);
      for (int o = 0; o < outputs; o++) {
        const double* line = &values[static_cast<size_t>(o) * inputs];
        double sum = 0;
        for (int k = 0; k < inputs; k++) sum += row[k] * line[k];
        sums.push_back(sum + wideOf(b[o]));
      }
    }
  }
};

// Computes the product of each shape once, for all kernels and epilogues.
class Products {
 public:
  explicit Products(WeightFormat format) : format_(format) {}
  const Product& of(const Shape& shape) {
    std::unique_ptr<Product>& known = known_[{shape.rows, shape.outputs, shape.inputs}];
    if (!known) known = std::make_unique<Product>(format_, shape.rows, shape.outputs, shape.inputs);
    return *known;
  }

 private:
  const WeightFormat format_;
  std::map<std::array<int, 3>, std::unique_ptr<Product>> known_;
};

void check(Products& products, const Shape& shape, Epilogue epilogue, LinearTuning tuning, CublasLt* cublas = nullptr, size_t workspaceBytes = 1 << 20) {
  const auto [rows, outputs, inputs, yGap] = shape;
  const Product& product = products.of(shape);
  const int width = epilogue == Epilogue::SwiGlu ? outputs / 2 : outputs, stride = width + yGap;
  const bool wide = epilogue == Epilogue::Wide;
  const DeviceArray<float> wideY(std::vector<float>(static_cast<size_t>(rows) * stride, 0.5f)), workspace(std::vector<float>(workspaceBytes / sizeof(float), 0.0f));
  const DeviceArray<bf16> deviceX(product.x), bias(product.b), narrowY(std::vector<bf16>(static_cast<size_t>(rows) * stride, bf16(0.5f)));
  LinearContext context;
  context.workspace = workspace, context.workspaceBytes = workspace.size() * sizeof(float), context.multiprocessors = 3, context.tuning = tuning;
  context.cublas = cublas;
  LinearNarrow linear = product.q.linear;
  linear.bias = bias;
  if (tuning.kernel != LinearKernel::Auto) CHECK(linearSupports(tuning.kernel, linear, deviceX, inputs, rows, context));
  launchLinear(linear, deviceX, inputs, wide ? static_cast<void*>(wideY.get()) : narrowY.get(), stride, rows, epilogue, context, nullptr);
  testing::cudaOk(cudaGetLastError());
  const std::vector<float> left = workspace.host();
  CHECK(std::all_of(left.begin(), left.begin() + LINEAR_COUNTERS, [](float counter) { return counter == 0; }));
  const std::vector<float> wideResult = wideY.host();
  const std::vector<bf16> narrowResult = narrowY.host();
  double error = 0, norm = 0;
  for (int r = 0; r < rows; r++) {
    const double* sums = &product.sums[static_cast<size_t>(r) * outputs];
    for (int i = 0; i < stride; i++) {
      double expected = 0.5;
      if (i < width && epilogue == Epilogue::SwiGlu) {
        expected = sums[2 * i] / (1 + std::exp(-sums[2 * i])) * sums[2 * i + 1];
      } else if (i < width) {
        expected = sums[i];
      }
      const double actual = wide ? wideResult[r * stride + i] : static_cast<float>(narrowResult[r * stride + i]);
      error += std::pow(actual - expected, 2), norm += expected * expected;
    }
  }
  const double relative = std::sqrt(error / norm);
  // The bound is of the order of float rounding in the sums (Wide), or of the final rounding to bf16.
  if (!(relative <= (wide ? 2e-6 : 3e-3)))
    testing::fail(__FILE__, __LINE__,
                  "format " + testing::text(linear.format) + ", " + testing::text(rows) + " × " + testing::text(outputs) + " × " + testing::text(inputs) +
                      ", epilogue " + testing::text(epilogue) + ", kernel " + testing::text(tuning.kernel) + ", tile " + testing::text(tuning.tile) +
                      ": error " + testing::text(relative));
}

}  // namespace

TEST("linear narrow: codes and scales equal a rounding in double") {
  constexpr int OUTPUTS = 7;
  for (const WeightFormat format : FORMATS)
    for (const int inputs : {288, 320, 384}) {
      Random random(2);
      std::vector<bf16> w = random.normals<bf16>(OUTPUTS * inputs);
      for (int k = 0; k < inputs; k++) {
        w[3 * inputs + k] = bf16(0.0f);
        // Covers e4m3 from its subnormal codes to the largest.
        w[2 * inputs + k] = bf16(static_cast<float>(std::ldexp(wideOf(w[2 * inputs + k]), -(k % 16))));
      }
      const Quantised q(format, w, OUTPUTS, inputs);
      const std::vector<double> codes = q.codes();
      const std::vector<float> scales = q.valueScales();
      const int together = format == WeightFormat::Int4 ? narrowGroup(inputs) : inputs;
      size_t wrong = 0, wrongScales = 0;
      double error = 0, norm = 0;
      for (size_t i = 0; i < w.size(); i++) {
        const float scale = scaleOf(format, &w[i / together * together], together);
        wrongScales += scales[i] != scale;
        wrong += codes[i] != (scale == 0 ? 0 : nearest(format, static_cast<float>(w[i]) / scale));
        const size_t line = i / inputs;
        if (line == 2 || line == 3) continue;
        error += std::pow(wideOf(w[i]) - codes[i] * scale, 2), norm += wideOf(w[i]) * wideOf(w[i]);
      }
      CHECK_EQUAL(wrongScales, size_t{0});
      CHECK_EQUAL(wrong, size_t{0});
      // Quantising normal values errs by step / √12 (RMS). A step is the largest value over 127 or 8; for e4m3, up to an eighth of the value.
      CHECK(std::sqrt(error / norm) < (format == WeightFormat::Int8 ? 0.009 : format == WeightFormat::Float8 ? 0.028 : 0.11));
    }
}

TEST("linear narrow: non-finite weights make their line or group NaN, and nothing else") {
  constexpr int OUTPUTS = 3, INPUTS = 256;
  for (const WeightFormat format : FORMATS) {
    Random random(3);
    std::vector<bf16> w = random.normals<bf16>(OUTPUTS * INPUTS);
    w[7] = bf16(INFINITY), w[2 * INPUTS + 200] = bf16(NAN);
    const Quantised q(format, w, OUTPUTS, INPUTS);
    const std::vector<float> scales = q.valueScales();
    const bool groups = format == WeightFormat::Int4;
    for (int k = 0; k < INPUTS; k++) {
      CHECK_EQUAL(std::isnan(scales[k]), !groups || k < 128);
      CHECK(!std::isnan(scales[INPUTS + k]));
      CHECK_EQUAL(std::isnan(scales[2 * INPUTS + k]), !groups || k >= 128);
    }
  }
}

TEST("linear narrow: every kernel decodes every code exactly") {
  // The lines of W hold all codes. The rows of x are unit vectors, so that each sum is one weight.
  constexpr int INPUTS = 256, OUTPUTS = 16;
  for (const WeightFormat format : FORMATS) {
    std::vector<bf16> w(OUTPUTS * INPUTS);
    for (int i = 0; i < OUTPUTS * INPUTS; i++) {
      const int k = i % INPUTS, size = k % 128 < 126 ? k % 128 : 126;
      const double e4m3 = size < 8 ? size / 512.0 : std::ldexp(1 + size % 8 / 8.0, size / 8 - 7);
      w[i] = bf16(static_cast<float>(format == WeightFormat::Int8     ? (k < 255 ? k - 127 : 0)
                                     : format == WeightFormat::Float8 ? (k < 128 ? e4m3 : -e4m3)
                                                                      : k % 16 - 8));
    }
    const Quantised q(format, w, OUTPUTS, INPUTS);
    std::vector<bf16> x(32 * INPUTS);
    const DeviceArray<float> y(32 * OUTPUTS);
    LinearContext context;
    context.multiprocessors = 2;
    for (const LinearKernel kernel : {LinearKernel::Plain, LinearKernel::Vector, LinearKernel::Skinny, LinearKernel::Tiles}) {
      const int rows = kernel == LinearKernel::Vector ? 4 : 32;
      context.tuning.kernel = kernel;
      size_t wrong = 0;
      for (int first = 0; first < INPUTS; first += rows) {
        for (int r = 0; r < rows; r++)
          for (int k = 0; k < INPUTS; k++) x[r * INPUTS + k] = bf16(k == first + r ? 1.0f : 0.0f);
        const DeviceArray<bf16> deviceX(x);
        launchLinear(q.linear, deviceX, INPUTS, y, OUTPUTS, rows, Epilogue::Wide, context, nullptr);
        const std::vector<float> result = y.host();
        for (int i = 0; i < rows * OUTPUTS; i++) wrong += result[i] != static_cast<float>(w[first + i / OUTPUTS]);
      }
      CHECK_EQUAL(wrong, size_t{0});
    }
  }
}

TEST("linear narrow: every kernel and epilogue equals the plain sum") {
  for (const WeightFormat format : FORMATS) {
    Products products(format);
    int turn = 0;
    for (const Epilogue epilogue : {Epilogue::Store, Epilogue::Wide, Epilogue::SwiGlu}) {
      // Inputs: 96 and 1120 make groups of 32, 192 makes groups of 64; groups of 128 are tested below.
      const int few = 96, more = 1120, several = 192;
      LinearTuning tuning;
      tuning.kernel = LinearKernel::Plain;
      check(products, {5, 46, few, 3}, epilogue, tuning);
      tuning.kernel = LinearKernel::Vector;
      for (const int rows : {1, 2, 3}) check(products, {rows, 46, more, 3}, epilogue, tuning);
      tuning.kernel = LinearKernel::Skinny;
      for (const int columns : LINEAR_SKINNY_COLUMNS) {
        tuning.columns = columns;
        const int rows = std::array{7, 13, 30}[turn++ % 3];
        check(products, {linearSkinnyFits(format == WeightFormat::Int4 ? 4 : 8, rows, columns) ? rows : 13, 54, more, 3}, epilogue, tuning);
      }
      tuning.kernel = LinearKernel::Tiles;
      for (tuning.tile = 0; tuning.tile < LINEAR_TILE_COUNT; tuning.tile++) {
        tuning.blocks = turn++ % 2 == 0 ? 1 : 3;
        check(products, {21, 272, several}, epilogue, tuning);
      }
      tuning.tile = 1;
      check(products, {21, 46, few, 1}, epilogue, tuning);
    }
    for (const int rows : {1, 3, 20, 70, 140}) check(products, {rows, 144, 384}, Epilogue::Store, {});
  }
}

TEST("linear narrow: many rows widen W some lines at a time, and take other kernels if cuBLASLt fails or has no room") {
  using cublasTesting::library;
  // A workspace of `most` bytes has room for LINEAR_WIDENED_LINES widened lines, so that this W takes three products.
  const Shape shape{LINEAR_WIDENED_ROWS, 2 * LINEAR_WIDENED_LINES + 88, 32, 8};
  const size_t lineBytes = shape.inputs * sizeof(bf16), sums = static_cast<size_t>(shape.rows) * shape.outputs * sizeof(bf16);
  const size_t most = aligned256(aligned256(LINEAR_COUNTERS * sizeof(unsigned)) + sums) + CUBLAS_WORKSPACE_BYTES + (LINEAR_WIDENED_LINES + 8) * lineBytes;
  const auto count = [&](Products& products, const Shape& its, Epilogue epilogue, size_t bytes, bool fails) {
    CublasLt* const cublas = cublasTesting::open();
    library.failure = fails ? cublaslt::NOT_SUPPORTED : 0;
    check(products, its, epilogue, {}, cublas, bytes);
    closeCublasLt(cublas);
    CHECK_EQUAL(library.objects, 0);
    return library.products;
  };
  for (const WeightFormat format : FORMATS) {
    Products products(format);
    for (const Epilogue epilogue : {Epilogue::Store, Epilogue::SwiGlu}) {
      // Weights of 4 bits are scaled when they are widened, so they need sums in the workspace only for SwiGLU. Without sums all lines fit.
      const bool direct = format == WeightFormat::Int4 && epilogue == Epilogue::Store;
      CHECK_EQUAL(count(products, shape, epilogue, most, false), direct ? 1 : 3);
      if (direct) CHECK_EQUAL(count(products, shape, epilogue, most - sums, false), 3);
      CHECK_EQUAL(count(products, shape, epilogue, most, true), 0);
      CHECK_EQUAL(count(products, shape, epilogue, most - (direct ? sums : 0) - 16 * lineBytes, false), 0);
    }
    // A workspace of the engine's size has room for all lines.
    CHECK_EQUAL(count(products, shape, Epilogue::Store, linearWorkspaceBytes(shape.rows, shape.outputs, 3, true), false), 1);
    CHECK_EQUAL(count(products, {LINEAR_WIDENED_ROWS - 1, 48, 32}, Epilogue::Store, most, false), 0);
    CHECK_EQUAL(count(products, {LINEAR_WIDENED_ROWS, 48, 32}, Epilogue::Wide, most, false), 0);
  }
}
