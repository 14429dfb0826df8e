#include "plan.h"
#include <algorithm>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include "../../kernels/linear/low-rank.h"
#include "masks.h"

namespace pie {

namespace {

// Writes the pieces of a step one after another.
class Writer {
 public:
  Writer(const Batch& batch, const StepLimits& limits, Cursor& cursor, int blockWord, StepPlan& plan, std::vector<uint8_t>& columns,
         std::vector<TableWrite>& tableWrites)
      : batch_(batch), limits_(limits), cursor_(cursor), blockWord_(blockWord), plan_(plan), columns_(columns), tableWrites_(tableWrites) {}

  AttentionSequence inputs(const Piece& piece) {
    const Sequence& s = batch_.sequences[piece.sequence];
    const UploadLayout& at = plan_.upload;
    for (int i = 0; i < piece.rows; i++) {
      const int from = piece.firstRow + i, to = row_ + i;
      cursor_.at<int>(at.tokens)[to] = s.tokens   ? static_cast<int>(s.tokens[from])
                                       : s.picked ? pickedToken(static_cast<int>(s.picked[from]))
                                                  : EMBED_GIVEN;
      cursor_.at<int>(at.embedRows)[to] = 0;
      cursor_.at<int>(at.positions)[to] = static_cast<int>(s.positions[from]);
      cursor_.at<int>(at.slots)[to] = slotOf(s, piece, from);
    }
    const AttentionSequence sequence = s.table < 0 ? keys(s, piece) : tableKeys(s, piece);
    if (s.attention) {
      plan_.received.push_back({sequence, received_, {}});
      received_ += sequence.keys;
    }
    row_ += piece.rows;
    return sequence;
  }

  void outputs(const Piece& piece, int firstRow) {
    const Sequence& s = batch_.sequences[piece.sequence];
    const UploadLayout& at = plan_.upload;
    const int count = piece.outputs(s), words = limits_.allowedWords();
    const int row = firstRow + piece.rows - count;
    int first = row;
    if (plan_.shape.last > 0 && (s.states || s.topK > 0)) {
      first = last_;
      for (int i = 0; i < count; i++) cursor_.at<int>(at.lastPick)[last_++] = row + i;
    }
    // Index of the piece's first output among the outputs of the whole sequence.
    const int output = piece.firstRow + piece.rows - count - (s.rows - s.outputRows);
    if (s.states)
      for (int i = 0; i < count; i++) cursor_.at<int>(at.statePick)[states_++] = first + i;
    if (s.topK < 1) return;
    int allowed = -1;
    if (s.allowed && count > 0) {
      const size_t bytes = static_cast<size_t>(count) * words * sizeof(uint32_t);
      const size_t offset = cursor_.take(bytes);
      std::memcpy(cursor_.at<uint32_t>(offset), s.allowed + static_cast<size_t>(output) * words, bytes);
      allowed = static_cast<int>(offset / sizeof(uint32_t));
    }
    for (int i = 0; i < count; i++, heads_++) {
      const int draw = s.draws ? draws_++ : -1;
      if (s.draws) cursor_.at<Draw>(at.draws)[draw] = s.draws[output + i];
      cursor_.at<int>(at.headPick)[heads_] = first + i;
      cursor_.at<HeadRow>(at.headRows)[heads_] = {s.topK, allowed < 0 ? -1 : allowed + i * words, results_, draw, s.changeTokens ? change(s) : -1};
      results_ += s.topK;
    }
  }

  void embeds(const Piece& piece, int firstRow) {
    const Sequence& s = batch_.sequences[piece.sequence];
    if (!s.embeds) return;
    const size_t rowBytes = embedBytes(limits_), bytes = piece.rows * rowBytes;
    const size_t offset = cursor_.take(bytes, rowBytes);
    std::memcpy(cursor_.at<uint8_t>(offset), reinterpret_cast<const uint8_t*>(s.embeds) + piece.firstRow * rowBytes, bytes);
    for (int i = 0; i < piece.rows; i++) cursor_.at<int>(plan_.upload.embedRows)[firstRow + i] = static_cast<int>(offset / rowBytes) + i;
  }

