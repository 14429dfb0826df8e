#include "windows.h"
#include <algorithm>
#include <cstring>

namespace pie {

namespace {

constexpr int WORD = 32;  // Keys of a mask word.

int32_t bounded(int64_t position) { return static_cast<int32_t>(std::clamp<int64_t>(position, -MOST_POSITION, MOST_POSITION)); }

// A word whose first `count` bits are ones, at most all.
uint32_t leadingOnes(int count) { return count >= 32 ? ~0u : count > 0 ? (1u << count) - 1 : 0; }

}  // namespace

void SlotPositions::copy(const uint32_t* sources, const uint32_t* destinations, const int32_t* shifts, int pairs) {
  if (positions_.empty()) return;
  std::vector<int32_t> copied(pairs);
  for (int i = 0; i < pairs; i++) copied[i] = bounded(int64_t{positions_[sources[i]]} + (shifts ? shifts[i] : 0));
  for (int i = 0; i < pairs; i++) positions_[destinations[i]] = copied[i];
}

void SlotPositions::readPage(int page, int pageSize, uint8_t* into) const {
  if (!positions_.empty()) std::memcpy(into, positions_.data() + static_cast<size_t>(page) * pageSize, bytes(pageSize));
}

void SlotPositions::writePage(int page, int pageSize, const uint8_t* from) {
  if (positions_.empty()) return;
  int32_t* const to = positions_.data() + static_cast<size_t>(page) * pageSize;
  std::memcpy(to, from, bytes(pageSize));
  std::transform(to, to + pageSize, to, bounded);
}

void WindowView::look(const AttentionSequence& sequence, const int* slots, const uint32_t* positions, const SlotPositions& keyPositions) {
  sequence_ = sequence;
  rows_ = positions;
  keys_.resize(sequence.keys);
  spans_.clear();
  leastKey_ = MOST_POSITION;
  for (int from = 0; from < sequence.keys; from += WORD) {
    Span span{MOST_POSITION, -MOST_POSITION};
    for (int k = from; k < std::min(from + WORD, sequence.keys); k++) {
      const int32_t position = keyPositions.at(slots[k]);
      keys_[k] = position;
      span.least = std::min(span.least, position), span.most = std::max(span.most, position);
    }
    spans_.push_back(span);
    leastKey_ = std::min(leastKey_, span.least);
  }
  const auto [least, most] = std::minmax_element(positions, positions + sequence.rows);
  leastRow_ = static_cast<int32_t>(*least), mostRow_ = static_cast<int32_t>(*most);
}

// Bit i: key WORD × word + i lies above `lowest`. Where positions ascend, most words are wholly above it or wholly not.
uint32_t WindowView::above(int32_t lowest, int word) const {
  const Span& span = spans_[word];
  const int from = WORD * word, count = std::min(WORD, static_cast<int>(keys_.size()) - from);
  if (span.most <= lowest) return 0;
  if (span.least > lowest) return leadingOnes(count);
  uint32_t bits = 0;
  for (int bit = 0; bit < count; bit++) bits |= static_cast<uint32_t>(keys_[from + bit] > lowest) << bit;
  return bits;
}

AttentionSequence WindowView::through(int window, Cursor& cursor) const {
  const AttentionSequence& whole = sequence_;
  if (mostRow_ - leastKey_ < window) return whole;
  // The keys from the first to the last within the window of any row; one key if there is none, because a mask hid the others.
  const int32_t lowestOfAll = leastRow_ - window;
  int first = whole.keys - 1, end = first + 1, seen = 0;
  for (int word = 0; word < static_cast<int>(spans_.size()); word++) {
    const uint32_t bits = above(lowestOfAll, word);
    if (bits == 0) continue;
    if (seen == 0) first = WORD * word + __builtin_ctz(bits);
    end = WORD * word + WORD - __builtin_clz(bits);
    seen += __builtin_popcount(bits);
  }
  AttentionSequence cut = whole;
  if (whole.rows == 1 && whole.maskWord < 0 && seen == end - first) {
    cut.firstKey += first;
    cut.keys = end - first;
    return cut;
  }
  // The cut begins with a whole word of the sequence's mask.
  const int from = first / WORD * WORD;
  cut.firstKey += from;
  cut.keys = end - from;
  cut.maskStride = (cut.keys + WORD - 1) / WORD;
  const size_t words = cursor.take(static_cast<size_t>(whole.rows) * cut.maskStride * sizeof(uint32_t), sizeof(uint32_t));
  cut.maskWord = static_cast<int>(words / sizeof(uint32_t));
  const uint32_t* const masks = cursor.at<uint32_t>(0) + whole.maskWord;
  for (int row = 0; row < whole.rows; row++) {
    uint32_t* const to = cursor.at<uint32_t>(words) + static_cast<size_t>(row) * cut.maskStride;
    const int32_t lowest = static_cast<int32_t>(rows_[row]) - window;
    const int causalEnd = whole.keys - whole.rows + row + 1;
    for (int word = 0; word < cut.maskStride; word++) {
      const int key = from + WORD * word;
      const uint32_t visible = whole.maskWord < 0 ? leadingOnes(causalEnd - key) : masks[static_cast<size_t>(row) * whole.maskStride + key / WORD];
      to[word] = visible & above(lowest, key / WORD);
    }
  }
  return cut;
}

}  // namespace pie
