// Finds sequences of a step that begin with the same slots. Pure.
#pragma once
#include <vector>
#include "attention.h"

namespace pie::attention {

// The sequences order[first .. first + count) list the same slots in the tiles before endTile. `parent`, a run of more sequences, ends at firstTile.
struct SharedRun {
  int parent;  // Index of an earlier run, or -1.
  int first, count;
  int firstTile, endTile;
};

struct SharedPrefixes {
  std::vector<int> order;       // Sequences that may share keys; each run's are adjacent.
  std::vector<SharedRun> runs;  // A prefix tree: parents precede their children.
};

// A sequence that has parted from others more often than this shares no further keys. This bounds the time that a step's planning takes.
constexpr int MOST_PARTINGS = 16;

// Sequences may share keys if they are causal and have one input, which sees their whole context. slots[i] lists the slots of sequence i, or is null.
// The slots themselves are compared; no caller has to claim that they are equal. Only whole tiles are shared: no item ends within one.
SharedPrefixes findSharedPrefixes(const AttentionSequence* sequences, int count, const int* const* slots);

}  // namespace pie::attention
