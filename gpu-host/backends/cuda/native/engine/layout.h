// Where the tables of a device step lie in its block, and its results in theirs; what a launch depends on.
#pragma once
#include <cstdint>
#include "split.h"

namespace pie {

// What a step's launches depend on besides memory: the same for all steps that replay one captured graph.
struct StepShape {
  int rows = 0;
  int heads = 0;   // Rows of which tokens are wanted.
  int states = 0;  // Rows of which states are wanted.
  int topK = 0;    // Most tokens of a row.
  int last = 0;    // Rows for which the last layer goes on after attention: those of which anything is wanted. 0: all.
  // Padded to a bucket: its tables have room for any step of the bucket and lie at the same places.
  bool padded = false;
  bool operator==(const StepShape& o) const {
    return rows == o.rows && heads == o.heads && states == o.states && topK == o.topK && last == o.last && padded == o.padded;
  }
};

// Where each table of an upload block begins, in bytes. Lists of slots, words of masks and of tiles, allowed words and embeds follow the tables; what
// refers to them counts words (of embeds: rows) from the beginning of the block, so that no launch depends on where they lie.
struct UploadLayout {
  size_t counts = 0;      // int: items of attention.
  size_t tokens = 0;      // int × rows; kernels/rows.h says what negative ones mean.
  size_t embedRows = 0;   // int × rows
  size_t positions = 0;   // int × rows
  size_t slots = 0;       // int × rows: where keys and values go.
  size_t lastPick = 0;    // int × last: which rows those are.
  size_t statePick = 0;   // int × states: which rows, or which of the last.
  size_t headPick = 0;    // int × heads
  size_t headRows = 0;    // HeadRow × heads
  size_t draws = 0;       // Draw
  size_t items = 0;       // AttentionItem
  size_t bytes = 0;       // Of the whole block.
};

// The same of what comes back: tokens and log-probabilities (count each), drawn, states, attention received.
struct ResultLayout {
  size_t tokens = 0;
  size_t logProbabilities = 0;
  size_t drawn = 0;
  size_t states = 0;
  size_t attention = 0;
  size_t bytes = 0;
};

// What plans are made for.
struct PlanContext {
  StepLimits limits;
  int multiprocessors = 132;
  bool fastAttention = false;
  bool graphs = true;  // Whether steps of few rows are padded to buckets.
};

StepShape stepShape(const Part& part, const PlanContext& context);
ResultLayout resultLayout(const StepShape& shape, const Part& part, int hidden);
// No plan of such a part takes more.
size_t uploadBound(const Part& part, const PlanContext& context);
// No plan of any part within the limits takes more.
size_t mostUploadBytes(const PlanContext& context);
size_t mostResultBytes(const PlanContext& context);

// Items of attention that tables have room for, in steps of so many rows and sequences.
int itemBound(int rows, int sequences, const PlanContext& context);

// Takes room in a block; with a null base it only adds up.
class Cursor {
 public:
  Cursor(uint8_t* base, size_t capacity) : base_(base), capacity_(capacity) {}
  // The place of so many bytes. Throws std::logic_error past the capacity, which is a bug.
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

// Tables whose sizes follow from the shape: all but those of attention.
struct TableCounts {
  int rows, sequences, last, states, heads, draws;
};
TableCounts tableCounts(const StepShape& shape, const Part& part);
UploadLayout layTables(Cursor& cursor, const TableCounts& counts);
inline size_t embedBytes(const StepLimits& limits) { return static_cast<size_t>(limits.shape.hidden) * sizeof(float); }

}  // namespace pie
