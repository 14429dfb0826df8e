// Attention against a plain float64 computation over the same rounded inputs.
#include "attention.h"
#include <algorithm>
#include <cmath>
#include <cstring>
#include "../testing/device.h"
#include "../testing/test.h"
#include "kv-testing.h"

using namespace pie;
using testing::DeviceArray;
using testing::Random;

namespace {

enum class Mask { Causal, Window, Sink, Stripes, Tree, Sparse, Blind };

struct Ask {
  int context, rows;
  Mask mask = Mask::Causal;
  bool repeated = false;  // Some slot occurs more than once in the list.
};

// One step with its inputs on the host, rounded to the kernel's types.
template <typename T, typename K = T>
struct Step {
  ModelShape shape;
  std::vector<AttentionSequence> sequences;
  std::vector<int> slots;
  std::vector<uint32_t> mask;
  std::vector<T> queries;
  std::vector<K> pool;
  std::vector<double> meant;  // Decoded values of the pool: slots × slotWidth.
  int rows = 0;
};

bool shows(Mask mask, int context, int input, int key, Random& random) {
  const int at = context + input;
  switch (mask) {
    case Mask::Window: return key <= at && key > at - 37;
    case Mask::Sink: return key <= at && (key < 4 || key > at - 70);
    // Every third tile is hidden from all rows.
    case Mask::Stripes: return key <= at && key / ATTENTION_TILE % 3 != 1;
    // Each of two branches sees the context and itself.
    case Mask::Tree: return key < context || (key <= at && (key - context) % 2 == input % 2);
    case Mask::Sparse: return random.uniform() < 0.1;
    // Rows at position 200 and above see nothing; below that, every other row sees some keys.
    case Mask::Blind: return context + input < 200 && input % 2 == 1 && key % 3 == 0;
    default: return key <= at;
  }
}

constexpr int PADDING_ROWS = 3;

void scaleHead(double* values, int count, double factor) {
  for (int i = 0; i < count; i++) values[i] *= factor;
}

template <typename T, typename K = T>
Step<T, K> makeStep(Random& random, int kvHeads, int group, int headDim, const std::vector<Ask>& asks) {
  Step<T, K> step;
  step.shape.heads = kvHeads * group, step.shape.kvHeads = kvHeads, step.shape.headDim = headDim;
  int keys = 0;
  for (const Ask& ask : asks) keys += ask.context + ask.rows;
  // A pool in which the step's slots are scattered at random among slots that no kernel may read; those are NaN.
  const int poolSlots = keys + keys / 3 + 5;
  std::vector<int> order(poolSlots);
  for (int i = 0; i < poolSlots; i++) std::swap(order[i] = i, order[random.integer(0, i)]);
  for (const Ask& ask : asks) {
    AttentionSequence s = {step.rows, ask.rows, static_cast<int>(step.slots.size()), ask.context + ask.rows, -1, 0};
    for (int key = 0; key < s.keys; key++)
      step.slots.push_back(ask.repeated && key % 5 == 4 ? step.slots[s.firstKey + random.integer(0, key - 1)] : order[s.firstKey + key]);
    if (ask.mask != Mask::Causal) {
      s.maskWord = static_cast<int>(step.mask.size()), s.maskStride = (s.keys + 31) / 32;
      step.mask.resize(step.mask.size() + static_cast<size_t>(ask.rows) * s.maskStride, 0);
      for (int input = 0; input < ask.rows; input++) {
        uint32_t* row = &step.mask[s.maskWord + static_cast<size_t>(input) * s.maskStride];
        for (int key = 0; key < s.keys; key++) row[key / 32] |= uint32_t{shows(ask.mask, ask.context, input, key, random)} << (key % 32);
        if (s.keys % 32 != 0) row[s.maskStride - 1] |= ~0u << (s.keys % 32);
      }
    }
    step.rows += ask.rows;
    step.sequences.push_back(s);
  }
  const size_t width = step.shape.slotWidth(), stride = slotBytes<K>(step.shape) / sizeof(K);
  step.pool.resize(poolSlots * stride);
  std::memset(static_cast<void*>(step.pool.data()), 0xff, step.pool.size() * sizeof(K));  // NaN in every K.
  step.meant.assign(poolSlots * width, NAN);
  for (const int slot : step.slots) {
    std::vector<double> values(width);
    for (double& value : values) value = random.normal();
    // Heads of very different magnitudes, so that each needs its own scale.
    if (sizeof(K) == 1)
      for (size_t i = 0; i < width; i += headDim) scaleHead(&values[i], headDim, std::exp2(random.uniform(i < width / 2 ? -2 : -9, i < width / 2 ? 1 : 5)));
    kvTesting::writeSlot(&step.pool[slot * stride], values.data(), step.shape);
    const std::vector<double> meant = kvTesting::readSlot(&step.pool[slot * stride], step.shape);
    std::copy(meant.begin(), meant.end(), step.meant.begin() + slot * width);
  }
  // Large queries, so that some keys dominate the softmax.
  step.queries = random.normals<T>(static_cast<size_t>(step.rows) * step.shape.queryWidth(), 2);
  return step;
}

struct Expected {
  std::vector<double> out;       // rows × heads × headDim
  std::vector<double> received;  // One per entry of the slot list.
};

template <typename T, typename K>
Expected oracle(const Step<T, K>& step) {
  const ModelShape& shape = step.shape;
  const int headDim = shape.headDim, group = shape.heads / shape.kvHeads;
  Expected expected = {std::vector<double>(step.queries.size(), 0), std::vector<double>(step.slots.size(), 0)};
  for (const AttentionSequence& s : step.sequences) {
    for (int i = 0; i < s.rows * shape.heads; i++) {
      const int input = i / shape.heads, head = i % shape.heads;
      const size_t row = static_cast<size_t>(s.firstRow + input) * shape.heads + head;
      std::vector<double> weights(s.keys, 0);
      double largest = -INFINITY, total = 0;
      std::vector<double> scores(s.keys, -INFINITY);
      for (int key = 0; key < s.keys; key++) {
        const bool seen = s.maskWord < 0 ? key <= s.keys - s.rows + input : step.mask[s.maskWord + input * s.maskStride + key / 32] >> (key % 32) & 1;
        if (!seen) continue;
        const double* k = &step.meant[static_cast<size_t>(step.slots[s.firstKey + key]) * shape.slotWidth() + head / group * headDim];
        double score = 0;
        for (int e = 0; e < headDim; e++) score += static_cast<double>(static_cast<float>(step.queries[row * headDim + e])) * k[e];
        scores[key] = score / std::sqrt(static_cast<double>(headDim));
        largest = std::max(largest, scores[key]);
      }
      for (int key = 0; key < s.keys; key++)
        if (scores[key] > -INFINITY) total += weights[key] = std::exp(scores[key] - largest);
      for (int key = 0; key < s.keys; key++) {
        if (weights[key] == 0) continue;
        const double* v = &step.meant[static_cast<size_t>(step.slots[s.firstKey + key]) * shape.slotWidth() + shape.kvWidth() + head / group * headDim];
        expected.received[s.firstKey + key] += weights[key] / total;
        for (int e = 0; e < headDim; e++) expected.out[row * headDim + e] += weights[key] / total * v[e];
      }
    }
  }
  return expected;
}

// The device memory of a launch.
template <typename T, typename K = T>
struct Run {
  const Step<T, K>& step;
  AttentionPlan plan;
  DeviceArray<K> pool;
  DeviceArray<T> queries, out;
  DeviceArray<AttentionItem> items;
  DeviceArray<int> itemCount, slots, counters;
  DeviceArray<uint32_t> mask, tileWords;
  DeviceArray<float> partials;
  DeviceArray<float2> statistics;

