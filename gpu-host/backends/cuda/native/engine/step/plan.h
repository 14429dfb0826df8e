// Encodes a device step as one block of integers: all inputs of its kernels, so that one upload transfers them.
#pragma once
#include <cstdint>
#include <vector>
#include "../../kernels/attention/attention.h"
#include "../../kernels/rows/rows.h"
#include "layout.h"
#include "windows.h"

namespace pie {

// A piece for which the caller wants the attention that each key receives.
struct ReceivedPiece {
  AttentionSequence sequence;
  size_t firstValue;  // First value among the step's attention values.
  std::vector<AttentionSequence> windowed;  // What layers with each window of StepLimits see of it.
};

struct StepPlan {
  StepShape shape;
  UploadLayout upload;
  ResultLayout results;
  std::vector<ReceivedPiece> received;
};

// Writes one part of a batch to `block` (uploadBound bytes). On the device, the block begins `blockWord` words after the slot tables. Reuses its
// working memory between calls.
class Planner {
 public:
  explicit Planner(PlanContext context)
      : context_(std::move(context)), tables_(context_.listsSlots() ? static_cast<size_t>(context_.limits.tableSlots) : 0),
        positions_(context_.limits) {}
  StepPlan plan(const Batch& batch, const Part& part, uint8_t* block, int blockWord = 0);
  const PlanContext& context() const { return context_; }
  // The positions of keys after all planned steps; other calls that move keys move their positions.
  SlotPositions& positions() { return positions_; }

 private:
  // Plans the attention of layers with each window.
  void planWindows(const Batch& batch, const Part& part, Cursor& cursor, int items, StepPlan& plan);

  PlanContext context_;
  std::vector<AttentionSequence> sequences_;
  std::vector<uint8_t> columns_;
  std::vector<TableWrite> writes_;
  std::vector<int> tables_;        // A copy of the slot tables; empty if neither shared prefixes nor windows need it.
  std::vector<const int*> lists_;  // The slots of each sequence.
  SlotPositions positions_;
  WindowView view_;
};

}  // namespace pie
