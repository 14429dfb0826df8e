// Compares the prefix trees of random steps with trees that are built from whole prefixes.
#include "attention-prefixes.h"
#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include "../../testing/test.h"

using namespace pie;
using namespace pie::attention;
using testing::Random;

namespace {

struct Step {
  std::vector<AttentionSequence> sequences;
  std::vector<std::vector<int>> lists;

  void add(std::vector<int> list, int rows = 1, int maskWord = -1) {
    sequences.push_back({static_cast<int>(sequences.size()), rows, 0, static_cast<int>(list.size()), maskWord, 0});
    lists.push_back(std::move(list));
  }
  SharedPrefixes find() const {
    std::vector<const int*> slots;
    for (const std::vector<int>& list : lists) slots.push_back(list.data());
    return findSharedPrefixes(sequences.data(), static_cast<int>(sequences.size()), slots.data());
  }
};

struct Range {
  std::set<int> sequences;
  int firstTile, endTile;
  bool operator<(const Range& o) const { return std::tie(sequences, firstTile, endTile) < std::tie(o.sequences, o.firstTile, o.endTile); }
  bool operator==(const Range& o) const { return sequences == o.sequences && firstTile == o.firstTile && endTile == o.endTile; }
};

// For each tile, the sets of sequences whose lists are equal up to its end; tiles that follow each other with equal sets are one range.
std::set<Range> expected(const Step& step) {
  std::map<std::set<int>, std::pair<int, int>> tiles;
  for (int tile = 0;; tile++) {
    std::map<std::vector<int>, std::set<int>> byPrefix;
    for (size_t i = 0; i < step.lists.size(); i++) {
      const AttentionSequence& s = step.sequences[i];
      const int end = (tile + 1) * ATTENTION_TILE;
      if (s.rows == 1 && s.maskWord < 0 && end < s.keys) byPrefix[{step.lists[i].begin(), step.lists[i].begin() + end}].insert(static_cast<int>(i));
    }
    if (byPrefix.empty()) break;
    for (const auto& [prefix, sequences] : byPrefix) {
      if (sequences.size() < 2) continue;
      auto& [first, end] = tiles.emplace(sequences, std::pair<int, int>{tile, tile}).first->second;
      end = tile + 1;
    }
  }
  std::set<Range> ranges;
  for (const auto& [sequences, range] : tiles) ranges.insert({sequences, range.first, range.second});
  return ranges;
}

std::set<Range> rangesOf(const SharedPrefixes& found) {
  std::set<Range> ranges;
  for (const SharedRun& run : found.runs) {
    const auto first = found.order.begin() + run.first;
    ranges.insert({{first, first + run.count}, run.firstTile, run.endTile});
  }
  return ranges;
}

// Few different slots and short distances between forks, so that lists part within tiles, part often, and meet again after a difference.
Step forkedStep(Random& random) {
  Step step;
  const int64_t count = random.integer(0, 40);
  for (int64_t i = 0; i < count; i++) {
    std::vector<int> list(static_cast<size_t>(random.integer(1, 700)), 0);
    if (i == 0 || random.uniform() < 0.1) {
      for (int& slot : list) slot = static_cast<int>(random.integer(0, 1 << 20));
    } else {
      const std::vector<int>& from = step.lists[static_cast<size_t>(random.integer(0, i - 1))];
      std::copy_n(from.begin(), std::min(from.size(), list.size()), list.begin());
      const size_t at = static_cast<size_t>(random.integer(0, static_cast<int64_t>(list.size()) - 1));
      if (random.uniform() < 0.8) list[at] = static_cast<int>(random.integer(0, 3));
    }
    step.add(std::move(list), random.uniform() < 0.95 ? 1 : 2, random.uniform() < 0.95 ? -1 : 0);
  }
  return step;
}

}  // namespace

TEST("shared prefixes: in random steps, every set of sequences with equal slots is a run over all tiles that the set shares") {
  Random random(71);
  size_t runs = 0, deep = 0;
  for (int i = 0; i < 300; i++) {
    const Step step = forkedStep(random);
    const SharedPrefixes found = step.find();
    CHECK(rangesOf(found) == expected(step));
    CHECK_EQUAL(rangesOf(found).size(), found.runs.size());
    // Each sequence that may share is once in the order, and each run continues its parent.
    std::set<int> listed(found.order.begin(), found.order.end());
    CHECK_EQUAL(listed.size(), found.order.size());
    for (size_t s = 0; s < step.sequences.size(); s++) CHECK_EQUAL(listed.count(static_cast<int>(s)) == 1, step.sequences[s].rows == 1 && step.sequences[s].maskWord < 0);
    for (size_t r = 0; r < found.runs.size(); r++) {
      const SharedRun& run = found.runs[r];
      REQUIRE(run.parent < static_cast<int>(r));
      if (run.parent < 0) {
        CHECK_EQUAL(run.firstTile, 0);
        continue;
      }
      const SharedRun& parent = found.runs[run.parent];
      CHECK(run.firstTile == parent.endTile && run.first >= parent.first && run.first + run.count <= parent.first + parent.count && run.count < parent.count);
      deep += parent.parent >= 0;
    }
    runs += found.runs.size();
  }
  CHECK(runs > 1500 && deep > 500);
}

TEST("shared prefixes: sequences that part one after another stop sharing after a bounded number of partings") {
  // Sequence i agrees with all later ones in i + 1 tiles.
  Step step;
  constexpr int COUNT = 3 * MOST_PARTINGS;
  for (int i = 0; i < COUNT; i++) {
    std::vector<int> list((COUNT + 1) * ATTENTION_TILE, 7);
    list[(i + 1) * ATTENTION_TILE] = 1000 + i;
    step.add(std::move(list));
  }
  const SharedPrefixes found = step.find();
  CHECK_EQUAL(static_cast<int>(found.runs.size()), MOST_PARTINGS + 1);
  for (const SharedRun& run : found.runs) CHECK_EQUAL(run.endTile, run.firstTile + 1);
}

TEST("shared prefixes: a sequence with a null list shares nothing") {
  Step step;
  for (int i = 0; i < 3; i++) step.add(std::vector<int>(200, 5));
  const int* const slots[3] = {step.lists[0].data(), nullptr, step.lists[2].data()};
  const SharedPrefixes found = findSharedPrefixes(step.sequences.data(), 3, slots);
  CHECK(found.order == std::vector<int>({0, 2}));
  REQUIRE(found.runs.size() == 1);
  CHECK_EQUAL(found.runs[0].endTile, 3);
}
