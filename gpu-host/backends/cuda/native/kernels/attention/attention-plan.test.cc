// Property tests of the planner on random steps: each (row, KV head, visible key) is covered exactly once.
#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include "../../testing/test.h"
#include "../../testing/attention-views.h"

using namespace pie;
using testing::Random;

namespace {

struct Step {
  std::vector<AttentionSequence> sequences;
  std::vector<uint32_t> mask;
  int rows = 0;
  std::vector<std::vector<int>> slots;  // By sequence; empty: the planner gets no slot lists.
};

ModelShape shapeOf(int kvHeads, int group, int headDim) {
  ModelShape shape;
  shape.heads = kvHeads * group, shape.kvHeads = kvHeads, shape.headDim = headDim;
  return shape;
}

void add(Step& step, Random& random, int context, int rows, double masked) {
  AttentionSequence s = {step.rows, rows, 1000 * static_cast<int>(step.sequences.size()), context + rows, -1, 0};
  if (random.uniform() < masked) {
    s.maskWord = static_cast<int>(step.mask.size());
    s.maskStride = (s.keys + 31) / 32;
    // Hides whole ranges of keys from every row, so that the planner can skip tiles.
    std::vector<bool> hidden(s.keys);
    const double share = random.uniform();
    for (int key = 0; key < s.keys;) {
      const bool hide = random.uniform() < share;
      for (int64_t end = key + random.integer(1, 300); key < std::min<int64_t>(end, s.keys); key++) hidden[key] = hide;
    }
    for (int row = 0; row < rows; row++) {
      for (int word = 0; word < s.maskStride; word++) {
        uint32_t bits = 0;
        for (int bit = 0; bit < 32; bit++) {
          const int key = 32 * word + bit;
          // Bits past the last key are undefined by contract, so the test sets them.
          if (key >= s.keys || (!hidden[key] && random.uniform() < 0.7)) bits |= 1u << bit;
        }
        step.mask.push_back(bits);
      }
    }
  }
  step.rows += rows;
  step.sequences.push_back(s);
}

Step randomStep(Random& random) {
  Step step;
  const int64_t count = random.integer(0, 5);
  const double masked = random.uniform() < 0.5 ? 0 : 0.5;
  for (int64_t i = 0; i < count; i++) {
    const int64_t kind = random.integer(0, 3);
    const int context = static_cast<int>(kind == 0 ? 0 : random.integer(0, kind == 1 ? 9000 : 700));
    add(step, random, context, static_cast<int>(random.uniform() < 0.5 ? 1 : random.integer(1, context > 1000 ? 6 : 150)), masked);
  }
  return step;
}

bool sees(const Step& step, const AttentionSequence& s, int input, int key) {
  if (s.maskWord < 0) return key <= s.keys - s.rows + input;
  return step.mask[s.maskWord + input * s.maskStride + key / 32] >> (key % 32) & 1;
}

AttentionPlan plan(const Step& step, const ModelShape& shape, int multiprocessors, bool fast) {
  std::vector<const int*> lists;
  for (const std::vector<int>& list : step.slots) lists.push_back(list.data());
  return planAttention(step.sequences.data(), static_cast<int>(step.sequences.size()), step.mask.data(), shape, multiprocessors, fast,
                       lists.empty() ? nullptr : lists.data());
}

const AttentionSequence* sequenceAt(const Step& step, int row) {
  for (const AttentionSequence& s : step.sequences)
    if (s.firstRow == row) return &s;
  return nullptr;
}

// An item reads the right keys for a sequence if it reads the sequence's own list, or one that is equal as far as the item reads.
bool readsKeysOf(const Step& step, const AttentionItem& item, const AttentionSequence& s) {
  if (item.merge != ATTENTION_SHARED)
    return item.firstKey == s.firstKey && item.keys == s.keys && item.context == s.keys - s.rows && item.maskWord == s.maskWord && item.maskStride == s.maskStride;
  const int end = item.endTile * ATTENTION_TILE;
  const std::vector<int>& own = step.slots[&s - step.sequences.data()];
  for (size_t i = 0; i < step.sequences.size(); i++) {
    if (step.sequences[i].firstKey != item.firstKey) continue;
    return s.maskWord < 0 && s.rows == 1 && end < s.keys && item.keys >= end && item.context >= end - 1 && item.maskWord < 0 && item.tileWord < 0 &&
           std::equal(own.begin(), own.begin() + end, step.slots[i].begin());
  }
  return false;
}

// Counts how often the items cover each (row, KV head, key) of the step.
void checkCoverage(const Step& step, const ModelShape& shape, const AttentionPlan& planned) {
  const int group = shape.heads / shape.kvHeads;
  std::map<std::pair<const AttentionSequence*, int>, std::vector<uint8_t>> met;
  for (const AttentionItem& item : planned.items) {
    for (const AttentionView& view : viewsOf(item, planned.members.data(), group)) {
      const AttentionSequence* s = sequenceAt(step, view.queryRow);
      REQUIRE(s != nullptr);
      CHECK(readsKeysOf(step, item, *s));
      REQUIRE(view.rows > 0 && view.firstRow >= 0 && view.firstRow + view.rows <= s->rows * group);
      REQUIRE(item.firstTile >= 0 && item.endTile <= (s->keys + ATTENTION_TILE - 1) / ATTENTION_TILE);
      auto& counts = met[{s, item.kvHead}];
      counts.resize(static_cast<size_t>(s->rows) * group * s->keys);
      for (int tile = item.firstTile; tile < item.endTile; tile++) {
        if (item.tileWord >= 0 && !(planned.tileWords[item.tileWord + tile / 32] >> (tile % 32) & 1)) continue;
        for (int row = view.firstRow; row < view.firstRow + view.rows; row++)
          for (int key = tile * ATTENTION_TILE; key < std::min((tile + 1) * ATTENTION_TILE, s->keys); key++) counts[static_cast<size_t>(row) * s->keys + key]++;
      }
    }
  }
  int wrong = 0;
  for (const AttentionSequence& s : step.sequences) {
    for (int head = 0; head < shape.kvHeads; head++) {
      const auto& counts = met[{&s, head}];
      REQUIRE(counts.size() == static_cast<size_t>(s.rows) * group * s.keys);
      for (int row = 0; row < s.rows * group; row++) {
        for (int key = 0; key < s.keys; key++) {
          const int times = counts[static_cast<size_t>(row) * s.keys + key];
          wrong += times > 1 || (times == 0 && sees(step, s, row / group, key));
        }
      }
    }
  }
  CHECK_EQUAL(wrong, 0);
}

// The parts of one merge are numbered without gaps, and no two parts share a partial row.
void checkParts(const AttentionPlan& planned, int group) {
  struct Part {
    AttentionView view;
    int kvHead;
  };
  std::map<int, std::vector<Part>> merges;
  std::vector<uint8_t> used(planned.partialRows);
  for (const AttentionItem& item : planned.items) {
    CHECK(item.parts > 1 || item.merge == -1);
    for (const AttentionView& view : viewsOf(item, planned.members.data(), group)) {
      if (item.parts == 1) continue;
      merges[view.merge].push_back({view, item.kvHead});
      for (int row = 0; row < view.rows; row++) used.at(view.firstPartial + view.part * view.rows + row)++;
    }
  }
  CHECK_EQUAL(static_cast<int>(merges.size()), planned.merges);
  if (!merges.empty()) CHECK(merges.begin()->first == 0 && merges.rbegin()->first == planned.merges - 1);
  CHECK(std::all_of(used.begin(), used.end(), [](uint8_t times) { return times == 1; }));
  for (const auto& [merge, parts] : merges) {
    const auto& [first, kvHead] = parts.front();
    std::vector<bool> there(first.parts);
    for (const Part& part : parts) {
      const AttentionView& view = part.view;
      CHECK(view.parts == first.parts && view.firstPartial == first.firstPartial && view.rows == first.rows);
      CHECK(part.kvHead == kvHead && view.firstRow == first.firstRow && view.queryRow == first.queryRow);
      there.at(view.part) = true;
    }
    CHECK_EQUAL(parts.size(), there.size());
    CHECK(std::all_of(there.begin(), there.end(), [](bool is) { return is; }));
  }
}

void checkBounds(const Step& step, const ModelShape& shape, const AttentionPlan& planned, int multiprocessors, bool fast) {
  const AttentionBounds bounds = attentionBounds(step.rows, static_cast<int>(step.sequences.size()), shape, multiprocessors, fast);
  CHECK(static_cast<int>(planned.items.size()) <= bounds.items);
  CHECK(2 + planned.merges <= bounds.counters);
  CHECK(planned.partialRows * (shape.headDim + ATTENTION_PARTIAL_EXTRA) * sizeof(float) <= bounds.partialBytes);
  CHECK(planned.tileWords.size() <= step.mask.size());
  CHECK(planned.members.size() <= step.sequences.size());
}

// Decoding sequences that begin with the slots of others, in a random tree, among sequences of other kinds.
Step forkedStep(Random& random) {
  Step step;
  int next = 0;
  const int64_t count = random.integer(1, 70);
  for (int64_t i = 0; i < count; i++) {
    const bool decodes = random.uniform() < 0.9;
    add(step, random, static_cast<int>(random.integer(0, 1500)), decodes ? 1 : static_cast<int>(random.integer(1, 20)), decodes ? 0.1 : 0.5);
    std::vector<int> list(step.sequences.back().keys);
    for (int& slot : list) slot = next++;
    if (i > 0 && random.uniform() < 0.9) {
      const std::vector<int>& from = step.slots[static_cast<size_t>(random.integer(0, i - 1))];
      const size_t most = std::min(from.size(), list.size() - 1);
      std::copy_n(from.begin(), random.uniform() < 0.5 ? most : static_cast<size_t>(random.integer(0, static_cast<int64_t>(most))), list.begin());
    }
    step.slots.push_back(std::move(list));
  }
  return step;
}

// Tiles of keys that the items read.
int64_t tilesRead(const AttentionPlan& planned) {
  int64_t tiles = 0;
  for (const AttentionItem& item : planned.items) tiles += item.endTile - item.firstTile;
  return tiles;
}

// The number of multiprocessors that together hold 264 blocks, as many as an H100 holds.
int multiprocessorsOf(const ModelShape& shape) { return 264 / attentionBlocks(shape, 1, true); }

}  // namespace