  Run(const Step<T, K>& step, int multiprocessors)
      : step(step),
        plan(planAttention(step.sequences.data(), static_cast<int>(step.sequences.size()), step.mask.data(), step.shape, multiprocessors,
                           attentionIsFast<T>(step.shape))),
        pool(step.pool), queries(step.queries), out(std::vector<T>(step.queries.size() + PADDING_ROWS * step.shape.queryWidth(), static_cast<T>(NAN))),
        items(plan.items), itemCount(std::vector<int>{static_cast<int>(plan.items.size())}), slots(step.slots), counters(std::vector<int>(2 + plan.merges, 0)),
        mask(step.mask), tileWords(plan.tileWords), partials(static_cast<size_t>(plan.partialRows) * (step.shape.headDim + ATTENTION_PARTIAL_EXTRA)),
        statistics(static_cast<size_t>(step.rows) * step.shape.heads) {}

  KvLayer<K> layer() const { return kvLayer(pool.get(), step.shape); }
  void launch(int blocks) {
    AttentionTables tables;
    tables.items = items, tables.itemCount = itemCount, tables.slots = slots, tables.mask = mask, tables.tileWords = tileWords;
    tables.partials = partials, tables.counters = counters, tables.statistics = statistics;
    launchAttention<T>(out, queries, layer(), tables, step.shape, blocks, nullptr);
    testing::cudaOk(cudaGetLastError());
  }
  // Returns the outputs; checks that the kernel wrote nothing else and left the counters zero.
  std::vector<T> result() const {
    std::vector<T> values = out.host();
    for (size_t i = step.queries.size(); i < values.size(); i++) CHECK(std::isnan(static_cast<float>(values[i])));
    values.resize(step.queries.size());
    for (const int counter : counters.host()) CHECK_EQUAL(counter, 0);
    return values;
  }
};

// Largest relative error (L2 norm per row) over all rows.
template <typename T>
double worstRow(const std::vector<T>& actual, const std::vector<double>& expected, int headDim) {
  double worst = 0;
  for (size_t row = 0; row < expected.size(); row += headDim) {
    double distance = 0, size = 0;
    for (int e = 0; e < headDim; e++) {
      const double difference = static_cast<float>(actual[row + e]) - expected[row + e];
      distance += difference * difference, size += expected[row + e] * expected[row + e];
    }
    // The expected output of a row that sees no key is zero, so the error is absolute.
    const double error = size > 0 ? std::sqrt(distance / size) : std::sqrt(distance);
    worst = std::isnan(error) ? INFINITY : std::max(worst, error);
  }
  return worst;
}

// bf16 rounds weights and outputs by at most 2^-9 each; products are exact, sums are float.
template <typename T>
constexpr double BOUND = sizeof(T) == 2 ? 4e-3 : 1e-5;

template <typename T, typename K>
void check(const Step<T, K>& step, int multiprocessors, int blocks) {
  Run<T, K> run(step, multiprocessors);
  run.launch(blocks);
  CHECK_CLOSE(worstRow(run.result(), oracle(step).out, step.shape.headDim), 0, BOUND<T>);
}

const std::vector<Ask> MIXED = {{599, 1}, {0, 1}, {130, 9}, {0, 70}, {63, 1}, {64, 2, Mask::Tree}, {300, 1, Mask::Window}, {200, 5, Mask::Sparse},
                                {100, 4, Mask::Blind}, {300, 40, Mask::Blind}, {333, 3, Mask::Sink}, {90, 3, Mask::Causal, true}};

}  // namespace

