// Splits a batch of any size into device steps.
#pragma once
#include <vector>
#include "../engine.h"
#include "../options.h"

namespace pie {

// Rows [firstRow, firstRow + rows) of a sequence of the batch. The keys of a piece are the sequence's context and its inputs up to the piece's last
// row.
struct Piece {
  int sequence;
  int firstRow;
  int rows;
  int scratch;  // For a sequence without writes: the scratch slot of the sequence's input 0.

  int keys(const Sequence& of) const { return of.contextCount + firstRow + rows; }
  // Number of the piece's rows that have outputs; these are always its last rows.
  int outputs(const Sequence& of) const {
    const int first = of.rows - of.outputRows;  // The sequence's first row with an output.
    return firstRow + rows <= first ? 0 : (firstRow >= first ? rows : firstRow + rows - first);
  }
};

// One device step, and its use of each limit. Counts are upper bounds where a mask may hide keys.
struct Part {
  std::vector<Piece> pieces;
  int rows = 0;
  int scratch = 0;
  int keys = 0;
  int maskWords = 0;
  int64_t results = 0;   // Wanted tokens.
  int heads = 0;         // Rows whose tokens are wanted.
  int states = 0;        // Rows whose states are wanted.
  int wanted = 0;        // Rows with any wanted output.
  int draws = 0;
  int allowedRows = 0;
  int changedRows = 0;
  int changes = 0;       // Changed logits.
  int embedRows = 0;
  int attention = 0;     // Values of attention received.
  int maxTopK = 0;
  bool wantsAttention = false;
  unsigned places = 0;   // Bits of the places that the adapters of its sequences change (Adapter::places).
};

// Splits a batch into steps, in order. A sequence that fits one step stays whole; longer ones are cut. The concatenated results of the parts are
// those of the batch (except attention received, which must be summed). Throws EngineError "invalid" for arguments that do not fit the model or the
// pool, and for a sequence that neither fits nor can be cut. Pure.
std::vector<Part> splitBatch(const Batch& batch, const StepLimits& limits);

}  // namespace pie
