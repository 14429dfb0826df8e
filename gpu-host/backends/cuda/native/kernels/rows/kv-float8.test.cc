// Compares float8 slots that the kernels write, copy and shift with the same operations in double.
#include "../../testing/device.h"
#include "../../testing/test.h"
#include "../../testing/kv.h"
#include "rows.h"

using namespace pie;
using kvTesting::frequenciesOf;
using kvTesting::shapeOf;
using testing::DeviceArray;
using testing::Random;

namespace {

void turn(double* head, int headDim, double position) {
  const std::vector<double> frequencies = frequenciesOf(headDim);
  for (int i = 0; i < headDim / 2; i++) {
    const double x = head[i], y = head[i + headDim / 2], angle = position * frequencies[i];
    head[i] = x * std::cos(angle) - y * std::sin(angle);
    head[i + headDim / 2] = y * std::cos(angle) + x * std::sin(angle);
  }
}

// Largest error of a value when its head is rounded once: half a step between codes. That is 1/16 of the value, or 2^-10 of the scale for the
// smallest codes. With `most` as the head's largest value, the scale is below `most` / 224 or is 2^-24; it may be twice as large where float and
// double disagree about `most`. The terms with 1e-5 cover the errors of float.
double rounding(double value, double most) { return (std::fabs(value) / 16 + std::max(most / 112, 0x1p-23) * 0x1p-10) * (1 + 1e-5) + most * 1e-5; }

void checkSlot(const float8* raw, const std::vector<double>& expected, const ModelShape& shape) {
  const std::vector<double> actual = kvTesting::readSlot(raw, shape);
  for (int head = 0; head < 2 * shape.kvHeads; head++) {
    double most = 0;
    for (int i = 0; i < shape.headDim; i++) most = std::max(most, std::fabs(expected[head * shape.headDim + i]));
    for (int i = head * shape.headDim; i < (head + 1) * shape.headDim; i++) CHECK_CLOSE(actual[i], expected[i], rounding(expected[i], most));
  }
}

std::vector<uint8_t> bytesOf(const DeviceArray<float8>& pool) {
  std::vector<uint8_t> bytes;
  for (const float8 each : pool.host()) bytes.push_back(each.code);
  return bytes;
}

// Stores one row with these keys and values at position 0 into slot 1 of 3.
std::vector<float8> stored(const std::vector<bf16>& kv, const ModelShape& shape) {
  std::vector<bf16> row(shape.queryWidth());
  row.insert(row.end(), kv.begin(), kv.end());
  DeviceArray<float8> pool(std::vector<float8>(3 * slotBytes<float8>(shape), {0xab}));
  DeviceArray<bf16> queries(shape.queryWidth());
  DeviceArray<float2> rotation(shape.headDim / 2);
  launchRotation(rotation, DeviceArray<int>(std::vector<int>{0}), {DeviceArray<double>(frequenciesOf(shape.headDim))}, 1, shape.headDim, nullptr);
  launchRotateAndStore<bf16>(queries.get(), kvLayer(pool.get(), shape), DeviceArray<bf16>(row).get(), rotation, DeviceArray<int>(std::vector<int>{1}), nullptr,
                             nullptr, 1, shape, nullptr);
  return pool.host();
}

void testRotateAndStore(int rows, const ModelShape& shape, bool norms) {
  Random random(rows + shape.headDim * 31 + shape.heads);
  const int headDim = shape.headDim, slots = rows + 2;
  const auto qkv = random.normals<bf16>(rows * shape.qkvWidth()), queryNorm = random.normals<bf16>(headDim), keyNorm = random.normals<bf16>(headDim);
  std::vector<int> positions(rows), slotOf(rows);
  for (int r = 0; r < rows; r++) positions[r] = static_cast<int>(random.integer(0, 100000)), slotOf[r] = r + 1;
  DeviceArray<float2> rotation(rows * headDim / 2);
  launchRotation(rotation, DeviceArray<int>(positions), {DeviceArray<double>(frequenciesOf(headDim))}, rows, headDim, nullptr);
  DeviceArray<bf16> queries(rows * shape.queryWidth()), plainQueries(rows * shape.queryWidth()), plain(slots * shape.slotWidth()), from(qkv), query(queryNorm),
      key(keyNorm);
  const size_t width = slotBytes<float8>(shape);
  DeviceArray<float8> pool(std::vector<float8>(slots * width, {0xab}));
  const auto launch = [&](bf16* to, auto layer) {
    launchRotateAndStore<bf16>(to, layer, from.get(), rotation, DeviceArray<int>(slotOf), norms ? query.get() : nullptr, norms ? key.get() : nullptr, rows, shape,
                               nullptr);
  };
  launch(queries, kvLayer(pool.get(), shape));
  launch(plainQueries, kvLayer(plain.get(), shape));
  const auto actual = queries.host(), alike = plainQueries.host();
  for (size_t i = 0; i < actual.size(); i++) CHECK_EQUAL(static_cast<float>(actual[i]), static_cast<float>(alike[i]));
  const auto raw = pool.host();
  for (int r = 0; r < rows; r++) {
    std::vector<double> expected(shape.slotWidth());
    for (int h = 0; h < 2 * shape.kvHeads; h++) {
      double* head = &expected[h * headDim];
      double squares = 0;
      for (int i = 0; i < headDim; i++) head[i] = static_cast<float>(qkv[r * shape.qkvWidth() + shape.queryWidth() + h * headDim + i]), squares += head[i] * head[i];
      if (h >= shape.kvHeads) continue;
      if (norms)
        for (int i = 0; i < headDim; i++) head[i] *= static_cast<float>(keyNorm[i]) / std::sqrt(squares / headDim + shape.rmsEpsilon);
      turn(head, headDim, positions[r]);
    }
    checkSlot(&raw[(r + 1) * width], expected, shape);
    // The padding behind the scales stays untouched.
    for (size_t i = kvLayer<float8>(nullptr, shape).scales + 4 * shape.kvHeads; i < width; i++) CHECK_EQUAL(raw[(r + 1) * width + i].code, 0xab);
  }
  for (size_t i = 0; i < width; i++) CHECK(raw[i].code == 0xab && raw[(rows + 1) * width + i].code == 0xab);
}

// A pool of random float8 slots.
struct Pool {
  ModelShape shape;
  int slots;
  std::vector<float8> raw;
  Pool(Random& random, const ModelShape& shape, int slots) : shape(shape), slots(slots), raw(shape.layers * slots * slotBytes<float8>(shape)) {
    for (float8& byte : raw) byte.code = static_cast<uint8_t>(random.bits());
    for (int i = 0; i < shape.layers * slots; i++) {
      std::vector<double> values(shape.slotWidth());
      const double size = std::exp2(random.uniform(-6, 6));
      for (double& value : values) value = random.normal() * size;
      kvTesting::writeSlot(at(i), values.data(), shape);
    }
  }
  float8* at(int slot) { return &raw[static_cast<size_t>(slot) * slotBytes<float8>(shape)]; }
};

void testCopies(const ModelShape& shape, const std::vector<int>& sources, const std::vector<int>& destinations, const std::vector<int>& shifts) {
  Random random(shape.headDim);
  Pool before(random, shape, 9);
  const int pairs = static_cast<int>(sources.size()), width = slotBytes<float8>(shape);
  DeviceArray<float8> pool(before.raw), scratch(static_cast<size_t>(pairs) * shape.layers * width);
  DeviceArray<int> by(shifts);
  launchCopySlots<float8>(pool, scratch, DeviceArray<int>(sources), DeviceArray<int>(destinations), shifts.empty() ? nullptr : by.get(),
                          DeviceArray<double>(frequenciesOf(shape.headDim)), pairs, 9, shape, nullptr);
  Pool after = before;
  after.raw = pool.host();
  Pool expected = before;
  for (int layer = 0; layer < shape.layers; layer++) {
    for (int p = 0; p < pairs; p++) {
      const int from = layer * 9 + sources[p], to = layer * 9 + destinations[p];
      std::copy(before.at(from), before.at(from) + width, expected.at(to));
      if (shifts.empty() || shifts[p] == 0) continue;
      std::vector<double> values = kvTesting::readSlot(before.at(from), shape);
      for (int h = 0; h < shape.kvHeads; h++) turn(&values[h * shape.headDim], shape.headDim, shifts[p]);
      checkSlot(after.at(to), values, shape);
      // The bytes of values, of their scales and of the padding must not change. Codes and scales of keys are checked above, so take them over.
      const KvLayer<float8> lie = kvLayer<float8>(nullptr, shape);
      std::copy(after.at(to), after.at(to) + lie.values, expected.at(to));
      for (int h = 0; h < shape.kvHeads; h++) std::copy_n(after.at(to) + lie.scales + 4 * h, 2, expected.at(to) + lie.scales + 4 * h);
    }
  }
  for (size_t i = 0; i < after.raw.size(); i++) {
    if (after.raw[i].code == expected.raw[i].code) continue;
    CHECK_EQUAL(i, size_t{0});
    return;
  }
}

}  // namespace

