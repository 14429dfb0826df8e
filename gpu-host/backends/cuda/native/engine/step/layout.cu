#include "layout.h"
#include <algorithm>
#include <stdexcept>
#include <string>
#include "../../kernels/attention/attention.h"
#include "../../kernels/linear/low-rank.h"
#include "../../kernels/rows/rows.h"

namespace pie {

namespace {

constexpr size_t TABLE_ALIGNMENT = 16;
constexpr size_t align(size_t bytes, size_t to = TABLE_ALIGNMENT) { return (bytes + to - 1) / to * to; }

}  // namespace

size_t Cursor::take(size_t bytes, size_t alignment) {
  const size_t at = align(bytes_, alignment);
  bytes_ = at + bytes;
  if (bytes_ > capacity_) throw std::logic_error("A step's block is larger than its bound of " + std::to_string(capacity_) + " bytes.");
  return at;
}

int itemBound(int rows, int sequences, const PlanContext& context) {
  return attentionBounds(rows, sequences, context.limits.shape, context.multiprocessors, context.fastAttention).items;
}

TableCounts tableCounts(const StepShape& shape, const Part& part) {
  const bool adapters = shape.places != 0;
  if (shape.padded) return {shape.rows, shape.rows, 0, shape.states, shape.heads, shape.heads, shape.changes, adapters};
  return {shape.rows, static_cast<int>(part.pieces.size()), shape.last, shape.states, shape.heads, part.draws, shape.changes, adapters};
}

UploadLayout layTables(Cursor& cursor, const TableCounts& counts) {
  UploadLayout layout;
  layout.counts = cursor.table<int>(5 + MOST_WINDOWS);
  layout.tokens = cursor.table<int>(counts.rows);
  layout.embedRows = cursor.table<int>(counts.rows);
  layout.positions = cursor.table<int>(counts.rows);
  layout.slots = cursor.table<int>(counts.rows);
  layout.lastPick = cursor.table<int>(counts.last);
  layout.statePick = cursor.table<int>(counts.states);
  layout.headPick = cursor.table<int>(counts.heads);
  layout.headRows = cursor.table<HeadRow>(counts.heads);
  layout.draws = cursor.table<Draw>(counts.draws);
  layout.changes = cursor.table<HeadChange>(counts.changes ? counts.heads : 0);
  const int adapted = counts.adapters ? counts.rows : 0, keptAdapted = counts.adapters ? counts.last : 0;
  layout.lowRankTasks = cursor.table<LowRankTask>(adapted);
  layout.lowRankRows = cursor.table<int>(adapted);
  layout.lastTasks = cursor.table<LowRankTask>(keptAdapted);
  layout.lastRows = cursor.table<int>(keptAdapted);
  return layout;
}

StepShape stepShape(const Part& part, const PlanContext& context) {
  const ModelShape& model = context.limits.shape;
  StepShape shape{part.rows, part.heads, part.states, part.maxTopK, 0, false, part.changedRows > 0, part.places};
  // Received attention is computed sequence by sequence, so these steps differ too much to share graphs; they are also rare.
  if (!context.graphs || part.rows > MAX_GRAPH_ROWS || part.wantsAttention) {
    // The last layer keeps only the wanted rows if these are at most half of the rows and their residual stream, in float, fits into the buffer of
    // the joint projection, whose values may be half as wide.
    if (2 * part.wanted <= part.rows && model.hidden <= model.qkvWidth()) shape.last = part.wanted;
    return shape;
  }
  shape.rows = graphBucket(part.rows);
  shape.heads = part.heads > 0 ? graphBucket(part.heads) : 0;
  shape.states = part.states > 0 ? graphBucket(part.states) : 0;
  shape.topK = part.heads > 0 ? topKBucket(part.maxTopK, model.vocabulary) : 0;
  shape.padded = true;
  return shape;
}

ResultLayout resultLayout(const StepShape& shape, const Part& part, int hidden) {
  const size_t results = shape.padded ? static_cast<size_t>(shape.heads) * shape.topK : static_cast<size_t>(part.results);
  const size_t draws = shape.padded ? shape.heads : part.draws;
  ResultLayout layout;
  layout.logProbabilities = align(layout.tokens + results * sizeof(uint32_t));
  layout.drawn = align(layout.logProbabilities + results * sizeof(float));
  layout.states = align(layout.drawn + draws * sizeof(uint32_t));
  layout.attention = align(layout.states + static_cast<size_t>(shape.states) * hidden * sizeof(float));
  layout.bytes = align(layout.attention + static_cast<size_t>(part.attention) * sizeof(float));
  return layout;
}

namespace {

size_t boundOf(const TableCounts& counts, int items, const Part& part, const StepLimits& limits) {
  Cursor cursor(nullptr, SIZE_MAX);
  layTables(cursor, counts);
  const size_t kinds = 1 + limits.windows.size();
  cursor.table<AttentionItem>(kinds * items);
  cursor.table<AttentionMember>(counts.sequences);
  // One table write more than needed leaves room for the alignment of this table.
  cursor.table<TableWrite>(static_cast<size_t>(counts.sequences) + part.keys / TABLE_WRITE_SLOTS + 1);
  // Tile words never exceed mask words.
  cursor.take((static_cast<size_t>(part.keys) + 2 * static_cast<size_t>(part.maskWords)) * sizeof(int) + 3 * kinds * TABLE_ALIGNMENT);
  // Each list of allowed tokens is aligned like a table. The embeds (below) begin at a multiple of one embed's size.
  cursor.take(static_cast<size_t>(part.allowedRows) * (align(limits.allowedWords() * sizeof(uint32_t)) + TABLE_ALIGNMENT));
  cursor.take(static_cast<size_t>(part.changes) * (sizeof(uint32_t) + sizeof(float)) + static_cast<size_t>(part.changedRows) * TABLE_ALIGNMENT);
  if (part.embedRows > 0) cursor.take((static_cast<size_t>(part.embedRows) + 1) * embedBytes(limits));
  return align(cursor.bytes(), 256);
}

// A part that uses every limit fully.
Part fullest(const StepLimits& limits) {
  Part part;
  part.pieces.resize(limits.sequences);
  part.rows = part.heads = part.states = part.draws = part.embedRows = limits.paddedRows;
  part.allowedRows = limits.allowedRows;
  part.changedRows = limits.paddedRows;
  part.changes = limits.changes;
  part.keys = part.attention = limits.keys;
  part.maskWords = limits.maskWords;
  part.results = limits.results;
  return part;
}

}  // namespace

size_t uploadBound(const Part& part, const PlanContext& context) {
  const StepShape shape = stepShape(part, context);
  const TableCounts counts = tableCounts(shape, part);
  return boundOf(counts, itemBound(counts.rows, counts.sequences, context), part, context.limits);
}

size_t mostUploadBytes(const PlanContext& context) {
  const StepLimits& limits = context.limits;
  const int rows = limits.paddedRows;
  const int sequences = std::max(limits.sequences, std::min(rows, MAX_GRAPH_ROWS));
  return boundOf({rows, sequences, rows, rows, rows, rows, true, true}, itemBound(rows, sequences, context), fullest(limits), limits);
}

size_t mostResultBytes(const PlanContext& context) {
  const Part part = fullest(context.limits);
  return resultLayout({part.rows, part.heads, part.states, 0, 0, false, false, 0}, part, context.limits.shape.hidden).bytes;
}

}  // namespace pie
