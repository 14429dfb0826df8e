// Splits any number of slot copies into rounds that the device can do at once.
#pragma once
#include <cstdint>
#include <vector>

namespace pie {

// Pairs of one round: all sources are read before any destination is written.
struct CopyRound {
  std::vector<int> sources, destinations, shifts;
};

// Rounds of at most `capacity` pairs whose sequential execution has the effect of copying all pairs at once: a slot is read before, or in the same
// round as, it is written. A ring of copies longer than a round is opened by saving one slot in `spare`. `shifts` may be null. If several pairs have
// the same destination, only the last one counts. Pure.
std::vector<CopyRound> planCopies(const uint32_t* sources, const uint32_t* destinations, const int32_t* shifts, int pairs, int capacity, int spare);

}  // namespace pie
