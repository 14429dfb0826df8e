#include <algorithm>
#include "rows.h"
#include "../../testing/device.h"
#include "../../testing/kv.h"
#include "../../testing/test.h"

using namespace pie;
using kvTesting::shapeOf;
using testing::DeviceArray;
using testing::Random;

namespace {

// The bound is one rounding relative to each value's size, plus the error of float sums.
template <typename T>
void checkRounded(const char* what, const std::vector<T>& actual, const std::vector<double>& expected) {
  REQUIRE(actual.size() == expected.size());
  for (size_t i = 0; i < actual.size(); i++) {
    const double size = std::fabs(expected[i]), bound = size * (sizeof(T) == 2 ? 0x1p-8 : 0x1p-23) + 4e-6 * size + 4e-6;
    if (testing::isClose(static_cast<float>(actual[i]), expected[i], bound)) continue;
    CHECK_CLOSE(static_cast<float>(actual[i]), expected[i], bound);
    testing::fail(__FILE__, __LINE__, std::string(what) + ", value " + testing::text(i));
    return;
  }
}

template <typename T>
void normalise(std::vector<double>& x, const T* weight, double offset, double epsilon) {
  double squares = 0;
  for (const double value : x) squares += value * value;
  const double scale = 1 / std::sqrt(squares / static_cast<double>(x.size()) + epsilon);
  for (size_t i = 0; i < x.size(); i++) x[i] *= scale * (static_cast<double>(static_cast<float>(weight[i])) + offset);
}

struct Case {
  bool delta, outputNorm, norm, picks, states;
};

template <typename T>
void testBlockNorm(int rows, int hidden, const Case& c) {
  Random random(rows * 100 + hidden);
  const float epsilon = 1e-6f, scale = 0.25f, offset = 1;
  const auto residual = random.normals<float>(rows * hidden, 2);
  const auto delta = random.normals<T>(rows * hidden), outputNorm = random.normals<T>(hidden), norm = random.normals<T>(hidden);
  std::vector<int> pick;
  for (int i = 0; c.picks && i < 3; i++) pick.push_back((i * 2 + 1) % rows);
  std::vector<double> sums, outputs;
  for (int r = 0; r < rows; r++) {
    std::vector<double> d(hidden);
    for (int i = 0; i < hidden; i++) d[i] = static_cast<float>(delta[r * hidden + i]);
    if (c.outputNorm) normalise(d, outputNorm.data(), offset, epsilon);
    for (int i = 0; i < hidden; i++) sums.push_back(residual[r * hidden + i] + (c.delta ? static_cast<double>(scale) * d[i] : 0));
  }
  const int count = c.picks ? static_cast<int>(pick.size()) : rows;
  for (int i = 0; i < count; i++) {
    const int row = c.picks ? pick[i] : i;
    std::vector<double> x(sums.begin() + row * hidden, sums.begin() + (row + 1) * hidden);
    if (c.norm) normalise(x, norm.data(), offset, epsilon);
    outputs.insert(outputs.end(), x.begin(), x.end());
  }
  DeviceArray<float> stream(residual), states(count * hidden);
  DeviceArray<T> added(delta), out(count * hidden), outputWeight(outputNorm), weight(norm);
  DeviceArray<int> picked(pick);
  launchBlockNorm<T>({stream.get(), c.delta ? added.get() : nullptr, c.outputNorm ? outputWeight.get() : nullptr, scale, c.norm ? weight.get() : nullptr,
                      offset, c.states ? states.get() : nullptr, out.get(), c.picks ? picked.get() : nullptr},
                     count, hidden, epsilon, nullptr);
  if (c.picks) CHECK(stream.host() == residual);
  else checkRounded("sum", stream.host(), sums);
  checkRounded("out", out.host(), outputs);
  if (c.states) checkRounded("states", states.host(), outputs);
}

template <typename T>
void testRowNorms(const ModelShape& shape, int rows) {
  Random random(rows + shape.heads);
  const auto qkv = random.normals<T>(rows * shape.qkvWidth(), 3);
  const auto queryNorm = random.normals<T>(shape.queryWidth()), keyNorm = random.normals<T>(shape.kvWidth());
  std::vector<double> expected;
  for (int r = 0; r < rows; r++) {
    const auto row = qkv.begin() + r * shape.qkvWidth();
    std::vector<double> queries, keys;
    for (int i = 0; i < shape.queryWidth(); i++) queries.push_back(static_cast<float>(row[i]));
    for (int i = 0; i < shape.kvWidth(); i++) keys.push_back(static_cast<float>(row[shape.queryWidth() + i]));
    normalise(queries, queryNorm.data(), shape.normOffset, shape.rmsEpsilon);
    normalise(keys, keyNorm.data(), shape.normOffset, shape.rmsEpsilon);
    expected.insert(expected.end(), queries.begin(), queries.end());
    expected.insert(expected.end(), keys.begin(), keys.end());
    for (int i = shape.queryWidth() + shape.kvWidth(); i < shape.qkvWidth(); i++) expected.push_back(static_cast<float>(row[i]));
  }
  DeviceArray<T> values(qkv), query(queryNorm), key(keyNorm);
  launchRowNorms<T>(values, query, key, rows, shape, nullptr);
  checkRounded("qkv", values.host(), expected);
}

template <typename T>
void testGeGlu(int rows, int intermediate) {
  Random random(rows + intermediate);
  const auto gateUp = random.normals<T>(rows * 2 * intermediate, 3);
  std::vector<double> expected;
  for (int i = 0; i < rows * intermediate; i++) {
    const double gate = static_cast<float>(gateUp[2 * i]), up = static_cast<float>(gateUp[2 * i + 1]);
    expected.push_back(0.5 * gate * (1 + std::tanh(std::sqrt(2 / M_PI) * (gate + 0.044715 * gate * gate * gate))) * up);
  }
  DeviceArray<T> out(rows * intermediate), from(gateUp);
  launchGeGlu<T>(out, from, rows, intermediate, nullptr);
  checkRounded("gated", out.host(), expected);
}

}  // namespace

