// Splits a step's attention into work items. A pure function without device code.
#include <algorithm>
#include <queue>
#include "attention-prefixes.h"

namespace pie {

using attention::SharedPrefixes;
using attention::SharedRun;

namespace {

constexpr int TILE = ATTENTION_TILE;
// Maximum packed rows per item of the tensor-core kernel and of the plain kernel.
constexpr int FAST_ROWS = 128, PLAIN_ROWS = 16;
// Upper bounds on split parts and partial rows, per block. They bound the memory for partial results.
constexpr int PARTS_PER_BLOCK = 4, PARTIAL_ROWS_PER_BLOCK = 256;
// Splitting does not pay if there are at least this many items per block and none costs more than an even share: dynamic scheduling by descending
// cost then balances well enough.
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

// A range of packed rows and the keys to read for them. It has rows of one sequence, or the rows of all sequences of a run (SharedRun: sequences that
// begin with the same slots) and the keys that they share. Every KV head has the same strands.
struct Strand {
  int sequence;  // The sequence whose slots are read; for a run, any of its sequences.
  int firstRow, rows;
  int firstTile, endTile;
  int visible;      // Tiles in [firstTile, endTile) that some row sees.
  int tileWord;     // Offset of the strand's visibility bits in tileWords, or -1 if all its tiles are visible.
  int run = -1;     // For a run's strand, that run. Otherwise the innermost run that has the sequence's earlier tiles, or -1.
  int members = 0;  // For a run's strand, its number of sequences; otherwise 0.
  int firstMember = 0;  // For a run's strand, the place of its first sequence in SharedPrefixes::order.
  int copies = 1;   // A run of many sequences is computed in several items per part, of at most `rows` rows each.
  int parts = 1;