TEST("attention plan: random steps are covered exactly once, within bounds and deterministically") {
  Random random(41);
  int split = 0, whole = 0, skipping = 0;
  for (int i = 0; i < 120; i++) {
    const Step step = randomStep(random);
    const int kvHeads = static_cast<int>(random.integer(1, 3)), group = static_cast<int>(random.integer(1, 9));
    const ModelShape shape = shapeOf(kvHeads, group, 64);
    const int multiprocessors = random.uniform() < 0.5 ? 132 : static_cast<int>(random.integer(1, 20));
    const bool fast = random.uniform() < 0.8;
    const AttentionPlan planned = plan(step, shape, multiprocessors, fast), again = plan(step, shape, multiprocessors, fast);
    checkCoverage(step, shape, planned);
    checkParts(planned, group);
    checkBounds(step, shape, planned, multiprocessors, fast);
    CHECK_EQUAL(planned.items.size(), again.items.size());
    CHECK(planned.items.empty() || std::memcmp(planned.items.data(), again.items.data(), planned.items.size() * sizeof(AttentionItem)) == 0);
    for (const AttentionItem& item : planned.items) (item.parts > 1 ? split : whole)++, skipping += item.tileWord >= 0;
  }
  // Fails if the random steps exercise too few splits, whole items or skipped tiles.
  CHECK(split > 1000 && whole > 1000 && skipping > 100);
}

