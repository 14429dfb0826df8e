// Splits a step's attention into work items. A pure function without device code.
#include <algorithm>
#include <queue>
#include "attention.h"

namespace pie {
namespace {

constexpr int TILE = ATTENTION_TILE;
// Maximum packed rows per item.
constexpr int FAST_ROWS = 128, PLAIN_ROWS = 16;
// Upper bounds on split parts and partial rows, per block. They bound the memory for partial results.
constexpr int PARTS_PER_BLOCK = 4, PARTIAL_ROWS_PER_BLOCK = 256;
// With this many items per block, none more expensive than an even share, dynamic scheduling by descending cost balances well enough that splitting
// does not pay.
constexpr int ITEMS_ENOUGH = 8;

template <typename T>
T ceilDiv(T a, T b) {
  return (a + b - 1) / b;
}

// Estimated cost of one tile of keys. Up to 32 rows the tile's load from memory dominates, above that the matrix products do.
int64_t tileCost(int rows) { return rows <= 32 ? 4 : rows <= 64 ? 5 : 8; }
// Overheads in tiles: starting and finishing an item, and writing and rereading a partial result.
constexpr int START_TILES = 1;
int partialTiles(int rows) { return ceilDiv(rows, 32); }
// Fewest tiles per part, so that the traffic of its partial result stays small compared with the keys and values it reads.
int leastTiles(int rows) { return std::max(2, rows / 16); }

// A range of packed rows of one sequence with all their keys. Every KV head has the same strands.
struct Strand {
  int sequence;
  int firstRow, rows;
  int firstTile, endTile;
  int visible;   // Tiles in [firstTile, endTile) that some row sees.
  int tileWord;  // Offset of the strand's visibility bits in tileWords, or -1 if all its tiles are visible.
  int parts = 1;