TEST("attention: bf16 on tensor cores, headDim 64, every group, all masks in one step") {
  Random random(51);
  for (const int group : {1, 2, 3, 4, 6, 8}) check(makeStep<bf16>(random, group == 1 ? 3 : 1, group, 64, MIXED), group % 2 == 0 ? 132 : 1, 3);
}

TEST("attention: bf16 on tensor cores, headDim 128") {
  Random random(52);
  for (const int group : {1, 4, 7}) check(makeStep<bf16>(random, 1, group, 128, MIXED), group == 4 ? 132 : 2, 5);
}

TEST("attention: bf16 on tensor cores, prompts of all tile sizes and ragged ends") {
  Random random(53);
  for (const int headDim : {64, 128}) {
    check(makeStep<bf16>(random, 1, 4, headDim, {{0, 4}, {65, 5}, {1, 8}, {0, 9}, {200, 16}, {17, 17}, {0, 33}, {129, 37}}), 1, 2);
    check(makeStep<bf16>(random, 1, 1, headDim, {{3, 129, Mask::Sparse}, {600, 40, Mask::Sink}, {0, 131}}), 8, 2);
  }
}

TEST("attention: float8 on tensor cores, every group, all masks in one step, prompts of all tile sizes") {
  Random random(61);
  for (const int headDim : {64, 128}) {
    for (const int group : {1, 3, 4, 8})
      check(makeStep<bf16, float8>(random, group == 1 ? 3 : 1, group, headDim, MIXED), group % 2 == 0 ? 132 : 1, headDim == 64 ? 3 : 5);
    check(makeStep<bf16, float8>(random, 1, 4, headDim, {{0, 4}, {65, 5}, {1, 8}, {0, 9}, {200, 16}, {17, 17}, {0, 33}, {129, 37}}), 1, 2);
    check(makeStep<bf16, float8>(random, 1, 1, headDim, {{3, 129, Mask::Sparse}, {600, 40, Mask::Sink}, {0, 131}}), 8, 2);
    check(makeStep<bf16, float8>(random, 1, 2, headDim, {{1000, 2, Mask::Stripes}, {400, 20, Mask::Stripes}}), 132, 2);
  }
}