TEST("attention plan: sequences that share slots are covered exactly once, within bounds, and items read the shared slots once for several of them") {
  Random random(46);
  int shared = 0, nested = 0, members = 0;
  int64_t fewer = 0, tiles = 0;
  for (int i = 0; i < 150; i++) {
    Step step = forkedStep(random);
    const int kvHeads = static_cast<int>(random.integer(1, 3)), group = static_cast<int>(random.integer(1, 9));
    const ModelShape shape = shapeOf(kvHeads, group, 64);
    const int multiprocessors = random.uniform() < 0.7 ? 132 : static_cast<int>(random.integer(1, 20));
    const AttentionPlan planned = plan(step, shape, multiprocessors, true);
    checkCoverage(step, shape, planned);
    checkParts(planned, group);
    checkBounds(step, shape, planned, multiprocessors, true);
    std::map<int, std::set<std::pair<int, int>>> runs;  // By member: first member and rows of each item that contains the member.
    for (const AttentionItem& item : planned.items) {
      if (item.merge != ATTENTION_SHARED || item.kvHead > 0) continue;
      shared++, members += item.rows / group;
      CHECK(item.rows <= 128 && item.rows % group == 0);
      for (int member = 0; member < item.rows / group; member++) runs[item.firstPartial + member].insert({item.firstPartial, item.rows});
    }
    for (const auto& [member, items] : runs) nested += items.size() > 1;
    // The plain kernel shares nothing, and neither does a plan without slots.
    const AttentionPlan plain = plan(step, shape, multiprocessors, false);
    checkCoverage(step, shape, plain);
    CHECK(plain.members.empty());
    step.slots.clear();
    const AttentionPlan alone = plan(step, shape, multiprocessors, true);
    CHECK(alone.members.empty() && tilesRead(planned) <= tilesRead(alone));
    fewer += tilesRead(alone) - tilesRead(planned), tiles += tilesRead(alone);
  }
  // Fails if the random steps share too little.
  CHECK(shared > 1000 && members > 3 * shared && nested > 200 && 5 * fewer > tiles);
}