  int64_t wholeCost() const { return (visible + START_TILES) * tileCost(rows); }
  int64_t partCost() const { return parts == 1 ? wholeCost() : (ceilDiv(visible, parts) + START_TILES + partialTiles(rows)) * tileCost(rows); }
};

// Number of parts so that none costs more than `limit`.
int partsWithin(const Strand& strand, int64_t limit) {
  if (strand.wholeCost() <= limit) return 1;
  const int64_t tiles = limit / tileCost(strand.rows) - START_TILES - partialTiles(strand.rows);
  return static_cast<int>(std::max<int64_t>(1, ceilDiv<int64_t>(strand.visible, std::max<int64_t>(tiles, leastTiles(strand.rows)))));
}

bool tileIsVisible(const uint32_t* words, int tile) { return words[tile / 32] >> (tile % 32) & 1; }

// Finds the tiles that inputs [first, last] see. Appends one bit per tile to `words`, unless the visible tiles are contiguous.
void findVisible(Strand& strand, const AttentionSequence& sequence, const uint32_t* mask, int first, int last, std::vector<uint32_t>& words) {
  const int tiles = ceilDiv(sequence.keys, TILE), stride = sequence.maskStride;
  std::vector<uint32_t> seen(stride, 0);
  for (int input = first; input <= last; input++) {
    const uint32_t* row = mask + sequence.maskWord + static_cast<size_t>(input) * stride;
    for (int word = 0; word < stride; word++) seen[word] |= row[word];
  }
  if (sequence.keys % 32 != 0) seen.back() &= ~0u >> (32 - sequence.keys % 32);
  const size_t start = words.size();
  words.resize(start + ceilDiv(tiles, 32), 0);
  uint32_t* bits = words.data() + start;
  for (int word = 0; word < stride; word++) {
    const int tile = word * 32 / TILE;
    if (seen[word] != 0) bits[tile / 32] |= 1u << (tile % 32);
  }
  strand.firstTile = strand.endTile = strand.visible = 0;
  for (int tile = 0; tile < tiles; tile++) {
    if (!tileIsVisible(bits, tile)) continue;
    if (strand.visible++ == 0) strand.firstTile = tile;
    strand.endTile = tile + 1;
  }
  strand.tileWord = static_cast<int>(start);
  if (strand.visible == strand.endTile - strand.firstTile) {
    strand.tileWord = -1;
    words.resize(start);
  }
}

std::vector<Strand> findStrands(const AttentionSequence* sequences, int count, const uint32_t* mask, int group, bool fast, std::vector<uint32_t>& words) {
  std::vector<Strand> strands;
  for (int s = 0; s < count; s++) {
    const AttentionSequence& sequence = sequences[s];
    const int packed = sequence.rows * group, most = fast ? FAST_ROWS : PLAIN_ROWS;
    for (int row = 0; row < packed; row += most) {
      Strand strand{s, row, std::min(most, packed - row), 0, ceilDiv(sequence.keys, TILE), 0, -1};
      const int first = row / group, last = (row + strand.rows - 1) / group;
      if (sequence.maskWord < 0) strand.endTile = ceilDiv(sequence.keys - sequence.rows + last + 1, TILE);
      strand.visible = strand.endTile;
      if (sequence.maskWord >= 0 && mask != nullptr) findVisible(strand, sequence, mask, first, last, words);
      strands.push_back(strand);
    }
  }
  return strands;
}

// The longest of `queues` queues under longest-processing-time-first scheduling (Graham, 1969). All KV heads have equal costs, so one head is
// simulated.
int64_t longestQueue(const std::vector<Strand>& strands, int queues) {
  std::vector<std::pair<int64_t, int>> costs;
  for (const Strand& strand : strands) costs.push_back({strand.partCost(), strand.parts});
  std::sort(costs.begin(), costs.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::priority_queue<int64_t, std::vector<int64_t>, std::greater<int64_t>> loads(std::greater<int64_t>(), std::vector<int64_t>(queues, 0));
  int64_t longest = 0;
  for (const auto& [cost, parts] : costs) {
    for (int i = 0; i < parts; i++) {
      const int64_t load = loads.top() + cost;
      loads.pop();
      loads.push(load);
      longest = std::max(longest, load);
    }
  }
  return longest;
}

struct Budget {
  int64_t parts, partialRows;
};

Budget budgetOf(int blocks) { return {int64_t{PARTS_PER_BLOCK} * blocks, int64_t{PARTIAL_ROWS_PER_BLOCK} * blocks}; }

bool fits(const std::vector<Strand>& strands, int kvHeads, const Budget& budget) {
  int64_t parts = 0, rows = 0;
  for (const Strand& strand : strands) {
    if (strand.parts == 1) continue;
    parts += int64_t{strand.parts} * kvHeads;
    rows += int64_t{strand.parts} * strand.rows * kvHeads;
  }
  return parts <= budget.parts && rows <= budget.partialRows;
}

// Chooses the number of parts of every strand: tries several cost limits around a block's even share and keeps the one with the shortest estimated
// makespan.
int64_t chooseParts(std::vector<Strand>& strands, int kvHeads, int blocks) {
  int64_t total = 0, dearest = 0;
  for (const Strand& strand : strands) {
    total += strand.wholeCost();
    dearest = std::max(dearest, strand.wholeCost());
  }
  const int queues = std::max(1, blocks / kvHeads);
  const int64_t share = ceilDiv<int64_t>(total, queues);
  int64_t best = longestQueue(strands, queues);
  if (strands.size() >= size_t(ITEMS_ENOUGH) * queues && dearest <= share) return best;
  std::vector<Strand> tried = strands;
  // In order of ascending number of parts: more parts must improve the estimate by at least 3 %.
  for (const int64_t limit : {share * 5 / 4, share, share * 3 / 4, share / 2, share / 3}) {
    for (Strand& strand : tried) strand.parts = partsWithin(strand, limit);
    if (!fits(tried, kvHeads, budgetOf(blocks))) break;
    const int64_t estimate = longestQueue(tried, queues);
    if (estimate * 100 >= best * 97) continue;
    best = estimate;
    strands = tried;
  }
  return best;
}

// The end tile of a range that begins at firstTile and contains `wanted` visible tiles.
int tileAfter(const Strand& strand, const std::vector<uint32_t>& words, int wanted) {
  if (strand.tileWord < 0) return strand.firstTile + wanted;
  int tile = strand.firstTile;
  for (int seen = 0; seen < wanted; tile++) seen += tileIsVisible(&words[strand.tileWord], tile);
  return tile;
}

}  // namespace

AttentionPlan planAttention(const AttentionSequence* sequences, int count, const uint32_t* mask, const ModelShape& shape, int multiprocessors, bool fast) {
  AttentionPlan plan;
  const int blocks = attentionBlocks(shape, multiprocessors, fast), kvHeads = shape.kvHeads;
  std::vector<Strand> strands = findStrands(sequences, count, fast ? mask : nullptr, shape.heads / kvHeads, fast, plan.tileWords);
  if (strands.empty()) return plan;
  plan.makespan = chooseParts(strands, kvHeads, blocks);
  std::stable_sort(strands.begin(), strands.end(), [](const Strand& a, const Strand& b) { return a.partCost() > b.partCost(); });
  int64_t total = 0;
  size_t items = 0;
  for (const Strand& strand : strands) items += static_cast<size_t>(strand.parts) * kvHeads;
  plan.items.reserve(items);
  for (const Strand& strand : strands) {
    const AttentionSequence& sequence = sequences[strand.sequence];
    int firstTile = strand.firstTile;
    for (int part = 0; part < strand.parts; part++) {
      const int endTile = part + 1 == strand.parts
                              ? strand.endTile
                              : tileAfter(strand, plan.tileWords, static_cast<int>(int64_t{strand.visible} * (part + 1) / strand.parts));
      // KV heads of one slot are adjacent in memory, so their items are scheduled next to each other.
      for (int kvHead = 0; kvHead < kvHeads; kvHead++) {
        const bool split = strand.parts > 1;
        plan.items.push_back({sequence.firstRow, kvHead, strand.firstRow, strand.rows, sequence.firstKey, sequence.keys, sequence.keys - sequence.rows,
                              sequence.maskWord, sequence.maskStride, firstTile, endTile, strand.tileWord, part, strand.parts,
                              split ? plan.partialRows + kvHead * strand.parts * strand.rows : -1, split ? plan.merges + kvHead : -1});
      }
      firstTile = endTile;
    }
    total += strand.partCost() * strand.parts * kvHeads;
    if (strand.parts == 1) continue;
    plan.partialRows += kvHeads * strand.parts * strand.rows;
    plan.merges += kvHeads;
  }
  plan.evenShare = (total + blocks - 1) / blocks;
  return plan;
}

AttentionBounds attentionBounds(int maxRows, int maxSequences, const ModelShape& shape, int multiprocessors, bool fast) {
  const int group = shape.heads / shape.kvHeads, blocks = attentionBlocks(shape, multiprocessors, fast);
  const Budget budget = budgetOf(blocks);
  const int64_t strands = int64_t{maxRows} * group / (fast ? FAST_ROWS : PLAIN_ROWS) + std::min(maxSequences, maxRows);
  // Each merge has at least two parts.
  return {static_cast<int>(strands * shape.kvHeads + budget.parts), static_cast<int>(2 + budget.parts / 2),
          static_cast<size_t>(budget.partialRows) * (shape.headDim + ATTENTION_PARTIAL_EXTRA) * sizeof(float)};
}

}  // namespace pie
