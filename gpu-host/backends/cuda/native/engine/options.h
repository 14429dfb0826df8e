// The checked options of the engine, and the limits that follow from them.
#pragma once
#include "engine.h"

namespace pie {

// Row counts to which small steps are padded, so that one captured graph serves many steps.
constexpr int GRAPH_BUCKETS[] = {1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128};
constexpr int MAX_GRAPH_ROWS = 128;
// The smallest bucket that holds `rows`, which must be in 1 … MAX_GRAPH_ROWS.
int graphBucket(int rows);
// The number of top tokens that a captured head computes for a step that wants `topK`.
int topKBucket(int topK, int vocabulary);

// Positions lie below this: they reach the device as signed integers.
constexpr int MOST_POSITION = 1 << 30;

// Twice this number of slots still fits a step's integers.
constexpr int MOST_SLOTS = 1 << 29;

// Limits of the handlers: `../../../../handlers/plan.ts` allows 64 Mi scores (inputs × keys × heads) if a mask allows no cut, so at most 8,192 inputs
// with one head (8,192² scores); `model.ts` limits the tokens per row. Such a sequence fits a step alone if its inputs do; others may be cut.
constexpr int MOST_UNCUT_ROWS = 8192;
constexpr int CALL_TOP_K = 256;

// Rows of logits that are in memory at once.
constexpr int HEAD_ROWS = 128;

// Limits of one device step; buffers are allocated for them.
struct StepLimits {
  ModelShape shape;
  int rows = 0;          // Inputs.
  int paddedRows = 0;    // Rows that buffers hold, including the padding of a bucket.
  int sequences = 0;
  int slots = 0;         // Slots of pages, followed by the scratch slots and the slot that padding rows write.
  int scratchSlots = 0;
  int keys = 0;          // Listed slots of all sequences.
  int tableSlots = 0;    // Listed slots that the device keeps between steps.
  int maskWords = 0;
  int results = 0;       // Wanted tokens: rows × topK.
  int allowedRows = 0;   // Rows with masks of allowed tokens.
  int changes = 0;       // Changed logits of all rows.
  size_t slotBytes = 0;  // Bytes of one slot of one layer.
  int rotations = 1;     // Of ModelTraits.
  bool scalesRotations = false;
  std::vector<int> windows;  // The different windows of layers.

  int totalSlots() const { return slots + scratchSlots + 1; }
  size_t poolBytes() const { return static_cast<size_t>(shape.layers) * totalSlots() * slotBytes; }
  int trashSlot() const { return slots + scratchSlots; }
  int allowedWords() const { return (shape.vocabulary + 31) / 32; }
};

// Throws EngineError "invalid" for options with which no engine can be created.
void checkOptions(const EngineOptions& options);
// The different windows that layers have, in ascending order.
std::vector<int> windowsOf(const ModelTraits& traits);
StepLimits stepLimits(const EngineOptions& options, int pageCount);

}  // namespace pie
