#include "rows.h"
#include <algorithm>
#include "../../testing/device.h"
#include "../../testing/test.h"
#include "../../testing/kv.h"

using namespace pie;
using kvTesting::frequenciesOf;
using kvTesting::shapeOf;
using testing::DeviceArray;
using testing::Random;

namespace {

template <typename T>
std::vector<double> wide(const std::vector<T>& values) {
  std::vector<double> result;
  for (const T& value : values) result.push_back(static_cast<float>(value));
  return result;
}

// Largest rounding error of T for a value of this size.
template <typename T>
double rounding(double size) {
  return size * (sizeof(T) == 2 ? 0x1p-8 : 0x1p-23);
}

// The bound is one rounding relative to each value's size, plus the error of float sums.
template <typename T>
void checkRounded(const char* what, const std::vector<T>& actual, const std::vector<double>& expected) {
  REQUIRE(actual.size() == expected.size());
  for (size_t i = 0; i < actual.size(); i++) {
    const double bound = rounding<T>(std::fabs(expected[i])) + 2e-6 * std::fabs(expected[i]) + 2e-6;
    if (!testing::isClose(static_cast<float>(actual[i]), expected[i], bound)) {
      CHECK_CLOSE(static_cast<float>(actual[i]), expected[i], bound);
      testing::fail(__FILE__, __LINE__, std::string(what) + ", value " + testing::text(i));
      return;
    }
  }
}

// Values stored `shift` elements into the allocation: not 16-byte aligned if shift is 1.
template <typename T>
struct Shifted {
  DeviceArray<T> all;
  int shift;
  Shifted(const std::vector<T>& values, int shift) : all(values.size() + 1), shift(shift) {
    std::vector<T> padded(values.size() + 1);
    std::copy(values.begin(), values.end(), padded.begin() + shift);
    all.set(padded);
  }
  T* get() const { return all + shift; }
};

template <typename T>
void testEmbed(int rows, int hidden) {
  Random random(rows * 1000 + hidden);
  const int vocabulary = 11;
  const auto table = random.normals<T>(vocabulary * hidden);
  const auto embeds = random.normals<float>(3 * hidden);
  std::vector<int> tokens(rows), embedRows(rows, -1);
  const std::vector<uint32_t> picked{10, 0, 3, 7};
  std::vector<double> expected;
  for (int r = 0; r < rows; r++) {
    const bool given = r % 3 == 1, taken = r % 4 == 3;
    int token = static_cast<int>(random.integer(0, vocabulary - 1));
    tokens[r] = given ? EMBED_GIVEN : token;
    if (given) {
      embedRows[r] = static_cast<int>(random.integer(0, 2));
    } else if (taken) {
      tokens[r] = pickedToken(token % 4);
      token = static_cast<int>(picked[token % 4]);
    }
    for (int i = 0; i < hidden; i++) expected.push_back(given ? embeds[embedRows[r] * hidden + i] : static_cast<float>(table[token * hidden + i]));
  }
  DeviceArray<float> residual(rows * hidden + 1);
  residual.set(std::vector<float>(rows * hidden + 1, 7));
  const bool some = rows > 1;
  DeviceArray<float> given(embeds);
  DeviceArray<T> rowsOfTable(table);
  DeviceArray<int> onDevice(tokens), rowsOfEmbeds(embedRows);
  DeviceArray<uint32_t> pickedOnDevice(picked);
  launchEmbed<T>(residual, rowsOfTable, {onDevice, pickedOnDevice, some ? given.get() : nullptr, rowsOfEmbeds}, {}, rows, hidden, nullptr);
  auto actual = residual.host();
  CHECK_EQUAL(actual.back(), 7.0f);
  actual.pop_back();
  CHECK_ALL_CLOSE(actual, expected, 0);
}

template <typename T>
void testAddNorm(int rows, int hidden, bool withDelta, bool withOut, int shift = 0) {
  Random random(rows * 7919 + hidden + shift);
  const float epsilon = 1e-5f;
  const auto residual = random.normals<float>(rows * hidden, 3);
  const auto delta = random.normals<T>(rows * hidden);
  const auto weight = random.normals<T>(hidden);
  std::vector<double> sums(rows * hidden), expected(rows * hidden);
  for (int r = 0; r < rows; r++) {
    double squares = 0;
    for (int i = 0; i < hidden; i++) {
      double& x = sums[r * hidden + i];
      x = residual[r * hidden + i] + (withDelta ? static_cast<float>(delta[r * hidden + i]) : 0.0);
      squares += x * x;
    }
    for (int i = 0; i < hidden; i++) expected[r * hidden + i] = sums[r * hidden + i] / std::sqrt(squares / hidden + epsilon) * static_cast<float>(weight[i]);
  }
  Shifted<float> kept(residual, shift);
  Shifted<T> added(delta, shift), scale(weight, shift);
  DeviceArray<T> out(rows * hidden);
  launchAddNorm<T>(withOut ? out.get() : nullptr, kept.get(), withDelta ? added.get() : nullptr, scale.get(), rows, hidden, epsilon, nullptr);
  const auto all = kept.all.host();
  checkRounded("sum", std::vector<float>(all.begin() + shift, all.begin() + shift + rows * hidden), sums);
  if (withOut) checkRounded("norm", out.host(), expected);
}

template <typename T>
void testPickNorm(int rows, int hidden, const std::vector<int>& pick, bool withDelta, bool withStates, bool withNarrow) {
  Random random(hidden + rows);
  const float epsilon = 1e-6f;
  const auto residual = random.normals<float>(rows * hidden, 2);
  const auto delta = random.normals<T>(rows * hidden);
  const auto weight = random.normals<T>(hidden);
  std::vector<double> expected;
  for (const int row : pick) {
    double squares = 0;
    std::vector<double> x(hidden);
    for (int i = 0; i < hidden; i++) {
      x[i] = residual[row * hidden + i] + (withDelta ? static_cast<float>(delta[row * hidden + i]) : 0.0);
      squares += x[i] * x[i];
    }
    for (int i = 0; i < hidden; i++) expected.push_back(x[i] / std::sqrt(squares / hidden + epsilon) * static_cast<float>(weight[i]));
  }
  const int count = static_cast<int>(pick.size());
  DeviceArray<float> states(count * hidden), from(residual);
  DeviceArray<T> narrow(count * hidden), added(delta);
  launchPickNorm<T>(withStates ? states.get() : nullptr, withNarrow ? narrow.get() : nullptr, from, withDelta ? added.get() : nullptr, DeviceArray<int>(pick),
                    DeviceArray<T>(weight), count, hidden, epsilon, nullptr);
  if (withStates) checkRounded("states", states.host(), expected);
  if (withNarrow) checkRounded("narrow", narrow.host(), expected);
  CHECK(from.host() == residual);
}

// Normalises one head's values, if there is a weight, then rotates them.
template <typename T>
void turn(std::vector<double>& head, const T* norm, float epsilon, double position, const std::vector<double>& frequencies, double offset = 0) {
  const size_t half = head.size() / 2;
  if (norm) {
    double squares = 0;
    for (const double x : head) squares += x * x;
    for (size_t i = 0; i < head.size(); i++) head[i] *= (static_cast<double>(static_cast<float>(norm[i])) + offset) / std::sqrt(squares / static_cast<double>(head.size()) + epsilon);
  }
  for (size_t i = 0; i < half; i++) {
    const double x = head[i], y = head[i + half], angle = position * frequencies[i];
    head[i] = x * std::cos(angle) - y * std::sin(angle);
    head[i + half] = y * std::cos(angle) + x * std::sin(angle);
  }
}

template <typename T>
void testRotateAndStore(int rows, const ModelShape& shape, bool norms) {
  Random random(rows + shape.headDim * 31 + shape.heads);
  const int headDim = shape.headDim, slots = rows + 4;
  const auto qkv = random.normals<T>(rows * shape.qkvWidth());
  const auto queryNorm = random.normals<T>(headDim), keyNorm = random.normals<T>(headDim);
  const auto frequencies = frequenciesOf(headDim);
  std::vector<int> positions(rows), slotOf(rows);
  for (int r = 0; r < rows; r++) {
    positions[r] = static_cast<int>(random.integer(0, 100000));
    slotOf[r] = (r * 3 + 1) % slots;
    for (int before = 0; before < r; before++)
      if (slotOf[before] == slotOf[r]) slotOf[r] = (slotOf[r] + 1) % slots, before = -1;
  }
  std::vector<double> queries, pool(slots * shape.slotWidth(), 7);
  for (int r = 0; r < rows; r++) {
    for (int h = 0; h < shape.heads + 2 * shape.kvHeads; h++) {
      std::vector<double> head(headDim);
      for (int i = 0; i < headDim; i++) head[i] = static_cast<float>(qkv[r * shape.qkvWidth() + h * headDim + i]);
      const bool isQuery = h < shape.heads;
      if (h < shape.heads + shape.kvHeads)
        turn(head, !norms ? static_cast<const T*>(nullptr) : isQuery ? queryNorm.data() : keyNorm.data(), shape.rmsEpsilon, positions[r], frequencies,
             shape.normOffset);
      if (isQuery)
        queries.insert(queries.end(), head.begin(), head.end());
      else
        std::copy(head.begin(), head.end(), pool.begin() + slotOf[r] * shape.slotWidth() + (h - shape.heads) * headDim);
    }
  }
  DeviceArray<float2> rotation(rows * headDim / 2);
  launchRotation(rotation, DeviceArray<int>(positions), {DeviceArray<double>(frequencies)}, rows, headDim, nullptr);
  const auto turns = rotation.host();
  for (int i = 0; i < rows * headDim / 2; i++) {
    const double angle = positions[i / (headDim / 2)] * frequencies[i % (headDim / 2)];
    CHECK_CLOSE(turns[i].x, std::cos(angle), 1e-7);
    CHECK_CLOSE(turns[i].y, std::sin(angle), 1e-7);
  }
  DeviceArray<T> out(rows * shape.queryWidth()), base(std::vector<T>(slots * shape.slotWidth(), T(7.0f))), query(queryNorm), key(keyNorm);
  launchRotateAndStore<T>(out, KvLayer<T>{base, shape.slotWidth()}, DeviceArray<T>(qkv), rotation, DeviceArray<int>(slotOf), norms ? query.get() : nullptr,
                          norms ? key.get() : nullptr, rows, shape, nullptr);
  checkRounded("queries", out.host(), queries);
  checkRounded("pool", base.host(), pool);
}

// The reference copies the slots of all layers one after another from an unchanged copy of the pool, and computes in double.
template <typename T>
void testCopySlots(const ModelShape& shape, int slots, const std::vector<int>& sources, const std::vector<int>& destinations, const std::vector<int>& shifts) {
  Random random(shape.headDim + slots);
  const int width = shape.slotWidth(), headDim = shape.headDim, pairs = static_cast<int>(sources.size());
  const auto before = random.normals<T>(shape.layers * slots * width);
  const auto frequencies = frequenciesOf(headDim);
  std::vector<double> expected = wide(before);
  for (int layer = 0; layer < shape.layers; layer++) {
    for (int p = 0; p < pairs; p++) {
      const auto from = before.begin() + (layer * slots + sources[p]) * width;
      const auto to = expected.begin() + (layer * slots + destinations[p]) * width;
      for (int i = 0; i < width; i++) to[i] = static_cast<float>(from[i]);
      if (shifts.empty() || shifts[p] == 0) continue;
      for (int h = 0; h < shape.kvHeads; h++) {
        std::vector<double> head(to + h * headDim, to + (h + 1) * headDim);
        turn(head, static_cast<const T*>(nullptr), 0, shifts[p], frequencies);
        for (int i = 0; i < headDim; i++) to[h * headDim + i] = static_cast<float>(T(static_cast<float>(head[i])));
      }
    }
  }
  DeviceArray<T> pool(before), scratch(pairs * shape.layers * width);
  DeviceArray<int> shift(shifts);
  launchCopySlots<T>(pool, scratch, DeviceArray<int>(sources), DeviceArray<int>(destinations), shifts.empty() ? nullptr : shift.get(),
                     DeviceArray<double>(frequencies), pairs, slots, shape, nullptr);
  // Both sides compute in double and round once: results differ at most in the last bit, where two libraries' sine and cosine differ.
  const auto actual = pool.host();
  for (size_t i = 0; i < expected.size(); i++) {
    const double bound = rounding<T>(std::fabs(expected[i])) * (sizeof(T) == 2 ? 1 : 2);
    if (!testing::isClose(static_cast<float>(actual[i]), expected[i], shifts.empty() ? 0 : bound)) {
      CHECK_CLOSE(static_cast<float>(actual[i]), expected[i], bound);
      return;
    }
  }
}

template <typename T>
void testNarrow(size_t count, int shift) {
  Random random(count);
  auto values = random.normals<float>(count);
  if (count > 3) values[1] = 1.00390625f, values[2] = 1.01171875f, values[3] = -0.0f;  // Two ties for bf16.
  std::vector<float> padded(values);
  padded.insert(padded.begin(), shift, 0.0f);
  DeviceArray<float> from(padded);
  DeviceArray<T> to(std::vector<T>(count + 1, T(7.0f)));
  launchNarrow<T>(to, from + shift, count, nullptr);
  auto actual = to.host();
  CHECK_EQUAL(static_cast<float>(actual.back()), 7.0f);
  for (size_t i = 0; i < count; i++) CHECK_EQUAL(static_cast<float>(actual[i]), static_cast<float>(T(values[i])));
  if (sizeof(T) == 2 && count > 3) {
    CHECK_EQUAL(static_cast<float>(actual[1]), 1.0f);
    CHECK_EQUAL(static_cast<float>(actual[2]), 1.015625f);
  }
}

}  // namespace