  // Groups rows that have the same adapter into tasks of up to LOW_RANK_ROWS rows. One list of tasks is for all rows of the step, the other for the
  // rows that the step keeps after the last attention. Rows without an adapter normally have no task. If adapters change gate and up, these rows have
  // tasks, too, because then the tasks combine gate and up for every row.
  void adapters(const Part& part, const std::vector<AttentionSequence>& sequences) {
    if (plan_.shape.places == 0) return;
    const bool all = (plan_.shape.places >> GATE_UP_PLACE & 1) != 0;
    std::vector<Adapted> rows, kept;
    int last = 0;
    for (size_t i = 0; i < part.pieces.size(); i++) {
      const Piece& piece = part.pieces[i];
      const Sequence& s = batch_.sequences[piece.sequence];
      const int wanted = plan_.shape.last > 0 && (s.states || s.topK > 0) ? piece.outputs(s) : 0;
      if (s.adapter || all) {
        const void* const matrices = s.adapter ? s.adapter->matrices() : nullptr;
        for (int row = 0; row < piece.rows; row++) rows.push_back({matrices, sequences[i].firstRow + row});
        for (int row = 0; row < wanted; row++) kept.push_back({matrices, last + row});
      }
      last += wanted;
    }
    for (int row = row_; all && row < plan_.shape.rows; row++) rows.push_back({nullptr, row});
    const UploadLayout& at = plan_.upload;
    int* const counts = cursor_.at<int>(at.counts);
    counts[3] = tasks(rows, cursor_.at<LowRankTask>(at.lowRankTasks), cursor_.at<int>(at.lowRankRows));
    counts[4] = tasks(kept, cursor_.at<LowRankTask>(at.lastTasks), cursor_.at<int>(at.lastRows));
  }

  // Writes the list of table writes and applies it to `tables`, the host's copy of the slot tables (empty: there is no copy).
  void tableWrites(std::vector<int>& tables) {
    int* const counts = cursor_.at<int>(plan_.upload.counts);
    const size_t at = cursor_.table<TableWrite>(tableWrites_.size());
    counts[1] = static_cast<int>(tableWrites_.size());
    counts[2] = static_cast<int>(at / sizeof(int));
    std::copy(tableWrites_.begin(), tableWrites_.end(), cursor_.at<TableWrite>(at));
    if (tables.empty()) return;
    for (const TableWrite& write : tableWrites_) std::copy_n(cursor_.at<int>(0) + write.from, write.count, tables.begin() + write.to);
  }

  // Pads the step to the sizes of its bucket: with rows that belong to no sequence and write to the trash slot, and with heads that request nothing.
  void pad() {
    const UploadLayout& at = plan_.upload;
    for (; row_ < plan_.shape.rows; row_++) {
      cursor_.at<int>(at.tokens)[row_] = 0;
      cursor_.at<int>(at.embedRows)[row_] = 0;
      cursor_.at<int>(at.positions)[row_] = 0;
      cursor_.at<int>(at.slots)[row_] = limits_.trashSlot();
    }
    for (; states_ < plan_.shape.states; states_++) cursor_.at<int>(at.statePick)[states_] = 0;
    for (; heads_ < plan_.shape.heads; heads_++) {
      cursor_.at<int>(at.headPick)[heads_] = 0;
      cursor_.at<HeadRow>(at.headRows)[heads_] = {0, -1, 0, -1, -1};
    }
  }

 private:
  struct Adapted {
    const void* matrices;
    int row;
  };

  // Writes the tasks of `rows`, those without an adapter last, and the rows in their order; returns the number of tasks.
  static int tasks(std::vector<Adapted>& rows, LowRankTask* to, int* order) {
    std::stable_sort(rows.begin(), rows.end(), [](const Adapted& a, const Adapted& b) { return std::less<>()(b.matrices, a.matrices); });
    int count = 0;
    for (size_t i = 0; i < rows.size(); i++) {
      order[i] = rows[i].row;
      if (i > 0 && rows[i].matrices == rows[i - 1].matrices && to[count - 1].count < LOW_RANK_ROWS) to[count - 1].count++;
      else to[count++] = {rows[i].matrices, static_cast<int>(i), 1};
    }
    return count;
  }

  // Writes the changes of a sequence's only output row; returns their index.
  int change(const Sequence& s) {
    const size_t bytes = static_cast<size_t>(s.changes) * sizeof(uint32_t);
    const size_t offset = cursor_.take(2 * bytes);
    if (s.changes > 0) {
      std::memcpy(cursor_.at<uint8_t>(offset), s.changeTokens, bytes);
      std::memcpy(cursor_.at<uint8_t>(offset) + bytes, s.changeValues, bytes);
    }
    const int picked = s.picked ? static_cast<int>(s.picked[s.rows - 1]) : -1;
    const int firstWord = static_cast<int>(offset / sizeof(uint32_t));
    cursor_.at<HeadChange>(plan_.upload.changes)[changes_] = {firstWord, s.changes, picked, s.frequency, s.presence};
    return changes_++;
  }

