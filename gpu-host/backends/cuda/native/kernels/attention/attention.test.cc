// Attention against a plain float64 computation over the same rounded inputs.
#include <cstring>
#include "../../testing/attention.h"

using namespace pie;
using namespace pie::attentionTesting;
using testing::DeviceArray;
using testing::Random;

namespace {

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

TEST("attention: the plain kernel computes any even headDim") {
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
  // The last step's sequences share keys.
  const Step<bf16> steps[3] = {makeStep<bf16>(random, 1, 2, 64, {{500, 1}, {20, 3}, {300, 2, Mask::Stripes}}),
                               makeStep<bf16>(random, 1, 2, 64, {{0, 90}, {700, 1}, {10, 1, Mask::Blind}}),
                               makeStep<bf16>(random, 1, 2, 64, {{500, 1}, {480, 1, Mask::Causal, false, 0, 450}, {470, 1, Mask::Causal, false, 0, 470}})};
  const ModelShape shape = steps[0].shape;
  const int multiprocessors = 6, rows = 100;
  const AttentionBounds bounds = attentionBounds(rows, 3, shape, multiprocessors, true);
  DeviceArray<bf16> pool(2000 * shape.slotWidth()), queries(rows * shape.queryWidth()), out(rows * shape.queryWidth());
  DeviceArray<AttentionItem> items(bounds.items);
  DeviceArray<int> itemCount(1), slots(2000), counters(std::vector<int>(bounds.counters, 0));
  DeviceArray<uint32_t> mask(1000), tileWords(1000);
  DeviceArray<AttentionMember> members(3);
  DeviceArray<float> partials(bounds.partialBytes / sizeof(float));
  AttentionTables tables;
  tables.items = items, tables.itemCount = itemCount, tables.slots = slots, tables.mask = mask, tables.tileWords = tileWords;
  tables.members = members, tables.partials = partials, tables.counters = counters;
  const testing::Stream stream;
  const auto launch = [&] {
    launchAttention<bf16>(out, queries, kvLayer(pool.get(), shape), tables, shape, attentionBlocks(shape, multiprocessors, true), stream);
  };
  // Launch once directly, with zero items: CUDA loads a kernel lazily at its first launch, which a capture may not allow.
  itemCount.set({0});
  testing::cudaOk(cudaDeviceSynchronize());
  launch();
  testing::cudaOk(cudaStreamSynchronize(stream));
  const testing::Graph graph(stream, launch);
  for (const int which : {0, 2, 1, 2, 0}) {
    const Step<bf16>& step = steps[which];
    const AttentionPlan plan = planAttention(step.sequences.data(), 3, step.mask.data(), shape, multiprocessors, true, listsOf(step).data());
    CHECK(plan.merges > 0 && plan.members.empty() == (which != 2));
    pool.set(step.pool), queries.set(step.queries), items.set(plan.items), itemCount.set({static_cast<int>(plan.items.size())});
    slots.set(step.slots), mask.set(step.mask), tileWords.set(plan.tileWords), members.set(plan.members), out.set(std::vector<bf16>(out.size(), static_cast<bf16>(NAN)));
    testing::cudaOk(cudaDeviceSynchronize());
    graph.launch(stream);
    const std::vector<double> expected = oracle(step).out;
    CHECK_CLOSE(worstRow(out.host(), expected, 64), 0, BOUND<bf16>);
  }
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

TEST("attention: scores of another scale, and with a softcap, which the plain kernel computes for any headDim") {
  Random random(60);
  const std::vector<Ask> some = {{150, 1}, {0, 1}, {40, 9}, {31, 2, Mask::Sparse}, {70, 4, Mask::Blind}};
  for (const int headDim : {64, 128, 80}) {
    auto step = makeStep<bf16>(random, 1, 2, headDim, some);
    step.shape.attentionScale = 0.25;
    CHECK_EQUAL(attentionIsFast<bf16>(step.shape), headDim != 80);
    check(step, 132, 2);
    step.shape.attentionSoftcap = 3;
    CHECK(!attentionIsFast<bf16>(step.shape));
    check(step, 132, 2);
    auto exact = makeStep<float>(random, 2, 1, headDim, some);
    exact.shape.attentionSoftcap = 3;
    check(exact, 132, 2);
  }
}

template <typename T, typename K = T>
static void checkReceived(Random& random, int headDim, double bound, float softcap = 0) {
  auto step = makeStep<T, K>(random, 2, 3, headDim, {{100, 1}, {30, 12, Mask::Sparse}, {0, 40}, {50, 4, Mask::Blind}, {33, 3, Mask::Tree, true}});
  step.shape.attentionSoftcap = softcap;
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
  checkReceived<bf16>(random, 64, 1e-4, 5);
  for (const int headDim : {64, 128, 10}) checkReceived<bf16, float8>(random, headDim, 1e-4);
}