TEST("attention: float8, any number of blocks gives the same bits, split and unsplit plans agree within the bound") {
  Random random(62);
  const auto step = makeStep<bf16, float8>(random, 2, 4, 64, MIXED);
  Run<bf16, float8> one(step, 132), many(step, 132), whole(step, 1);
  one.launch(1), many.launch(200), whole.launch(4);
  const auto first = one.result(), second = many.result(), unsplit = whole.result();
  CHECK(std::memcmp(first.data(), second.data(), first.size() * sizeof(bf16)) == 0);
  CHECK_CLOSE(worstRow(first, std::vector<double>(unsplit.begin(), unsplit.end()), 64), 0, BOUND<bf16>);
}

TEST("attention: float8, scores of any size, queries beyond the float16 range are clamped") {
  Random random(63);
  auto step = makeStep<bf16, float8>(random, 1, 2, 64, {{200, 1}, {100, 20}, {40, 3, Mask::Blind}});
  for (auto& q : step.queries) q = static_cast<bf16>(static_cast<float>(q) * 300);
  check(step, 132, 2);
  // One key dominates by a wide margin.
  auto large = makeStep<bf16, float8>(random, 1, 1, 64, {{70, 1}});
  auto cut = large;
  large.queries[3] = static_cast<bf16>(1e9f), cut.queries[3] = static_cast<bf16>(65504.0f);
  Run<bf16, float8> run(large, 132);
  run.launch(2);
  CHECK_CLOSE(worstRow(run.result(), oracle(cut).out, 64), 0, BOUND<bf16>);
}

TEST("attention: plain, any even headDim") {
  Random random(54);
  const std::vector<Ask> some = {{150, 1}, {0, 1}, {40, 9}, {31, 2, Mask::Sparse}, {70, 4, Mask::Blind}, {64, 3, Mask::Tree, true}};
  for (const int headDim : {2, 8, 16, 48, 80}) {
    check(makeStep<float>(random, 2, headDim == 16 ? 3 : 2, headDim, some), headDim == 48 ? 132 : 1, 3);
    check(makeStep<bf16>(random, 1, headDim == 8 ? 6 : 1, headDim, some), headDim == 8 ? 132 : 2, 2);
    check(makeStep<bf16, float8>(random, headDim == 2 ? 3 : 1, headDim == 8 ? 6 : 1, headDim, some), headDim == 8 ? 132 : 2, 2);
  }
  for (const int headDim : {64, 128}) check(makeStep<float>(random, 1, 4, headDim, some), 132, 2);
}

TEST("attention: any number of blocks gives the same bits, split and unsplit plans agree within the bound") {
  Random random(55);
  const auto step = makeStep<bf16>(random, 2, 4, 64, MIXED);
  Run<bf16> one(step, 132), many(step, 132), whole(step, 1);
  CHECK(one.plan.merges > 4 && whole.plan.merges == 0);
  one.launch(1);
  many.launch(200);
  // The second launch checks that the first one reset the counters.
  many.launch(7);
  whole.launch(4);
  const auto first = one.result(), second = many.result();
  CHECK(std::memcmp(first.data(), second.data(), first.size() * sizeof(bf16)) == 0);
  const auto unsplit = whole.result();
  CHECK_CLOSE(worstRow(first, std::vector<double>(unsplit.begin(), unsplit.end()), 64), 0, BOUND<bf16>);
}

TEST("attention: hidden tiles are skipped, also at the beginning of a part") {
  Random random(58);
  for (const int headDim : {64, 48}) {
    const auto step = makeStep<bf16>(random, 1, 2, headDim, {{1000, 2, Mask::Stripes}, {400, 20, Mask::Stripes}});
    Run<bf16> run(step, 132);
    int skipping = 0;
    for (const AttentionItem& item : run.plan.items) skipping += item.parts > 1 && item.tileWord >= 0;
    CHECK_EQUAL(skipping > 4, attentionIsFast<bf16>(step.shape));
    run.launch(2);
    CHECK_CLOSE(worstRow(run.result(), oracle(step).out, headDim), 0, BOUND<bf16>);
  }
}

