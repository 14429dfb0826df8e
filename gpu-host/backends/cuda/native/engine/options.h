// What the engine was asked for, checked, and what follows from it.
#pragma once
#include "engine.h"

namespace pie {

// Rows that a step of so few is padded to, so that one captured graph serves many steps.
constexpr int GRAPH_BUCKETS[] = {1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128};
constexpr int MAX_GRAPH_ROWS = 128;
// The smallest bucket that holds `rows`, of 1 … MAX_GRAPH_ROWS.
int graphBucket(int rows);
// As many of the most probable tokens as a captured head computes for a step that wants `topK`.
int topKBucket(int topK, int vocabulary);

// Slots that fit a step's integers, twice over.
constexpr int MOST_SLOTS = 1 << 29;

// Most inputs of a sequence whose mask leaves no place to cut it, with one head, and most tokens of a row that calls ask for: what the handlers see to
// (`../../../../handlers/plan.ts`, `model.ts`). Such a sequence fits a step alone where its inputs do; longer ones may be cut.
constexpr int MOST_UNCUT_ROWS = 8192;
constexpr int CALL_TOP_K = 256;

// Rows of logits that are in memory at once.
constexpr int HEAD_ROWS = 128;

// What bounds one device step; buffers are made for it.
struct StepLimits {
  ModelShape shape;
  int rows = 0;          // Inputs.
  int paddedRows = 0;    // Rows that buffers hold: those that a bucket adds, too.
  int sequences = 0;
  int slots = 0;         // Of pages. Scratch slots come after them, then the one that padding rows write.
  int scratchSlots = 0;
  int keys = 0;          // Slots listed, of all sequences.
  int maskWords = 0;
  int results = 0;       // Tokens wanted: rows × topK.
  int allowedRows = 0;   // Rows with masks of allowed tokens.
  size_t slotBytes = 0;  // Of one slot of one layer.

  int totalSlots() const { return slots + scratchSlots + 1; }
  size_t poolBytes() const { return static_cast<size_t>(shape.layers) * totalSlots() * slotBytes; }
  int trashSlot() const { return slots + scratchSlots; }
  int allowedWords() const { return (shape.vocabulary + 31) / 32; }
};

// Throws EngineError "invalid" for what no engine could be made of.
void checkOptions(const EngineOptions& options);
StepLimits stepLimits(const EngineOptions& options, int pageCount);

}  // namespace pie