TEST("float8 slots: keys are rotated and rounded once per head, and each row goes to its slot") {
  for (const bool norms : {false, true}) {
    testRotateAndStore(3, shapeOf(4, 2, 64), norms);
    testRotateAndStore(2, shapeOf(9, 3, 128), norms);
    testRotateAndStore(2, shapeOf(2, 1, 512), norms);
    // Shapes of the plain kernel.
    testRotateAndStore(3, shapeOf(3, 1, 48), norms);
    testRotateAndStore(2, shapeOf(5, 5, 6), norms);
    testRotateAndStore(2, shapeOf(6, 3, 2), norms);
    testRotateAndStore(2, shapeOf(2, 1, 100), norms);
  }
  testRotateAndStore(37, shapeOf(2, 1, 64), true);
}

TEST("float8 slots: codes and scales follow the definition, from zero to clamped values") {
  for (const int headDim : {64, 10}) {
    const ModelShape shape = shapeOf(1, 1, headDim);
    const size_t width = slotBytes<float8>(shape);
    for (const double most : {0.0, 1e-30, 0x1p-24, 1e-6, 0.3, 1.0, 224.0, 225.0, 447.0, 448.0, 450.0, 1e4, 57344.0, 6e4, 1e9}) {
      Random random(headDim);
      std::vector<bf16> kv(shape.slotWidth());
      std::vector<double> values;
      for (size_t i = 0; i < kv.size(); i++) {
        kv[i] = static_cast<bf16>(static_cast<float>(i % headDim == 3 ? -most : most * random.uniform(-1, 1)));
        values.push_back(std::min(std::max(static_cast<double>(static_cast<float>(kv[i])), -57344.0), 57344.0));
      }
      std::vector<float8> expected(width, {0xab});
      kvTesting::writeSlot(expected.data(), values.data(), shape);
      const auto actual = stored(kv, shape);
      for (size_t i = 0; i < width; i++) {
        // The rotation may flip the sign of a zero.
        const int kept = i < static_cast<size_t>(shape.kvWidth()) && (expected[i].code & 0x7f) == 0 ? 0x7f : 0xff;
        CHECK_EQUAL(actual[width + i].code & kept, expected[i].code & kept);
      }
    }
    // A NaN stays NaN and affects no other value.
    std::vector<bf16> kv(shape.slotWidth(), static_cast<bf16>(2.0f));
    kv[headDim + 1] = static_cast<bf16>(NAN);
    const auto actual = stored(kv, shape);
    const std::vector<double> meant = kvTesting::readSlot(&actual[width], shape);
    for (int i = 0; i < shape.slotWidth(); i++) CHECK_CLOSE(meant[i], i == headDim + 1 ? NAN : 2.0, 0);
  }
}

