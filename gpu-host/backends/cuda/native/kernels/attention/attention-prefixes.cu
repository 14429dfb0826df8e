#include "attention-prefixes.h"
#include <algorithm>
#include <cstring>

namespace pie::attention {

namespace {

class PrefixTree {
 public:
  PrefixTree(const AttentionSequence* sequences, const int* const* slots, SharedPrefixes& found) : sequences_(sequences), slots_(slots), found_(found) {}

  // Finds the runs among the sequences order[first .. end). These agree in all tiles before `tile`, where the run `parent` ends. `partings` counts
  // how often they have already parted from other sequences.
  void divide(int first, int end, int tile, int parent, int partings) {
    if (end - first < 2 || partings > MOST_PARTINGS) return;
    const auto begin = found_.order.begin();
    end = static_cast<int>(std::stable_partition(begin + first, begin + end, [&](int s) { return tile < wholeTiles(s); }) - begin);
    std::stable_sort(begin + first, begin + end, [&](int a, int b) { return compare(a, b, tile) < 0; });
    while (first < end) {
      const int leader = found_.order[first];
      std::vector<Member> members = {{leader, INT32_MAX}};
      for (int i = first + 1; i < end && compare(leader, found_.order[i], tile) == 0; i++)
        members.push_back({found_.order[i], agreeing(leader, found_.order[i], tile + 1)});
      // Sequences that agree with the leader for longer come earlier, so that each run is a range of the order.
      std::stable_sort(members.begin(), members.end(), [](const Member& a, const Member& b) { return a.agreeing > b.agreeing; });
      for (size_t i = 0; i < members.size(); i++) found_.order[first + i] = members[i].sequence;
      follow(first, members, tile, parent, partings);
      first += static_cast<int>(members.size());
    }
  }

 private:
  struct Member {
    int sequence;
    int agreeing;  // Leading tiles in which it agrees with the leader.
  };

  // Adds the runs of the leader, the first of `members`, from which the others part one after another.
  void follow(int first, const std::vector<Member>& members, int tile, int parent, int partings) {
    for (int count = static_cast<int>(members.size()); count > 1;) {
      const int end = members[count - 1].agreeing;
      found_.runs.push_back({parent, first, count, tile, end});
      parent = static_cast<int>(found_.runs.size()) - 1;
      tile = end;
      int staying = count;
      while (members[staying - 1].agreeing == end) staying--;
      divide(first + staying, first + count, tile, parent, partings + 1);
      count = staying;
    }
  }

  int wholeTiles(int sequence) const { return (sequences_[sequence].keys - 1) / ATTENTION_TILE; }
  int compare(int a, int b, int tile) const {
    return std::memcmp(slots_[a] + tile * ATTENTION_TILE, slots_[b] + tile * ATTENTION_TILE, ATTENTION_TILE * sizeof(int));
  }
  // The number of leading tiles in which two sequences agree, which is at least `tile`.
  int agreeing(int a, int b, int tile) const {
    const int end = std::min(wholeTiles(a), wholeTiles(b));
    while (tile < end && compare(a, b, tile) == 0) tile++;
    return tile;
  }

  const AttentionSequence* sequences_;
  const int* const* slots_;
  SharedPrefixes& found_;
};

}  // namespace

SharedPrefixes findSharedPrefixes(const AttentionSequence* sequences, int count, const int* const* slots) {
  SharedPrefixes found;
  for (int i = 0; i < count; i++)
    if (slots[i] != nullptr && sequences[i].maskWord < 0 && sequences[i].rows == 1) found.order.push_back(i);
  PrefixTree(sequences, slots, found).divide(0, static_cast<int>(found.order.size()), 0, -1, 0);
  return found;
}

}  // namespace pie::attention
