// A batch of any size becomes device steps that fit.
#pragma once
#include <vector>
#include "engine.h"
#include "options.h"

namespace pie {

// Rows [firstRow, firstRow + rows) of a sequence of the batch. Its keys are the context and the inputs up to its last row.
struct Piece {
  int sequence;
  int firstRow;
  int rows;
  int scratch;  // Of a sequence without writes: scratch slot of its input 0.

  int keys(const Sequence& of) const { return of.contextCount + firstRow + rows; }
  // Its rows whose outputs are wanted are its last so many.
  int outputs(const Sequence& of) const {
    const int first = of.rows - of.outputRows;  // Of the sequence.
    return firstRow + rows <= first ? 0 : (firstRow >= first ? rows : firstRow + rows - first);
  }
};

// One device step, and what it takes of each limit. Counts are upper bounds where a mask may hide keys.
struct Part {
  std::vector<Piece> pieces;
  int rows = 0;
  int scratch = 0;
  int keys = 0;
  int maskWords = 0;
  int64_t results = 0;   // Tokens wanted.
  int heads = 0;         // Rows of which tokens are wanted.
  int states = 0;        // Rows of which states are wanted.
  int wanted = 0;        // Rows of which anything is.
  int draws = 0;
  int allowedRows = 0;
  int embedRows = 0;
  int attention = 0;     // Values of attention received.
  int maxTopK = 0;
  bool wantsAttention = false;
};

// Splits a batch into steps, in order: sequences stay whole where they fit one, and are cut where they do not. The results of the parts, one after
// another, are those of the batch (but attention received, which is to be summed). Throws EngineError "invalid" for arguments that fit no model or pool,
// and for a sequence that neither fits nor can be cut. Pure.
std::vector<Part> splitBatch(const Batch& batch, const StepLimits& limits);

}  // namespace pie