TEST("embedding takes rows of the table, and given embeds where there is no token") {
  for (const int hidden : {64, 104, 33, 2}) {
    testEmbed<bf16>(5, hidden);
    testEmbed<float>(5, hidden);
  }
  testEmbed<bf16>(1, 2120);
  testEmbed<bf16>(70, 64);
  testEmbed<float>(0, 64);
}

TEST("embedding applies table writes, even if there are more writes than blocks") {
  Random random(12);
  for (const int rows : {1, 3}) {
    // The block holds seven lists, then the writes that copy them to the tables in a mixed order.
    std::vector<int> block(7 * TABLE_WRITE_SLOTS), tables(10 * TABLE_WRITE_SLOTS, -1), order = {6, 2, 8, 0, 3, 9, 5};
    for (int& each : block) each = static_cast<int>(random.integer(0, 1 << 29));
    std::vector<TableWrite> writes;
    std::vector<int> expected = tables;
    for (int i = 0; i < 7; i++) {
      const int count = i % 2 == 0 ? 1 : TABLE_WRITE_SLOTS - i;
      writes.push_back({i * TABLE_WRITE_SLOTS, order[i] * TABLE_WRITE_SLOTS + i, count});
      std::copy_n(block.begin() + writes[i].from, count, expected.begin() + writes[i].to);
    }
    const std::vector<int> counts = {7, static_cast<int>(block.size())};
    for (const TableWrite& write : writes)
      for (const int word : {write.from, write.to, write.count, 0}) block.push_back(word);
    const DeviceArray<int> onDevice(block), counted(counts), table(tables), tokens(std::vector<int>(rows, 2));
    const DeviceArray<float> residual(rows * 8), embeddings(std::vector<float>(3 * 8, 0.5f));
    launchEmbed<float>(residual, embeddings, {tokens, nullptr, nullptr, nullptr}, {counted, onDevice, table}, rows, 8, nullptr);
    CHECK(table.host() == expected);
  }
}