  int slotOf(const Sequence& s, const Piece& piece, int input) const {
    return s.writes ? static_cast<int>(s.writes[input]) : limits_.slots + piece.scratch + input;
  }

  AttentionSequence keys(const Sequence& s, const Piece& piece) {
    const int keys = piece.keys(s), own = piece.firstRow + piece.rows;
    const size_t list = cursor_.take(keys * sizeof(int), sizeof(int));
    int* slots = cursor_.at<int>(list);
    if (s.contextCount > 0) std::memcpy(slots, s.context, s.contextCount * sizeof(int));
    if (s.writes) std::memcpy(slots + s.contextCount, s.writes, own * sizeof(int));
    else
      for (int i = 0; i < own; i++) slots[s.contextCount + i] = limits_.slots + piece.scratch + i;
    AttentionSequence sequence{row_, piece.rows, blockWord_ + static_cast<int>(list / sizeof(int)), keys, -1, 0};
    if (!s.mask) return sequence;
    const size_t stride = static_cast<size_t>(s.contextCount) + s.rows;
    const size_t words = cursor_.take(static_cast<size_t>(piece.rows) * ((keys + 31) / 32) * sizeof(uint32_t), sizeof(uint32_t));
    const VisibleKeys visible = packMask(s.mask + piece.firstRow * stride, stride, piece.rows, keys, s.contextCount + piece.firstRow, s.attention,
                                         slots, cursor_.at<uint32_t>(words), columns_);
    sequence.keys = visible.keys;
    if (visible.causal) {
      cursor_.shrinkTo(list + visible.keys * sizeof(int));
    } else {
      sequence.maskWord = static_cast<int>(words / sizeof(uint32_t));
      sequence.maskStride = visible.stride;
      cursor_.shrinkTo(words + static_cast<size_t>(piece.rows) * visible.stride * sizeof(uint32_t));
    }
    return sequence;
  }

  // Lists only the slots that the table lacks. For later pieces of a sequence, these are only the slots of the piece's own rows.
  AttentionSequence tableKeys(const Sequence& s, const Piece& piece) {
    const int keys = piece.keys(s), from = piece.firstRow == 0 ? s.known : keys - piece.rows, context = std::max(0, s.contextCount - from);
    const size_t list = cursor_.take((keys - from) * sizeof(int), sizeof(int));
    int* const slots = cursor_.at<int>(list);
    if (context > 0) std::memcpy(slots, s.context, context * sizeof(int));
    for (int i = 0; i < piece.rows; i++) slots[context + i] = slotOf(s, piece, piece.firstRow + i);
    for (int at = from; at < keys; at += TABLE_WRITE_SLOTS)
      tableWrites_.push_back({static_cast<int>(list / sizeof(int)) + at - from, s.table + at, std::min(TABLE_WRITE_SLOTS, keys - at)});
    return {row_, piece.rows, s.table, keys, -1, 0};
  }