TEST("attention plan: sharing is chosen by its cost, and an outlier does not end it") {
  const ModelShape shape = shapeOf(8, 4, 128);
  const auto step = [](const std::vector<std::pair<int, int>>& asked) {  // Slots shared with the first sequence, own slots.
    Step step;
    Random random(47);
    int next = 0;
    for (const auto& [shared, own] : asked) {
      add(step, random, shared + own - 1, 1, 0);
      std::vector<int> list(shared + own);
      for (int& slot : list) slot = next++;
      if (!step.slots.empty()) std::copy_n(step.slots[0].begin(), shared, list.begin());
      step.slots.push_back(std::move(list));
    }
    return step;
  };
  // The largest number of leading keys that an item reads for several sequences.
  const auto sharedKeys = [&](const std::vector<std::pair<int, int>>& asked) {
    int keys = 0;
    for (const AttentionItem& item : plan(step(asked), shape, 132, true).items)
      if (item.merge == ATTENTION_SHARED) keys = std::max(keys, item.endTile * ATTENTION_TILE);
    return keys;
  };
  // The cost of T tiles for two sequences: together (T + 2) × 4, plus twice 4 for their own partial results; alone 8 T. So sharing pays from 5 tiles
  // on.
  CHECK_EQUAL(sharedKeys({{256, 40}, {256, 40}}), 0);
  CHECK_EQUAL(sharedKeys({{320, 40}, {320, 40}}), 320);
  std::vector<std::pair<int, int>> many(30, {4000, 128});
  CHECK_EQUAL(sharedKeys(many), 4000 / ATTENTION_TILE * ATTENTION_TILE);
  many.push_back({70, 128});
  CHECK_EQUAL(sharedKeys(many), 4000 / ATTENTION_TILE * ATTENTION_TILE);
  // Tiles that 8 KV heads read for 32 sequences with 8,192 shared slots and 128 own ones: the 128 shared tiles are read twice, for 16 sequences each,
  // and every sequence reads 2 tiles of its own.
  const AttentionPlan together = plan(step(std::vector<std::pair<int, int>>(32, {8192, 128})), shape, multiprocessorsOf(shape), true);
  CHECK_EQUAL(tilesRead(together), 8 * (2 * 128 + 32 * 2));
}

