#include "copies.h"
#include <algorithm>
#include <unordered_map>

namespace pie {

namespace {

struct Pair {
  int source, destination, shift;
};

class Rounds {
 public:
  explicit Rounds(int capacity) : capacity_(capacity) {}
  void add(const Pair& pair) {
    if (rounds.empty() || room() == 0) rounds.emplace_back();
    CopyRound& last = rounds.back();
    last.sources.push_back(pair.source);
    last.destinations.push_back(pair.destination);
    last.shifts.push_back(pair.shift);
  }
  void together(const std::vector<Pair>& pairs) {
    if (rounds.empty() || room() < static_cast<int>(pairs.size())) rounds.emplace_back();
    for (const Pair& pair : pairs) add(pair);
  }
  std::vector<CopyRound> rounds;

 private:
  int room() const { return capacity_ - static_cast<int>(rounds.back().sources.size()); }
  int capacity_;
};

}  // namespace

std::vector<CopyRound> planCopies(const uint32_t* sources, const uint32_t* destinations, const int32_t* shifts, int pairs, int capacity, int spare) {
  // The index of the pair that writes a destination: the last pair with this destination.
  std::unordered_map<int, int> writer;
  for (int i = 0; i < pairs; i++) writer[static_cast<int>(destinations[i])] = i;
  std::vector<Pair> all;
  for (int i = 0; i < pairs; i++)
    if (writer[static_cast<int>(destinations[i])] == i)
      all.push_back({static_cast<int>(sources[i]), static_cast<int>(destinations[i]), shifts ? shifts[i] : 0});
  Rounds result(capacity);
  const int count = static_cast<int>(all.size());
  if (count <= capacity) {
    if (count > 0) result.together(all);
    return result.rounds;
  }
  for (int i = 0; i < count; i++) writer[all[i].destination] = i;
  const auto writerOf = [&](int slot) {
    const auto found = writer.find(slot);
    return found == writer.end() ? -1 : found->second;
  };

  // For each pair, the number of other pairs that have yet to read its destination; a pair with none may be copied.
  std::vector<int> readers(count, 0), ready;
  for (int i = 0; i < count; i++) {
    const int after = writerOf(all[i].source);
    if (after >= 0 && after != i) readers[after]++;
  }
  for (int i = 0; i < count; i++)
    if (readers[i] == 0) ready.push_back(i);
  std::vector<bool> gone(count, false);  // Pairs that already have a round.
  for (size_t next = 0; next < ready.size(); next++) {
    const int i = ready[next];
    gone[i] = true;
    result.add(all[i]);
    const int after = writerOf(all[i].source);
    if (after >= 0 && after != i && --readers[after] == 0) ready.push_back(after);
  }

  // The remaining pairs form rings: each pair's source is written by the next pair.
  for (int start = 0; start < count; start++) {
    if (gone[start]) continue;
    std::vector<Pair> ring;
    for (int i = start; !gone[i]; i = writerOf(all[i].source)) {
      gone[i] = true;
      ring.push_back(all[i]);
    }
    if (static_cast<int>(ring.size()) <= capacity) {
      result.together(ring);
      continue;
    }
    // Opens the ring: saves the first pair's destination, which is the last pair's source, to `spare`; then copies the pairs in order.
    result.add({ring.front().destination, spare, 0});
    ring.back().source = spare;
    for (const Pair& pair : ring) result.add(pair);
  }
  return result.rounds;
}

}  // namespace pie