  const Batch& batch_;
  const StepLimits& limits_;
  Cursor& cursor_;
  const int blockWord_;
  StepPlan& plan_;
  std::vector<uint8_t>& columns_;
  std::vector<TableWrite>& tableWrites_;
  int row_ = 0, last_ = 0, states_ = 0, heads_ = 0, draws_ = 0, changes_ = 0, results_ = 0;
  size_t received_ = 0;
};

// Writes items to the table at `at`, which is allocated here unless it is reserved, their number to `count`, and members and tile words behind;
// word offsets are counted from the block's start.
void writeAttention(AttentionPlan& attention, Cursor& cursor, size_t& at, int& count, bool reserved, int bound) {
  if (attention.items.size() > static_cast<size_t>(bound))
    throw std::logic_error(std::to_string(attention.items.size()) + " attention items exceed the bound of " +
                           std::to_string(bound) + ".");
  if (!reserved) at = cursor.table<AttentionItem>(attention.items.size());
  const size_t members = cursor.table<AttentionMember>(attention.members.size());
  const size_t tiles = cursor.table<uint32_t>(attention.tileWords.size());
  for (AttentionItem& item : attention.items) {
    if (item.tileWord >= 0) item.tileWord += static_cast<int>(tiles / sizeof(uint32_t));
    if (item.merge == ATTENTION_SHARED) item.firstPartial += static_cast<int>(members / sizeof(AttentionMember));
  }
  std::copy(attention.members.begin(), attention.members.end(), cursor.at<AttentionMember>(members));
  count = static_cast<int>(attention.items.size());
  std::copy(attention.items.begin(), attention.items.end(), cursor.at<AttentionItem>(at));
  std::copy(attention.tileWords.begin(), attention.tileWords.end(), cursor.at<uint32_t>(tiles));
}

}  // namespace

StepPlan Planner::plan(const Batch& batch, const Part& part, uint8_t* block, int blockWord) {
  const ModelShape& model = context_.limits.shape;
  StepPlan plan;
  plan.shape = stepShape(part, context_);
  plan.results = resultLayout(plan.shape, part, model.hidden);
  const TableCounts counts = tableCounts(plan.shape, part);
  const int items = itemBound(counts.rows, counts.sequences, context_);
  Cursor cursor(block, uploadBound(part, context_));
  plan.upload = layTables(cursor, counts);
  const size_t kinds = 1 + context_.limits.windows.size();
  for (size_t kind = 0; plan.shape.padded && kind < kinds; kind++) plan.upload.items[kind] = cursor.table<AttentionItem>(items);

  writes_.clear();
  Writer writer(batch, context_.limits, cursor, blockWord, plan, columns_, writes_);
  sequences_.clear();
  for (const Piece& piece : part.pieces) sequences_.push_back(writer.inputs(piece));
  for (size_t i = 0; i < part.pieces.size(); i++) writer.outputs(part.pieces[i], sequences_[i].firstRow);
  writer.tableWrites(tables_);
  writer.adapters(part, sequences_);
  writer.pad();
  lists_.clear();
  for (size_t i = 0; i < sequences_.size() && context_.listsSlots(); i++) {
    const int table = batch.sequences[part.pieces[i].sequence].table;
    lists_.push_back(table >= 0 ? &tables_[table] : cursor.at<int>(0) + (sequences_[i].firstKey - blockWord));
  }

  AttentionPlan attention = planAttention(sequences_.data(), static_cast<int>(sequences_.size()), reinterpret_cast<const uint32_t*>(block), model,
                                          context_.multiprocessors, context_.fastAttention, context_.sharesPrefixes() ? lists_.data() : nullptr);
  writeAttention(attention, cursor, plan.upload.items[0], cursor.at<int>(plan.upload.counts)[0], plan.shape.padded, items);
  planWindows(batch, part, cursor, items, plan);
  for (size_t i = 0; i < part.pieces.size(); i++) writer.embeds(part.pieces[i], sequences_[i].firstRow);
  plan.upload.bytes = cursor.bytes();
  return plan;
}

void Planner::planWindows(const Batch& batch, const Part& part, Cursor& cursor, int items, StepPlan& plan) {
  const std::vector<int>& windows = context_.limits.windows;
  if (windows.empty()) return;
  std::vector<std::vector<AttentionSequence>> seen(windows.size());
  for (size_t i = 0; i < part.pieces.size(); i++) {
    const Piece& piece = part.pieces[i];
    const AttentionSequence& sequence = sequences_[i];
    const uint32_t* const positions = batch.sequences[piece.sequence].positions + piece.firstRow;
    // Sequences pass in order: a later one sees the keys that an earlier one writes.
    positions_.write(cursor.at<int>(plan.upload.slots) + sequence.firstRow, positions, piece.rows);
    view_.look(sequence, lists_[i], positions, positions_);
    for (size_t w = 0; w < windows.size(); w++) seen[w].push_back(view_.through(windows[w], cursor));
  }
  size_t received = 0;
  for (size_t i = 0; i < part.pieces.size(); i++) {
    if (!batch.sequences[part.pieces[i].sequence].attention) continue;
    for (const auto& sequences : seen) plan.received[received].windowed.push_back(sequences[i]);
    received++;
  }
  for (size_t w = 0; w < windows.size(); w++) {
    AttentionPlan attention = planAttention(seen[w].data(), static_cast<int>(seen[w].size()), cursor.at<uint32_t>(0), context_.limits.shape,
                                            context_.multiprocessors, context_.fastAttention);
    writeAttention(attention, cursor, plan.upload.items[1 + w], cursor.at<int>(plan.upload.counts)[5 + w], plan.shape.padded, items);
  }
}

}  // namespace pie