TEST("the norm applies to the sum of residual and delta, and the sum is stored") {
  for (const bool delta : {true, false}) {
    for (const int hidden : {64, 200, 45, 8, 1}) {
      testAddNorm<bf16>(3, hidden, delta, true);
      testAddNorm<float>(3, hidden, delta, true);
    }
  }
  testAddNorm<bf16>(40, 256, true, true);
  testAddNorm<bf16>(2, 64, true, false);
  testAddNorm<float>(2, 33, true, false);
  testAddNorm<float>(0, 64, true, true);
}

TEST("the norm is computed for wide rows and for unaligned rows") {
  testAddNorm<bf16>(1, 4096, true, true);
  testAddNorm<bf16>(1, 5000, true, true);
  testAddNorm<bf16>(1, 16384, true, true);
  testAddNorm<bf16>(1, 16640, true, true);
  testAddNorm<float>(2, 64, true, true, 1);
  testAddNorm<bf16>(2, 64, true, true, 1);
}

TEST("a row of zeros stays zero") {
  DeviceArray<float> residual(std::vector<float>(64, 0));
  DeviceArray<bf16> out(64);
  launchAddNorm<bf16>(out, residual, nullptr, DeviceArray<bf16>(std::vector<bf16>(64, bf16(1.0f))), 1, 64, 1e-5f, nullptr);
  for (const bf16 value : out.host()) CHECK_EQUAL(static_cast<float>(value), 0.0f);
}

