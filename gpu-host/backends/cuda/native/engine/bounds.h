// Bounds of numbers from outside. A step lists tens of thousands of slots, so all of them are looked at before anything is decided of one.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace pie {

// Whether all values are below `end`, which is 2^31 at most.
inline bool allBelow(const uint32_t* values, size_t count, uint32_t end) {
  // The sign bits of values that are 2^31 or more, and of what is left to the last one that is allowed. In lanes, which compilers make vectors of.
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

// Of one value at least.
inline uint32_t largest(const uint32_t* values, size_t count) { return *std::max_element(values, values + count); }

}  // namespace pie
