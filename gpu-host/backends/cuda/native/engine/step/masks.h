// Converts byte masks to lists of visible keys and, where rows differ, to bits.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace pie {

// A sequence's keys after keys that no row sees have been dropped.
struct VisibleKeys {
  int keys = 0;         // Keys left in the list.
  bool causal = false;  // Row i sees the first keys - rows + 1 + i keys, so no mask is needed.
  int stride = 0;       // Words per mask row.
};

// Finds which of `keys` keys the rows of a mask see (nonzero bytes; rows are `maskStride` bytes apart). Compacts `slots` in place and writes bits to
// `words` (rows × stride, at most rows × ceil(keys / 32)), which a causal result does not need. If no row sees any key, the first of the rows' own
// keys (`ownKey`) stays in the list, masked. With `keepAll` no key is dropped. Pure except for the two buffers; `columns` is scratch memory.
VisibleKeys packMask(const uint8_t* mask, size_t maskStride, int rows, int keys, int ownKey, bool keepAll, int* slots, uint32_t* words,
                     std::vector<uint8_t>& columns);

// The last row up to `limit` after which a sequence may be cut: no row before the cut sees an input after it. Returns `from` if there is none. The
// mask's rows have contextCount + rows bytes; only the rows from `from` on are inspected.
int lastCut(const uint8_t* mask, int contextCount, int rows, int from, int limit);

}  // namespace pie
