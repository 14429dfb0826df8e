// Bounds checks of untrusted numbers. A step lists tens of thousands of slots, so the check is branch-free and vectorisable.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace pie {

// True if all values are below `end`, which must be at most 2^31.
inline bool allBelow(const uint32_t* values, size_t count, uint32_t end) {
  // A value is too large if its own sign bit or that of (end - 1 - value) is set. The loops collect the sign bits in independent lanes, so that
  // compilers vectorise them.
  constexpr size_t LANES = 8;
  uint32_t signs[LANES] = {};
  size_t at = 0;
  for (; at + LANES <= count; at += LANES)
    for (size_t lane = 0; lane < LANES; lane++) signs[lane] |= values[at + lane] | (end - 1 - values[at + lane]);
  for (; at < count; at++) signs[0] |= values[at] | (end - 1 - values[at]);
  uint32_t any = 0;
  for (const uint32_t lane : signs) any |= lane;
  return any >> 31 == 0;
}

// Requires count ≥ 1.
inline uint32_t largest(const uint32_t* values, size_t count) { return *std::max_element(values, values + count); }

}  // namespace pie
