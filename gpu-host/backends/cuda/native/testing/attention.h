// Test helpers of attention: random steps, their outputs in float64, and launches of them.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstring>
#include "device.h"
#include "test.h"
#include "attention-views.h"
#include "kv.h"

namespace pie::attentionTesting {

using testing::DeviceArray;
using testing::Random;

enum class Mask { Causal, Window, Sink, Stripes, Tree, Sparse, Blind };

struct Ask {
  int context, rows;
  Mask mask = Mask::Causal;
  bool repeated = false;  // Some slot occurs more than once in the list.
  int like = -1, shared = 0;  // The first `shared` slots are those of the sequence `like`.
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

inline bool shows(Mask mask, int context, int input, int key, Random& random) {
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

inline void scaleHead(double* values, int count, double factor) {
  for (int i = 0; i < count; i++) values[i] *= factor;
}

template <typename T, typename K = T>
Step<T, K> makeStep(Random& random, int kvHeads, int group, int headDim, const std::vector<Ask>& asks) {
  Step<T, K> step;
  step.shape.heads = kvHeads * group, step.shape.kvHeads = kvHeads, step.shape.headDim = headDim;
  int keys = 0;
  for (const Ask& ask : asks) keys += ask.context + ask.rows;
  // A pool in which the step's slots are scattered at random among other slots. The other slots are NaN, because no kernel may read them.
  const int poolSlots = keys + keys / 3 + 5;
  std::vector<int> order(poolSlots);
  for (int i = 0; i < poolSlots; i++) std::swap(order[i] = i, order[random.integer(0, i)]);
  for (const Ask& ask : asks) {
    AttentionSequence s = {step.rows, ask.rows, static_cast<int>(step.slots.size()), ask.context + ask.rows, -1, 0};
    for (int key = 0; key < s.keys; key++) {
      const bool again = ask.repeated && key % 5 == 4;
      const int at = key < ask.shared ? step.sequences[ask.like].firstKey + key : again ? s.firstKey + static_cast<int>(random.integer(0, key - 1)) : -1;
      step.slots.push_back(at < 0 ? order[s.firstKey + key] : step.slots[at]);
    }
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
  std::vector<bool> written(poolSlots, false);
  for (const int slot : step.slots) {
    if (written[slot]) continue;
    written[slot] = true;
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
        scores[key] = shape.attentionScale > 0 ? score * shape.attentionScale : score / std::sqrt(static_cast<double>(headDim));
        if (shape.attentionSoftcap > 0) scores[key] = shape.attentionSoftcap * std::tanh(scores[key] / shape.attentionSoftcap);
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

template <typename T, typename K>
std::vector<const int*> listsOf(const Step<T, K>& step) {
  std::vector<const int*> lists;
  for (const AttentionSequence& s : step.sequences) lists.push_back(step.slots.data() + s.firstKey);
  return lists;
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
  DeviceArray<AttentionMember> members;
  DeviceArray<float> partials;
  DeviceArray<float2> statistics;

  Run(const Step<T, K>& step, int multiprocessors, bool shares = true)
      : step(step),
        plan(planAttention(step.sequences.data(), static_cast<int>(step.sequences.size()), step.mask.data(), step.shape, multiprocessors,
                           attentionIsFast<T>(step.shape), shares ? listsOf(step).data() : nullptr)),
        pool(step.pool), queries(step.queries), out(std::vector<T>(step.queries.size() + PADDING_ROWS * step.shape.queryWidth(), static_cast<T>(NAN))),
        items(plan.items), itemCount(std::vector<int>{static_cast<int>(plan.items.size())}), slots(step.slots), counters(std::vector<int>(2 + plan.merges, 0)),
        mask(step.mask), tileWords(plan.tileWords), members(plan.members),
        partials(static_cast<size_t>(plan.partialRows) * (step.shape.headDim + ATTENTION_PARTIAL_EXTRA)),
        statistics(static_cast<size_t>(step.rows) * step.shape.heads) {}

  KvLayer<K> layer() const { return kvLayer(pool.get(), step.shape); }
  void launch(int blocks) {
    AttentionTables tables;
    tables.items = items, tables.itemCount = itemCount, tables.slots = slots, tables.mask = mask, tables.tileWords = tileWords;
    tables.members = members, tables.partials = partials, tables.counters = counters, tables.statistics = statistics;
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

}  // namespace pie::attentionTesting
