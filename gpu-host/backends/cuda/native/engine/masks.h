// Masks of bytes become lists of the keys that are seen, and bits where rows differ.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace pie {

// What a sequence's keys are after keys that no row sees have been dropped.
struct VisibleKeys {
  int keys = 0;         // Left in the list.
  bool causal = false;  // Row i sees the first keys - rows + 1 + i of them: no mask is needed.
  int stride = 0;       // Words of one row of the mask.
};

// Which of `keys` keys the rows of a mask see (bytes other than 0; rows `maskStride` bytes apart). `slots` is compacted in place; bits are written to
// `words` (rows × stride, at most rows × ceil(keys / 32)) unless the result is causal. At least one key is left: where no row sees any, the first of the
// rows' own (`ownKey`), masked. With `keepAll` none is dropped. Pure, but for its two buffers; `columns` is memory that it works in.
VisibleKeys packMask(const uint8_t* mask, size_t maskStride, int rows, int keys, int ownKey, bool keepAll, int* slots, uint32_t* words,
                     std::vector<uint8_t>& columns);

// The last row after which a sequence may be cut, of those up to `limit`: no row before the cut sees an input after it. `from` when there is none.
// The mask's rows are of contextCount + rows bytes; only the rows from `from` on are looked at.
int lastCut(const uint8_t* mask, int contextCount, int rows, int from, int limit);

}  // namespace pie
