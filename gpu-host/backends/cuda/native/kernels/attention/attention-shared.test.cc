// Attention of sequences that begin with the same slots, against float64.
#include <cstring>
#include "../../testing/attention.h"

using namespace pie;
using namespace pie::attentionTesting;
using testing::DeviceArray;
using testing::Random;

namespace {

// A group of `count` decoding sequences with contexts of `shared` + `own` to `shared` + `own` + 2 slots, which begin with the same `shared` slots.
void addGroup(std::vector<Ask>& asks, int count, int shared, int own) {
  const int leader = static_cast<int>(asks.size());
  for (int i = 0; i < count; i++) asks.push_back({shared + own + i % 3, 1, Mask::Causal, false, leader, i == 0 ? 0 : shared});
}
std::vector<Ask> group(int count, int shared, int own) {
  std::vector<Ask> asks;
  addGroup(asks, count, shared, own);
  return asks;
}

// The number of sequences of each shared item, summed over the items of KV head 0.
int sharedRows(const AttentionPlan& plan, int group) {
  int rows = 0;
  for (const AttentionItem& item : plan.items) rows += item.merge == ATTENTION_SHARED && item.kvHead == 0 ? item.rows / group : 0;
  return rows;
}

// Compares with the oracle; the plan must share keys exactly if `shares`.
template <typename T = bf16, typename K = T>
void checkShared(Random& random, int kvHeads, int queries, int headDim, const std::vector<Ask>& asks, bool shares, int blocks = 7, int multiprocessors = 132) {
  const auto step = makeStep<T, K>(random, kvHeads, queries, headDim, asks);
  Run<T, K> run(step, multiprocessors);
  CHECK_EQUAL(sharedRows(run.plan, queries) > 0, shares);
  run.launch(blocks);
  CHECK_CLOSE(worstRow(run.result(), oracle(step).out, headDim), 0, BOUND<T>);
}

// Two groups of sequences, and within the second one a group that shares more keys; also sequences that share nothing, prompts and masks.
std::vector<Ask> mixed() {
  std::vector<Ask> asks = {{70, 1}, {600, 1, Mask::Window}, {0, 30}};
  addGroup(asks, 6, 400, 0);
  asks.push_back({500, 1});
  const int leader = static_cast<int>(asks.size());
  addGroup(asks, 5, 320, 600);
  for (int i = 0; i < 4; i++) asks.push_back({700 + 90 * i, 1, Mask::Causal, false, leader, 650});
  // Not shared: several inputs, a mask.
  asks.push_back({600, 3, Mask::Causal, false, leader, 600});
  asks.push_back({600, 1, Mask::Sink, false, leader, 600});
  asks.push_back({1, 1});
  return asks;
}

}  // namespace

TEST("shared attention: every group size and number of query heads, bf16") {
  Random random(81);
  for (const auto& [count, queries] : std::vector<std::pair<int, int>>{{2, 1}, {2, 8}, {3, 4}, {5, 3}, {8, 4}, {9, 7}, {16, 2}, {17, 8}, {32, 4}, {33, 4}, {64, 1}, {64, 8}})
    checkShared(random, count < 9 ? 2 : 1, queries, count % 2 == 0 ? 64 : 128, group(count, 384, 20), true);
}

TEST("shared attention: every group size and number of query heads, float8") {
  Random random(82);
  for (const auto& [count, queries] : std::vector<std::pair<int, int>>{{2, 8}, {3, 4}, {8, 4}, {9, 7}, {32, 4}, {64, 1}, {40, 8}})
    checkShared<bf16, float8>(random, count < 9 ? 2 : 1, queries, count % 2 == 0 ? 128 : 64, group(count, 384, 20), true);
}

TEST("shared attention: lengths around the edges of tiles and pages") {
  Random random(83);
  // 16 sequences of 4 heads cost less together from two tiles on.
  for (const int shared : {1, 63, 64, 65, 127}) checkShared(random, 1, 4, 64, group(16, shared, 3), false);
  for (const int shared : {128, 129, 143, 144, 191, 192, 193, 255, 256, 320}) {
    checkShared(random, 1, 4, 64, group(16, shared, 0), true);
    checkShared<bf16, float8>(random, 1, 4, 64, group(16, shared, 63), true);
  }
  // A sequence alone shares nothing.
  checkShared(random, 1, 4, 128, std::vector<Ask>(1, {256, 1}), false);
  // The shared slots are the whole context: a sequence has only its own input to itself.
  std::vector<Ask> same(12, {256, 1, Mask::Causal, false, 0, 256});
  same[0].shared = 0;
  checkShared(random, 1, 4, 128, same, true);
}

TEST("shared attention: several groups, one within another, beside sequences alone, prompts and masks") {
  Random random(84);
  for (const int headDim : {64, 128}) {
    for (const int multiprocessors : {9, 132}) checkShared(random, 2, 4, headDim, mixed(), true, 5, multiprocessors);
    checkShared<bf16, float8>(random, 2, 2, headDim, mixed(), true);
  }
  // The plain kernel reads no keys together.
  checkShared(random, 1, 2, 48, mixed(), false);
  checkShared<float>(random, 1, 2, 64, mixed(), false);
}

TEST("shared attention: any number of blocks gives the same bits, and results with and without sharing agree within the bound") {
  Random random(85);
  const auto step = makeStep<bf16>(random, 2, 4, 64, mixed());
  Run<bf16> one(step, 132), many(step, 132), alone(step, 132, false);
  CHECK(sharedRows(one.plan, 4) > 20 && sharedRows(alone.plan, 4) == 0 && alone.plan.members.empty());
  one.launch(1);
  many.launch(200);
  // The second launch checks that the first one reset the counters.
  many.launch(11);
  alone.launch(4);
  const auto first = one.result(), second = many.result(), apart = alone.result();
  CHECK(std::memcmp(first.data(), second.data(), first.size() * sizeof(bf16)) == 0);
  CHECK_CLOSE(worstRow(first, std::vector<double>(apart.begin(), apart.end()), 64), 0, BOUND<bf16>);
}

TEST("shared attention: scores of any size, and the attention that each key received") {
  Random random(86);
  auto step = makeStep<bf16>(random, 1, 2, 64, group(10, 256, 70));
  Run<bf16> plain(step, 132);
  plain.launch(3);
  DeviceArray<float> received(std::vector<float>(step.slots.size(), 0));
  for (const AttentionSequence& s : step.sequences)
    launchReceived<bf16>(received + s.firstKey, plain.queries, plain.layer(), s, plain.slots, plain.mask, plain.statistics, step.shape, nullptr);
  CHECK_ALL_CLOSE(received.host(), oracle(step).received, 1e-4);
  for (auto& q : step.queries) q = static_cast<bf16>(static_cast<float>(q) * 300);
  Run<bf16> large(step, 132);
  CHECK(sharedRows(large.plan, 2) > 0);
  large.launch(3);
  CHECK_CLOSE(worstRow(large.result(), oracle(step).out, 64), 0, BOUND<bf16>);
}
