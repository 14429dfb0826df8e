#include "masks.h"
#include <algorithm>
#include <cstring>

namespace pie {

namespace {

// Packs eight bytes into eight bits, each set if its byte is not zero: a carry sets the top bit of each nonzero byte, then a multiplication collects
// the top bits (byte 0 in bit 0).
uint32_t eightBits(const uint8_t* bytes) {
  constexpr uint64_t LOW = 0x7f7f7f7f7f7f7f7full, ONES = 0x0101010101010101ull;
  uint64_t word;
  std::memcpy(&word, bytes, 8);
  const uint64_t flags = ((((word & LOW) + LOW) | word) >> 7) & ONES;
  return static_cast<uint32_t>((flags * 0x0102040810204080ull) >> 56);
}

void packRow(const uint8_t* bytes, int count, uint32_t* words) {
  const int stride = (count + 31) / 32;
  for (int w = 0; w < stride; w++) {
    uint32_t word = 0;
    const int end = std::min(32, count - 32 * w);
    int k = 0;
    for (; k + 8 <= end; k += 8) word |= eightBits(bytes + 32 * w + k) << k;
    for (; k < end; k++) word |= static_cast<uint32_t>(bytes[32 * w + k] != 0) << k;
    words[w] = word;
  }
}

// True if the first `count` bits of a row are ones and the others zeros.
bool isPrefix(const uint32_t* words, int stride, int count) {
  for (int w = 0; w < stride; w++) {
    const int ones = std::clamp(count - 32 * w, 0, 32);
    if (words[w] != (ones == 32 ? ~0u : (1u << ones) - 1)) return false;
  }
  return true;
}

}  // namespace

VisibleKeys packMask(const uint8_t* mask, size_t maskStride, int rows, int keys, int ownKey, bool keepAll, int* slots, uint32_t* words,
                     std::vector<uint8_t>& columns) {
  // First marks the keys that any row sees, then compacts them.
  columns.assign(keys, keepAll ? 1 : 0);
  if (!keepAll) {
    for (int r = 0; r < rows; r++) {
      const uint8_t* row = mask + r * maskStride;
      for (int k = 0; k < keys; k++) columns[k] |= row[k];
    }
  }
  int kept = static_cast<int>(keys - std::count(columns.begin(), columns.end(), 0));
  if (kept == 0) {
    columns[ownKey] = 1;
    kept = 1;
  }
  VisibleKeys result;
  result.keys = kept;
  result.stride = (kept + 31) / 32;
  const auto gather = [&](auto* into, const auto* from) {
    int next = 0;
    for (int k = 0; k < keys; k++) {
      into[next] = from[k];
      next += columns[k] != 0;
    }
  };
  if (kept == keys) {
    for (int r = 0; r < rows; r++) packRow(mask + r * maskStride, keys, words + static_cast<size_t>(r) * result.stride);
  } else {
    std::vector<uint8_t> row(keys + 1);
    for (int r = 0; r < rows; r++) {
      gather(row.data(), mask + r * maskStride);
      packRow(row.data(), kept, words + static_cast<size_t>(r) * result.stride);
    }
    std::vector<int> left(keys + 1);
    gather(left.data(), slots);
    std::copy_n(left.data(), kept, slots);
  }
  result.causal = kept >= rows;
  for (int r = 0; r < rows && result.causal; r++)
    result.causal = isPrefix(words + static_cast<size_t>(r) * result.stride, result.stride, kept - rows + 1 + r);
  return result;
}

int lastCut(const uint8_t* mask, int contextCount, int rows, int from, int limit) {
  const size_t stride = static_cast<size_t>(contextCount) + rows;
  int cut = from, reach = 0;
  for (int r = from; r < limit; r++) {
    const uint8_t* own = mask + r * stride + contextCount;
    int last = rows;
    while (last > 0 && own[last - 1] == 0) last--;
    reach = std::max(reach, last);
    if (reach <= r + 1) cut = r + 1;
  }
  return cut;
}

}  // namespace pie