TEST("norms of picked rows leave the residual alone") {
  for (const int hidden : {64, 45}) {
    testPickNorm<bf16>(6, hidden, {5, 0, 3, 3}, true, true, true);
    testPickNorm<bf16>(6, hidden, {2}, false, false, true);
    testPickNorm<float>(6, hidden, {1, 4}, true, true, false);
  }
  testPickNorm<float>(2, 64, {}, true, true, true);
}

TEST("queries and keys are rotated, values are not, and each row goes to its slot") {
  for (const bool norms : {false, true}) {
    testRotateAndStore<bf16>(3, shapeOf(4, 2, 64), norms);
    testRotateAndStore<bf16>(1, shapeOf(9, 3, 128), norms);
    testRotateAndStore<float>(3, shapeOf(3, 1, 128), norms);
    testRotateAndStore<float>(2, shapeOf(2, 2, 16), norms);
    testRotateAndStore<bf16>(2, shapeOf(2, 1, 512), norms);
    // Shapes of the plain kernel.
    testRotateAndStore<bf16>(3, shapeOf(3, 1, 48), norms);
    testRotateAndStore<float>(2, shapeOf(5, 5, 6), norms);
    testRotateAndStore<bf16>(2, shapeOf(2, 1, 100), norms);
  }
  testRotateAndStore<bf16>(37, shapeOf(2, 1, 64), true);
  testRotateAndStore<float>(0, shapeOf(2, 1, 64), true);
  for (const int headDim : {64, 48}) {
    ModelShape shape = shapeOf(3, 1, headDim);
    shape.normOffset = 1;
    testRotateAndStore<bf16>(2, shape, true);
  }
}