TEST("a block's output is normalised and scaled on its way into the residual stream, and the sum is normalised") {
  const Case cases[] = {{true, true, true, false, false},  {true, true, false, false, true}, {true, false, true, false, true}, {false, false, true, false, false},
                        {false, false, false, false, true}, {true, true, true, true, true},   {true, false, true, true, false}};
  for (const Case& c : cases) {
    for (const int hidden : {7, 64, 1000}) {
      testBlockNorm<float>(5, hidden, c);
      testBlockNorm<bf16>(5, hidden, c);
    }
  }
}

TEST("norms of whole rows cover the queries, the keys, and not the values") {
  ModelShape shape = shapeOf(4, 2, 24);
  shape.rmsEpsilon = 1e-6f;
  testRowNorms<float>(shape, 3);
  testRowNorms<bf16>(shape, 3);
  shape.normOffset = 1;
  testRowNorms<bf16>(shape, 1);
}

TEST("GELU gates, of any width") {
  for (const int intermediate : {1, 40, 700}) {
    testGeGlu<float>(3, intermediate);
    testGeGlu<bf16>(3, intermediate);
  }
}

TEST("several rotations have a table each, with scales") {
  const int rows = 5, headDim = 12, half = headDim / 2, count = 3;
  Random random(4);
  std::vector<double> frequencies, scales;
  for (int i = 0; i < count * half; i++) frequencies.push_back(i % 5 == 0 ? 0 : random.uniform()), scales.push_back(1 + random.uniform());
  const std::vector<int> positions = {0, 1, 77, 4096, 131072};
  for (const bool scaled : {false, true}) {
    DeviceArray<float2> rotation(count * rows * half);
    DeviceArray<double> turning(frequencies), scaling(scales);
    launchRotation(rotation, DeviceArray<int>(positions), {turning, scaled ? scaling.get() : nullptr, count}, rows, headDim, nullptr);
    const auto turns = rotation.host();
    for (int i = 0; i < count * rows * half; i++) {
      const int pair = i / (rows * half) * half + i % half;
      const double angle = positions[i / half % rows] * frequencies[pair], scale = scaled ? scales[pair] : 1;
      CHECK_CLOSE(turns[i].x, std::cos(angle) * scale, 3e-7);
      CHECK_CLOSE(turns[i].y, std::sin(angle) * scale, 3e-7);
    }
  }
}

TEST("copies rotate the keys of each layer by its own rotation; a frequency of 0 leaves a pair as it is") {
  ModelShape shape = shapeOf(2, 2, 8);
  shape.layers = 3;
  const int half = 4, width = shape.slotWidth(), slots = 2, shift = 19;
  Random random(8);
  const auto before = random.normals<float>(shape.layers * slots * width);
  const std::vector<double> frequencies = {1, 0.1, 0.01, 0, 0, 0, 0, 0};
  const std::vector<int> rotationOf = {0, 1, 0};
  DeviceArray<float> pool(before), scratch(shape.layers * width);
  launchCopySlots<float>(pool, scratch, DeviceArray<int>(std::vector<int>{0}), DeviceArray<int>(std::vector<int>{1}),
                         DeviceArray<int>(std::vector<int>{shift}), DeviceArray<double>(frequencies), 1, slots, shape, nullptr,
                         DeviceArray<int>(rotationOf));
  const auto after = pool.host();
  for (int layer = 0; layer < shape.layers; layer++) {
    const float* from = before.data() + layer * slots * width;
    const float* to = after.data() + (layer * slots + 1) * width;
    for (int i = 0; i < width; i++) {
      const int within = i % shape.headDim, pair = within % half, other = i - within + (within < half ? pair + half : pair);
      const double angle = i < width / 2 ? shift * frequencies[rotationOf[layer] * half + pair] : 0;
      const double expected = from[i] * std::cos(angle) + (within < half ? -1 : 1) * from[other] * std::sin(angle);
      if (angle == 0) CHECK_EQUAL(to[i], from[i]);
      else CHECK_CLOSE(to[i], expected, 1e-6);
    }
  }
}
