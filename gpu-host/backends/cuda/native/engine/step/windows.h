// What layers with a window see: the positions of keys, and sequences cut to the keys within a window.
#pragma once
#include <cstdint>
#include <vector>
#include "../../kernels/attention/attention.h"
#include "layout.h"

namespace pie {

// The position of each slot's key, for models whose layers have windows; else nothing.
class SlotPositions {
 public:
  explicit SlotPositions(const StepLimits& limits) : positions_(limits.windows.empty() ? 0 : limits.totalSlots()) {}
  void write(const int* slots, const uint32_t* positions, int count) {
    for (int i = 0; i < count; i++) positions_[slots[i]] = static_cast<int32_t>(positions[i]);
  }
  int32_t at(int slot) const { return positions_[slot]; }
  // The counterparts of the engine's calls. A page takes `bytes(pageSize)` bytes on the host.
  void copy(const uint32_t* sources, const uint32_t* destinations, const int32_t* shifts, int pairs);
  size_t bytes(int pageSize) const { return positions_.empty() ? 0 : pageSize * sizeof(int32_t); }
  void readPage(int page, int pageSize, uint8_t* into) const;
  void writePage(int page, int pageSize, const uint8_t* from);

 private:
  std::vector<int32_t> positions_;  // From -MOST_POSITION to MOST_POSITION, so that differences from a row's position do not overflow.
};

// Cuts a sequence to windows. Its results list the same slots as the sequence, from the first to the last key that any row sees; masks hide the keys
// between.
class WindowView {
 public:
  // `slots`: those of the sequence, on the host. `positions`: those of its rows, which must stay as long as the view is used.
  void look(const AttentionSequence& sequence, const int* slots, const uint32_t* positions, const SlotPositions& keyPositions);
  // The sequence as layers with this window see it. Takes memory for a mask where rows see different parts of the keys; masks are counted from the
  // block's start, as that of the sequence.
  AttentionSequence through(int window, Cursor& cursor) const;

 private:
  struct Span {
    int32_t least, most;
  };
  uint32_t above(int32_t lowest, int word) const;

  AttentionSequence sequence_;
  const uint32_t* rows_ = nullptr;  // The positions of rows.
  std::vector<int32_t> keys_;       // Those of keys.
  std::vector<Span> spans_;  // The least and the largest position of the keys of each mask word.
  int32_t leastKey_ = 0, leastRow_ = 0, mostRow_ = 0;
};

}  // namespace pie