TEST("float8 slots: a row's bytes do not depend on the rows beside it") {
  Random random(71);
  for (const int headDim : {128, 24}) {
    const ModelShape shape = shapeOf(4, 2, headDim);
    const int rows = 11, width = slotBytes<float8>(shape);
    const auto qkv = random.normals<bf16>(rows * shape.qkvWidth());
    std::vector<int> positions(rows, 5), slots;
    for (int r = 0; r < rows; r++) slots.push_back(r);
    DeviceArray<float2> rotation(rows * headDim / 2);
    launchRotation(rotation, DeviceArray<int>(positions), {DeviceArray<double>(frequenciesOf(headDim))}, rows, headDim, nullptr);
    DeviceArray<bf16> queries(rows * shape.queryWidth()), from(qkv);
    DeviceArray<float8> together(std::vector<float8>(rows * width, {0})), alone(std::vector<float8>(rows * width, {0}));
    DeviceArray<int> to(slots);
    launchRotateAndStore<bf16>(queries.get(), kvLayer(together.get(), shape), from.get(), rotation, to, nullptr, nullptr, rows, shape, nullptr);
    for (int r = 0; r < rows; r++)
      launchRotateAndStore<bf16>(queries.get(), kvLayer(alone.get(), shape), from.get() + r * shape.qkvWidth(), rotation, to.get() + r, nullptr, nullptr, 1, shape,
                                 nullptr);
    CHECK(bytesOf(together) == bytesOf(alone));
  }
}

