// Copies between slots in any number and any order, although the device does only so many at once.
#pragma once
#include <cstdint>
#include <vector>

namespace pie {

// Pairs that are copied at once: all sources are read before any destination is written.
struct CopyRound {
  std::vector<int> sources, destinations, shifts;
};

// Rounds of at most `capacity` pairs that, one after another, do what all pairs at once would: who reads a slot comes before, or with, who writes it. A
// ring of copies that is longer than a round is opened by keeping one slot's content in `spare`. `shifts` may be null. Destinations are distinct; of
// pairs with the same one only the last counts. Pure.
std::vector<CopyRound> planCopies(const uint32_t* sources, const uint32_t* destinations, const int32_t* shifts, int pairs, int capacity, int spare);

}  // namespace pie