  bool writesPartials() const { return parts > 1 || run >= 0; }
  int64_t wholeCost() const { return (visible + START_TILES) * tileCost(rows); }
  int64_t partCost() const {
    return writesPartials() ? (ceilDiv(visible, parts) + START_TILES + partialTiles(rows)) * tileCost(rows) : wholeCost();
  }
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

// `innermost`: by sequence, the innermost of `runs` that it belongs to, or -1.
std::vector<Strand> findStrands(const AttentionSequence* sequences, int count, const uint32_t* mask, int group, bool fast, const std::vector<SharedRun>& runs,
                                const std::vector<int>& innermost, std::vector<uint32_t>& words) {
  std::vector<Strand> strands;
  for (int s = 0; s < count; s++) {
    const AttentionSequence& sequence = sequences[s];
    const int packed = sequence.rows * group, most = fast ? FAST_ROWS : PLAIN_ROWS;
    for (int row = 0; row < packed; row += most) {
      Strand strand{s, row, std::min(most, packed - row), 0, ceilDiv(sequence.keys, TILE), 0, -1, innermost[s]};
      const int first = row / group, last = (row + strand.rows - 1) / group;
      if (sequence.maskWord < 0) strand.endTile = ceilDiv(sequence.keys - sequence.rows + last + 1, TILE);
      if (strand.run >= 0) strand.firstTile = runs[strand.run].endTile;
      strand.visible = strand.endTile - strand.firstTile;
      if (sequence.maskWord >= 0 && mask != nullptr) findVisible(strand, sequence, mask, first, last, words);
      strands.push_back(strand);
    }
  }
  return strands;
}

// The load of the longest of `queues` queues under longest-processing-time-first scheduling (Graham, 1969). All KV heads have equal costs, so one
// head is simulated.
int64_t longestQueue(const std::vector<Strand>& strands, int queues) {
  std::vector<std::pair<int64_t, int>> costs;
  for (const Strand& strand : strands) costs.push_back({strand.partCost(), strand.parts * strand.copies});
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

// Sizes that the plans of all steps of an engine share, and the bounds that follow from them.
struct Sizes {
  int group, kvHeads, blocks;

  int64_t mostParts() const { return int64_t{PARTS_PER_BLOCK} * blocks; }
  int64_t mostPartialRows() const { return int64_t{PARTIAL_ROWS_PER_BLOCK} * blocks; }
};

bool fits(const std::vector<Strand>& strands, const Sizes& sizes) {
  int64_t parts = 0, rows = 0;
  for (const Strand& strand : strands) {
    if (!strand.writesPartials()) continue;
    // A strand in one part uses none of this budget: attentionBounds has room for one more item per strand.
    if (strand.parts > 1 || strand.members > 0) parts += int64_t{strand.parts} * strand.copies * sizes.kvHeads;
    rows += int64_t{strand.parts} * (strand.members > 0 ? strand.members * sizes.group : strand.rows) * sizes.kvHeads;
  }
  return parts <= sizes.mostParts() && rows <= sizes.mostPartialRows();
}

// The strand of a run. Items of fewer rows may have shorter parts, so this halves the rows per item while even parts of the least length would leave
// blocks idle. An item keeps at least two sequences and 32 rows, because fewer rows take no less time.
Strand strandOf(const SharedRun& run, int index, int sequence, const Sizes& sizes) {
  Strand strand{sequence, 0, 0, run.firstTile, run.endTile, run.endTile - run.firstTile, -1, index, run.count, run.first};
  for (int most = FAST_ROWS;; most /= 2) {
    strand.copies = ceilDiv(run.count, std::max(1, most / sizes.group));
    strand.rows = ceilDiv(run.count, strand.copies) * sizes.group;
    const int64_t items = int64_t{strand.copies} * sizes.kvHeads * ceilDiv(strand.visible, leastTiles(strand.rows));
    if (items >= sizes.blocks || most / 2 < std::max(32, 2 * sizes.group)) return strand;
  }
}

// Keeps a run if reading its tiles together, including the partial results of its sequences, costs less than reading them for every sequence alone,
// and if the kept runs leave half of the budget for splits. Up to 32 rows, costs are bytes of keys and values read. A run that is not kept leaves its
// tiles to the runs within it.
void keepCheaper(std::vector<SharedRun>& runs, const Sizes& sizes) {
  std::vector<SharedRun> kept;
  struct Around { int run, endTile; };
  std::vector<Around> around;  // By run: itself if it is kept, otherwise the innermost kept run around it.
  int64_t parts = 0, rows = 0;
  for (SharedRun run : runs) {
    const Around outer = run.parent < 0 ? Around{-1, 0} : around[run.parent];
    run.parent = outer.run, run.firstTile = outer.endTile;
    const Strand strand = strandOf(run, 0, 0, sizes);
    const int64_t alone = int64_t{run.count} * strand.visible * tileCost(sizes.group);
    const int64_t together = strand.partCost() * strand.copies + int64_t{run.count} * partialTiles(sizes.group) * tileCost(sizes.group);
    // The factor 2: each sequence has partial rows for the shared keys and for its own keys.
    const int64_t moreParts = int64_t{strand.copies} * sizes.kvHeads, moreRows = int64_t{2} * run.count * sizes.group * sizes.kvHeads;
    const bool keeps = together < alone && parts + moreParts <= sizes.mostParts() / 2 && rows + moreRows <= sizes.mostPartialRows() / 2;
    if (keeps) kept.push_back(run), parts += moreParts, rows += moreRows;
    around.push_back(keeps ? Around{static_cast<int>(kept.size()) - 1, run.endTile} : outer);
  }
  runs = std::move(kept);
}

// Chooses the number of parts of every strand: tries several cost limits around a block's even share and keeps the one with the shortest estimated
// makespan.
int64_t chooseParts(std::vector<Strand>& strands, const Sizes& sizes) {
  int64_t total = 0, dearest = 0;
  for (const Strand& strand : strands) {
    total += strand.wholeCost() * strand.copies;
    dearest = std::max(dearest, strand.wholeCost());
  }
  const int queues = std::max(1, sizes.blocks / sizes.kvHeads);
  const int64_t share = ceilDiv<int64_t>(total, queues);
  int64_t best = longestQueue(strands, queues);
  if (strands.size() >= size_t(ITEMS_ENOUGH) * queues && dearest <= share) return best;
  std::vector<Strand> tried = strands;
  // The limits fall, so the numbers of parts rise: more parts must improve the estimate by at least 3 %.
  for (const int64_t limit : {share * 5 / 4, share, share * 3 / 4, share / 2, share / 3}) {
    for (Strand& strand : tried) strand.parts = partsWithin(strand, limit);
    if (!fits(tried, sizes)) break;
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

// The runs of a step, and the place of each sequence in them.
struct Sharing {
  SharedPrefixes prefixes;
  std::vector<int> places;     // By sequence: its place in the order.
  std::vector<int> innermost;  // By sequence: its innermost run, or -1.
};

Sharing findSharing(const AttentionSequence* sequences, int count, const int* const* slots, const Sizes& sizes) {
  Sharing found{{}, std::vector<int>(count, -1), std::vector<int>(count, -1)};
  if (slots == nullptr) return found;
  found.prefixes = attention::findSharedPrefixes(sequences, count, slots);
  keepCheaper(found.prefixes.runs, sizes);
  const auto& [order, runs] = found.prefixes;
  for (size_t place = 0; place < order.size(); place++) found.places[order[place]] = static_cast<int>(place);
  // Inner runs come later.
  for (size_t run = 0; run < runs.size(); run++)
    for (int i = 0; i < runs[run].count; i++) found.innermost[order[runs[run].first + i]] = static_cast<int>(run);
  return found;
}

// By run: the number of parts of the run and of all runs around it.
std::vector<int> partsUpTo(const std::vector<SharedRun>& runs, const std::vector<Strand>& strands) {
  std::vector<int> parts(runs.size());
  for (const Strand& strand : strands)
    if (strand.members > 0) parts[strand.run] = strand.parts;
  for (size_t run = 0; run < runs.size(); run++)
    if (runs[run].parent >= 0) parts[run] += parts[runs[run].parent];
  return parts;
}

// Replaces each run's strand by its copies.
std::vector<Strand> separated(const std::vector<Strand>& strands, int group) {
  std::vector<Strand> all;
  for (Strand strand : strands) {
    const int end = strand.firstMember + strand.members;
    for (; strand.copies > 1; strand.copies--) {
      Strand one = strand;
      one.copies = 1, one.members = ceilDiv(end - strand.firstMember, strand.copies), one.rows = one.members * group;
      all.push_back(one);
      strand.firstMember += one.members;
    }
    if (strand.members > 0) strand.members = end - strand.firstMember, strand.rows = strand.members * group;
    all.push_back(strand);
  }
  return all;
}

}  // namespace

AttentionPlan planAttention(const AttentionSequence* sequences, int count, const uint32_t* mask, const ModelShape& shape, int multiprocessors, bool fast,
                            const int* const* slots) {
  AttentionPlan plan;
  const int kvHeads = shape.kvHeads, group = shape.heads / kvHeads, blocks = attentionBlocks(shape, multiprocessors, fast);
  const Sizes sizes{group, kvHeads, blocks};
  const Sharing sharing = findSharing(sequences, count, fast ? slots : nullptr, sizes);
  const std::vector<SharedRun>& runs = sharing.prefixes.runs;
  std::vector<Strand> strands = findStrands(sequences, count, fast ? mask : nullptr, group, fast, runs, sharing.innermost, plan.tileWords);
  if (strands.empty()) return plan;
  for (size_t run = 0; run < runs.size(); run++) strands.push_back(strandOf(runs[run], static_cast<int>(run), sharing.prefixes.order[runs[run].first], sizes));
  plan.makespan = chooseParts(strands, sizes);
  strands = separated(strands, group);
  std::stable_sort(strands.begin(), strands.end(), [](const Strand& a, const Strand& b) { return a.partCost() > b.partCost(); });
  // A sequence's parts are those of its runs, the outermost first, then its own.
  const std::vector<int> sharedParts = partsUpTo(runs, strands);
  if (!runs.empty()) plan.members.resize(sharing.prefixes.order.size());
  int64_t total = 0;
  size_t items = 0;
  for (const Strand& strand : strands) items += static_cast<size_t>(strand.parts) * kvHeads;
  plan.items.reserve(items);
  for (const Strand& strand : strands) {
    const AttentionSequence& sequence = sequences[strand.sequence];
    const bool isRun = strand.members > 0, merges = !isRun && strand.writesPartials();
    const int before = strand.run < 0 ? 0 : sharedParts[strand.run] - (isRun ? strand.parts : 0);
    AttentionItem item{sequence.firstRow, 0, strand.firstRow, strand.rows, sequence.firstKey, sequence.keys, sequence.keys - sequence.rows, sequence.maskWord,
                       sequence.maskStride, 0, strand.firstTile, strand.tileWord, 0, before + strand.parts, -1, -1};
    if (isRun) item.parts = 2, item.firstPartial = strand.firstMember, item.merge = ATTENTION_SHARED;
    if (merges && strand.run >= 0) plan.members[sharing.places[strand.sequence]] = {sequence.firstRow, plan.partialRows, item.parts, plan.merges};
    for (int part = 0; part < strand.parts; part++) {
      item.part = before + part;
      item.firstTile = item.endTile;
      item.endTile = part + 1 == strand.parts ? strand.endTile
                                              : tileAfter(strand, plan.tileWords, static_cast<int>(int64_t{strand.visible} * (part + 1) / strand.parts));
      // KV heads of one slot are adjacent in memory, so their items are scheduled next to each other.
      for (item.kvHead = 0; item.kvHead < kvHeads; item.kvHead++) {
        if (merges) item.firstPartial = plan.partialRows + item.kvHead * item.parts * strand.rows, item.merge = plan.merges + item.kvHead;
        plan.items.push_back(item);
      }
    }
    total += strand.partCost() * strand.parts * kvHeads;
    if (!merges) continue;
    plan.partialRows += kvHeads * item.parts * strand.rows;
    plan.merges += kvHeads;
  }
  plan.evenShare = (total + blocks - 1) / blocks;
  return plan;
}

AttentionBounds attentionBounds(int maxRows, int maxSequences, const ModelShape& shape, int multiprocessors, bool fast) {
  const int group = shape.heads / shape.kvHeads, blocks = attentionBlocks(shape, multiprocessors, fast), sequences = std::min(maxSequences, maxRows);
  const Sizes sizes{group, shape.kvHeads, blocks};
  const int64_t strands = int64_t{maxRows} * group / (fast ? FAST_ROWS : PLAIN_ROWS) + sequences;
  // Each merge uses at least two parts of the budget, or belongs to a sequence that shares keys.
  return {static_cast<int>(strands * shape.kvHeads + sizes.mostParts()), static_cast<int>(2 + sizes.mostParts() / 2 + int64_t{sequences} * shape.kvHeads),
          static_cast<size_t>(sizes.mostPartialRows()) * (shape.headDim + ATTENTION_PARTIAL_EXTRA) * sizeof(float)};
}

}  // namespace pie