TEST("attention plan: the longest queue stays near an even share") {
  Random random(42);
  std::vector<double> ratios;
  for (int i = 0; i < 300; i++) {
    Step step;
    const int64_t count = random.integer(1, 80);
    for (int64_t s = 0; s < count; s++) {
      const bool prefill = random.uniform() < 0.1;
      const int longest = random.uniform() < 0.1 ? 130000 : 3000;
      const int context = static_cast<int>(random.integer(0, longest)), rows = prefill ? static_cast<int>(random.integer(2, 600)) : 1;
      add(step, random, context, rows, 0);
    }
    const ModelShape shape = shapeOf(8, static_cast<int>(random.integer(1, 8)), 128);
    const AttentionPlan planned = plan(step, shape, multiprocessorsOf(shape), true);
    // An item is never split below the minimum part size, so small steps cannot reach an even share.
    ratios.push_back(static_cast<double>(planned.makespan) / static_cast<double>(std::max<int64_t>(planned.evenShare, 16)));
  }
  std::sort(ratios.begin(), ratios.end());
  CHECK(ratios[150] <= 1.1);
  CHECK(ratios[270] <= 1.25);
  // Outliers: few large items, or more partial results than the budget allows.
  CHECK(ratios[297] <= 2);
  CHECK(ratios.back() <= 2.5);
}

TEST("attention plan: decoding splits over keys at batch 1 and not where the batch alone fills the device") {
  Random random(43);
  const ModelShape shape = shapeOf(8, 4, 128);
  for (const int context : {1023, 8191, 32767, 131071}) {
    Step step;
    add(step, random, context, 1, 0);
    const AttentionPlan planned = plan(step, shape, multiprocessorsOf(shape), true);
    CHECK(planned.items.size() >= std::min<size_t>(context / 128, 200));
    CHECK(planned.items.size() <= 4 * 132);
    CHECK_EQUAL(planned.merges, 8);
  }
  for (const int batch : {32, 64, 128}) {
    Step step;
    for (int i = 0; i < batch; i++) add(step, random, 1023, 1, 0);
    const AttentionPlan planned = plan(step, shape, multiprocessorsOf(shape), true);
    CHECK_EQUAL(planned.merges, 0);
    CHECK_EQUAL(static_cast<int>(planned.items.size()), 8 * batch);
  }
}

TEST("attention plan: a single prompt is not split, causally hidden tiles are skipped, items have descending cost") {
  Random random(44);
  Step step;
  add(step, random, 0, 4096, 0);
  const AttentionPlan planned = plan(step, shapeOf(8, 4, 128), 132, true);
  CHECK_EQUAL(planned.merges, 0);
  int64_t tiles = 0;
  for (size_t i = 0; i < planned.items.size(); i++) {
    tiles += planned.items[i].endTile - planned.items[i].firstTile;
    if (i > 0) CHECK(planned.items[i].endTile <= planned.items[i - 1].endTile);
  }
  // Each KV head has 128 items of 32 inputs. Two consecutive items end in the same tile, so each of the 64 tiles is the end of two items.
  CHECK_EQUAL(tiles, 8 * 2 * 64 * 65 / 2);
}

TEST("attention plan: a window mask over a long context reads only the window's tiles") {
  Random random(45);
  Step step;
  add(step, random, 5000, 1, 0);
  AttentionSequence& s = step.sequences[0];
  s.maskWord = 0, s.maskStride = (5001 + 31) / 32;
  step.mask.assign(s.maskStride, 0);
  for (const int key : {0, 3, 4990, 5000}) step.mask[key / 32] |= 1u << (key % 32);
  const AttentionPlan planned = plan(step, shapeOf(2, 1, 64), 132, true);
  CHECK_EQUAL(planned.items.size(), size_t{2});
  CHECK(planned.items[0].tileWord >= 0);
  CHECK_EQUAL(planned.tileWords.size(), size_t{3});
  int tiles = 0;
  for (const uint32_t word : planned.tileWords) tiles += __builtin_popcount(word);
  // The four visible keys lie in tiles 0, 77 and 78.
  CHECK_EQUAL(tiles, 3);
  checkCoverage(step, shapeOf(2, 1, 64), planned);
  // A mask that hides every key still yields items, because the outputs must be set to zero.
  step.mask.assign(s.maskStride, 0);
  const AttentionPlan blind = plan(step, shapeOf(2, 1, 64), 132, true);
  CHECK_EQUAL(blind.items.size(), size_t{2});
  CHECK_EQUAL(blind.items[0].endTile, blind.items[0].firstTile);
}