TEST("float8 slots: copies are exact; copies with a shift rotate the keys and round once more") {
  const auto shape = shapeOf(4, 2, 16, 3);
  testCopies(shape, {0, 1, 2, 3, 4}, {1, 2, 3, 4, 0}, {});
  testCopies(shape, {5, 3, 3}, {3, 5, 4}, {});
  testCopies(shape, {0, 1, 2, 2}, {2, 0, 1, 5}, {5, -3, 0, 100000});
  testCopies(shapeOf(8, 8, 128, 2), {0, 1, 7}, {0, 2, 1}, {1, 0, -70000});
  testCopies(shapeOf(3, 3, 6, 2), {0, 1}, {7, 0}, {12, 13});
  testCopies(shapeOf(1, 1, 512, 1), {0}, {2}, {9});
  testCopies(shape, {}, {}, {});
}

TEST("float8 slots: shifts that cancel out restore the keys, up to one rounding per shift") {
  const ModelShape shape = shapeOf(1, 1, 64);
  Random random(72);
  Pool pool(random, shape, 2);
  const std::vector<double> before = kvTesting::readSlot(pool.at(0), shape);
  double size = 0;
  for (int i = 0; i < 64; i++) size += before[i] * before[i];
  DeviceArray<float8> device(pool.raw), scratch(slotBytes<float8>(shape));
  DeviceArray<double> frequencies(frequenciesOf(64));
  DeviceArray<int> slot(std::vector<int>{0});
  const int steps = 6;
  for (int i = 0; i < steps; i++)
    launchCopySlots<float8>(device, scratch, slot, slot, DeviceArray<int>(std::vector<int>{i % 2 ? -777 : 777}), frequencies, 1, 2, shape, nullptr);
  const auto raw = device.host();
  const std::vector<double> after = kvTesting::readSlot(raw.data(), shape);
  double difference = 0;
  for (int i = 0; i < 64; i++) difference += (after[i] - before[i]) * (after[i] - before[i]);
  // One rounding changes a value by at most 1/16, and a head by about 1/38 of its norm. Independent errors grow with the square root of their number.
  CHECK(std::sqrt(difference / size) < 1.0 / 16 * std::sqrt(steps));
}