TEST("slots are copied as if all sources were read first") {
  const auto shape = shapeOf(4, 2, 16, 3);
  testCopySlots<bf16>(shape, 9, {0, 1, 2}, {6, 7, 8}, {});
  testCopySlots<bf16>(shape, 9, {0, 1, 2, 3, 4}, {1, 2, 3, 4, 0}, {});  // A closed chain.
  testCopySlots<float>(shape, 9, {5, 3, 3}, {3, 5, 4}, {});             // A swap; one source twice.
  testCopySlots<float>(shapeOf(1, 1, 6, 2), 40, {0, 39}, {39, 1}, {});
  testCopySlots<float>(shape, 2, {}, {}, {});
}

TEST("keys of copied slots are rotated by their shifts") {
  const auto shape = shapeOf(4, 2, 16, 2);
  testCopySlots<bf16>(shape, 9, {0, 1, 2, 2}, {2, 0, 1, 5}, {5, -3, 0, 100000});
  testCopySlots<float>(shape, 9, {0, 1, 2}, {0, 1, 2}, {1, 0, -70000});  // In place.
  testCopySlots<float>(shapeOf(3, 3, 6, 2), 9, {0, 1}, {7, 0}, {12, 13});
  testCopySlots<bf16>(shapeOf(3, 1, 10, 2), 9, {0, 1}, {7, 0}, {12, -13});
  testCopySlots<bf16>(shapeOf(1, 1, 512, 1), 3, {0}, {2}, {9});
}

TEST("a key rotated forward and back is unchanged within its rounding") {
  const auto shape = shapeOf(1, 1, 64, 1);
  Random random(5);
  const auto before = random.normals<float>(shape.slotWidth() * 2);
  DeviceArray<float> pool(before), scratch(shape.slotWidth());
  DeviceArray<double> frequencies(frequenciesOf(64));
  DeviceArray<int> from(std::vector<int>{0}), to(std::vector<int>{1});
  launchCopySlots<float>(pool, scratch, from, to, DeviceArray<int>(std::vector<int>{777}), frequencies, 1, 2, shape, nullptr);
  launchCopySlots<float>(pool, scratch, to, to, DeviceArray<int>(std::vector<int>{-777}), frequencies, 1, 2, shape, nullptr);
  const auto after = pool.host();
  for (int i = 0; i < shape.slotWidth(); i++) CHECK_CLOSE(after[shape.slotWidth() + i], before[i], 5e-7);
}

TEST("narrowing rounds to nearest even, for any count") {
  for (const int count : {0, 1, 7, 8, 9, 2051}) {
    testNarrow<bf16>(count, 0);
    testNarrow<float>(count, 0);
  }
  testNarrow<bf16>(100, 1);
  testNarrow<float>(100, 1);
}
