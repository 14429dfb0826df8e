// Encodes a device step as one block of integers: all inputs of its kernels, so that one upload transfers them.
#pragma once
#include <cstdint>
#include <vector>
#include "../../kernels/attention/attention.h"
#include "../../kernels/rows/rows.h"
#include "layout.h"

namespace pie {

// A piece for which the caller wants the attention that each key receives.
struct ReceivedPiece {
  AttentionSequence sequence;
  size_t firstValue;  // First value among the step's attention values.
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
      : context_(std::move(context)), tables_(context_.sharesPrefixes() ? static_cast<size_t>(context_.limits.tableSlots) : 0) {}
  StepPlan plan(const Batch& batch, const Part& part, uint8_t* block, int blockWord = 0);
  const PlanContext& context() const { return context_; }

 private:
  PlanContext context_;
  std::vector<AttentionSequence> sequences_;
  std::vector<uint8_t> columns_;
  std::vector<TableWrite> writes_;
  std::vector<int> tables_;        // A copy of the slot tables, to compare sequences; empty if prefixes are not shared.
  std::vector<const int*> lists_;  // The slots of each sequence.
};

}  // namespace pie
