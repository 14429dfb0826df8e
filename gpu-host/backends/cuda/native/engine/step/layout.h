// Layout of a device step's upload block and of its results, and the parameters that its launches depend on.
#pragma once
#include <cstdint>
#include "split.h"

namespace pie {

// Parameters of a step's launches besides addresses: equal for all steps that replay one captured graph.
struct StepShape {
  int rows = 0;
  int heads = 0;   // Rows whose tokens are wanted.
  int states = 0;  // Rows whose states are wanted.
  int topK = 0;    // Most tokens per row.
  int last = 0;    // Rows with which the last layer continues after its attention: those with any wanted output. 0: all rows.
  // Padded to a bucket: the tables have room for any step of the bucket and have the same offsets.
  bool padded = false;
  bool changes = false; // Some rows have changed logits.
  unsigned places = 0;  // Places that adapters change (Adapter::places). The launches do not depend on which adapters these are.
  bool operator==(const StepShape& o) const {
    return rows == o.rows && heads == o.heads && states == o.states && topK == o.topK && last == o.last && padded == o.padded &&
           changes == o.changes && places == o.places;
  }
};

// Byte offsets of the tables of an upload block. Behind the tables lie lists: slots, table writes, attention members, mask and tile words, allowed
// words, changes and embeds. The tables say where each list begins, so that no launch depends on the offset of a list. They count a
// list's beginning from the block's start: in attention members for a list of members, in embeds for a list of embeds, else in words. The only
// exception is a list of slots: its beginning is counted in words from the start of the slot tables (Steps), because the list lies either in these
// tables or in the block.
struct UploadLayout {
  // int × (5 + MOST_WINDOWS): attention items; table writes; word of the first table write; low-rank tasks; low-rank tasks of kept rows; attention
  // items of each window.
  size_t counts = 0;
  size_t tokens = 0;      // int × rows; negative values: see kernels/rows/rows.h.
  size_t embedRows = 0;   // int × rows: index of the row's embed, for a row that has an embed instead of a token.
  size_t positions = 0;   // int × rows
  size_t slots = 0;       // int × rows: where keys and values are written.
  size_t lastPick = 0;    // int × last: the kept rows.
  size_t statePick = 0;   // int × states: rows, or indices into the kept rows.
  size_t headPick = 0;    // int × heads
  size_t headRows = 0;    // HeadRow × heads
  size_t draws = 0;       // Draw
  size_t changes = 0;     // HeadChange × heads, or none.
  size_t lowRankTasks = 0;  // LowRankTask × rows. This table and the next three are empty without adapters.
  size_t lowRankRows = 0;   // int × rows: rows with adapters, grouped by adapter. If adapters change gate and up, rows without one follow.
  size_t lastTasks = 0;     // LowRankTask × last: the tasks of the kept rows.
  size_t lastRows = 0;      // int × last: the kept rows with adapters, like lowRankRows.
  size_t items[1 + MOST_WINDOWS] = {};  // AttentionItem: those of layers without a window, then those of each window of StepLimits.
  size_t bytes = 0;       // Size of the block.
};

// Byte offsets of the results: tokens and log-probabilities (count each), drawn, states, attention received.
struct ResultLayout {
  size_t tokens = 0;
  size_t logProbabilities = 0;
  size_t drawn = 0;
  size_t states = 0;
  size_t attention = 0;
  size_t bytes = 0;
};

// Constants of the engine that all plans use.
struct PlanContext {
  StepLimits limits;
  int multiprocessors = 132;
  bool fastAttention = false;
  bool graphs = true;  // Pad steps of few rows to buckets.
  bool sharedPrefixes = true;
  bool widens = false;  // cuBLASLt multiplies many rows with narrow weights, which are widened for it.

  bool sharesPrefixes() const { return sharedPrefixes && fastAttention; }
  // Plans need the slots of every sequence.
  bool listsSlots() const { return sharesPrefixes() || !limits.windows.empty(); }
};

StepShape stepShape(const Part& part, const PlanContext& context);
ResultLayout resultLayout(const StepShape& shape, const Part& part, int hidden);
// Upper bound on the upload of any plan of this part.
size_t uploadBound(const Part& part, const PlanContext& context);
// Upper bound over all parts within the limits.
size_t mostUploadBytes(const PlanContext& context);
size_t mostResultBytes(const PlanContext& context);

// Attention items for which the tables have room, in steps with this many rows and sequences.
int itemBound(int rows, int sequences, const PlanContext& context);

// Allocates tables in a block; with a null base it only computes the size.
class Cursor {
 public:
  Cursor(uint8_t* base, size_t capacity) : base_(base), capacity_(capacity) {}
  // The offset of `bytes` new bytes. Throws std::logic_error beyond the capacity, which indicates a bug.
  size_t take(size_t bytes, size_t alignment = 16);
  template <typename T>
  size_t table(size_t count) {
    return take(count * sizeof(T));
  }
  template <typename T>
  T* at(size_t offset) const {
    return reinterpret_cast<T*>(base_ + offset);
  }
  size_t bytes() const { return bytes_; }
  void shrinkTo(size_t bytes) { bytes_ = bytes; }

 private:
  uint8_t* base_;
  size_t capacity_;
  size_t bytes_ = 0;
};

// Sizes of the tables that follow from the shape: all but those of attention.
struct TableCounts {
  int rows, sequences, last, states, heads, draws;
  bool changes, adapters;
};
TableCounts tableCounts(const StepShape& shape, const Part& part);
UploadLayout layTables(Cursor& cursor, const TableCounts& counts);
inline size_t embedBytes(const StepLimits& limits) { return static_cast<size_t>(limits.shape.hidden) * sizeof(float); }

}  // namespace pie
