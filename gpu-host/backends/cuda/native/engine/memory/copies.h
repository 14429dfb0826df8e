// Splits any number of slot copies into rounds, each of which the device can do at once.
#pragma once
#include <cstdint>
#include <vector>

namespace pie {

// Pairs of one round: all sources are read before any destination is written.
struct CopyRound {
  std::vector<int> sources, destinations, shifts;
};

// Returns rounds of at most `capacity` pairs. Executed one after another, they have the effect of copying all pairs at once: each slot is read in an
// earlier round than it is written, or in the same round. A ring of copies, in which each pair reads the slot that the next pair writes, may be
// longer than a round; then one of its slots is first saved in `spare`. `shifts` may be null. If several pairs have the same destination, only the
// last one counts. Pure.
std::vector<CopyRound> planCopies(const uint32_t* sources, const uint32_t* destinations, const int32_t* shifts, int pairs, int capacity, int spare);

}  // namespace pie