TEST("attention: a captured launch serves any step its tables hold") {
  Random random(59);
  const Step<bf16> steps[2] = {makeStep<bf16>(random, 1, 2, 64, {{500, 1}, {20, 3}, {300, 2, Mask::Stripes}}),
                               makeStep<bf16>(random, 1, 2, 64, {{0, 90}, {700, 1}, {10, 1, Mask::Blind}})};
  const ModelShape shape = steps[0].shape;
  const int multiprocessors = 6, rows = 100;
  const AttentionBounds bounds = attentionBounds(rows, 3, shape, multiprocessors, true);
  DeviceArray<bf16> pool(2000 * shape.slotWidth()), queries(rows * shape.queryWidth()), out(rows * shape.queryWidth());
  DeviceArray<AttentionItem> items(bounds.items);
  DeviceArray<int> itemCount(1), slots(2000), counters(std::vector<int>(bounds.counters, 0));
  DeviceArray<uint32_t> mask(1000), tileWords(1000);
  DeviceArray<float> partials(bounds.partialBytes / sizeof(float));
  AttentionTables tables;
  tables.items = items, tables.itemCount = itemCount, tables.slots = slots, tables.mask = mask, tables.tileWords = tileWords;
  tables.partials = partials, tables.counters = counters;
  cudaStream_t stream;
  cudaGraph_t graph;
  cudaGraphExec_t launch;
  testing::cudaOk(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  // Launch once directly, with zero items: CUDA loads a kernel lazily at its first launch, which a capture may not allow.
  itemCount.set({0});
  testing::cudaOk(cudaDeviceSynchronize());
  launchAttention<bf16>(out, queries, kvLayer(pool.get(), shape), tables, shape, attentionBlocks(shape, multiprocessors, true), stream);
  testing::cudaOk(cudaStreamSynchronize(stream));
  testing::cudaOk(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  launchAttention<bf16>(out, queries, kvLayer(pool.get(), shape), tables, shape, attentionBlocks(shape, multiprocessors, true), stream);
  testing::cudaOk(cudaStreamEndCapture(stream, &graph));
  testing::cudaOk(cudaGraphInstantiate(&launch, graph, 0));
  for (const int which : {0, 1, 0}) {
    const Step<bf16>& step = steps[which];
    const AttentionPlan plan = planAttention(step.sequences.data(), 3, step.mask.data(), shape, multiprocessors, true);
    CHECK(plan.merges > 0);
    pool.set(step.pool), queries.set(step.queries), items.set(plan.items), itemCount.set({static_cast<int>(plan.items.size())});
    slots.set(step.slots), mask.set(step.mask), tileWords.set(plan.tileWords), out.set(std::vector<bf16>(out.size(), static_cast<bf16>(NAN)));
    testing::cudaOk(cudaDeviceSynchronize());
    testing::cudaOk(cudaGraphLaunch(launch, stream));
    const std::vector<double> expected = oracle(step).out;
    CHECK_CLOSE(worstRow(out.host(), expected, 64), 0, BOUND<bf16>);
  }
  testing::cudaOk(cudaGraphExecDestroy(launch));
  testing::cudaOk(cudaGraphDestroy(graph));
  testing::cudaOk(cudaStreamDestroy(stream));
}

TEST("attention: scores of any size, and an empty step") {
  Random random(56);
  auto step = makeStep<bf16>(random, 1, 2, 64, {{200, 1}, {100, 20}, {40, 3, Mask::Blind}});
  for (auto& q : step.queries) q = static_cast<bf16>(static_cast<float>(q) * 300);
  check(step, 132, 2);
  const auto nothing = makeStep<bf16>(random, 1, 1, 128, {});
  Run<bf16> run(nothing, 132);
  run.launch(3);
  CHECK(run.result().empty());
}

template <typename T, typename K = T>
static void checkReceived(Random& random, int headDim, double bound) {
  const auto step = makeStep<T, K>(random, 2, 3, headDim, {{100, 1}, {30, 12, Mask::Sparse}, {0, 40}, {50, 4, Mask::Blind}, {33, 3, Mask::Tree, true}});
  Run<T, K> run(step, 132);
  run.launch(3);
  DeviceArray<float> received(std::vector<float>(step.slots.size(), 0));
  for (const AttentionSequence& s : step.sequences)
    launchReceived<T>(received + s.firstKey, run.queries, run.layer(), s, run.slots, run.mask, run.statistics, step.shape, nullptr);
  CHECK_ALL_CLOSE(received.host(), oracle(step).received, bound);
}

TEST("attention: attention received per key") {
  Random random(57);
  checkReceived<float>(random, 16, 1e-4);
  checkReceived<bf16>(random, 64, 1e-4);
  checkReceived<bf16>(random, 10, 1e-4);
  for (const int headDim : {64, 128, 10}) checkReceived<bf16, float8>(random, headDim, 1e-4);
}
