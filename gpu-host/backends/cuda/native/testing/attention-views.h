// For tests: splits an attention item into views, one for each sequence whose rows it has.
#pragma once
#include <vector>
#include "../kernels/attention/attention.h"

namespace pie {

struct AttentionView {
  int queryRow;         // The step's row of the sequence's first input.
  int firstRow, rows;   // Packed rows within the sequence.
  int part, parts;
  int firstPartial, merge;  // Of the item's KV head.
};

inline std::vector<AttentionView> viewsOf(const AttentionItem& item, const AttentionMember* members, int group) {
  if (item.merge != ATTENTION_SHARED) return {{item.queryRow, item.firstRow, item.rows, item.part, item.parts, item.firstPartial, item.merge}};
  std::vector<AttentionView> views;
  for (int i = 0; i < item.rows / group; i++) {
    const AttentionMember& member = members[item.firstPartial + i];
    views.push_back({member.queryRow, 0, group, item.part, member.parts, member.firstPartial + item.kvHead * member.parts * group, member.merge + item.kvHead});
  }
  return views;
}

}  // namespace pie
