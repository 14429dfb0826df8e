#include "split.h"
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include "../bounds.h"
#include "../errors.h"
#include "masks.h"

namespace pie {

namespace {

std::string nameOf(int sequence) { return "Sequence " + std::to_string(sequence); }

void checkBelow(const uint32_t* values, int count, int end, int sequence, const char* what) {
  if (allBelow(values, count, static_cast<uint32_t>(end))) return;
  refuse(nameOf(sequence) + " names " + what + " " + std::to_string(largest(values, count)) + " of " + std::to_string(end) + ".");
}

void checkTable(const Sequence& s, int index, const StepLimits& limits) {
  if (s.table < 0) {
    if (s.known > 0) refuse(nameOf(index) + " has no table that could hold " + std::to_string(s.known) + " slots.");
    return;
  }
  if (s.mask) refuse(nameOf(index) + " has a mask and a table.");
  if (static_cast<int64_t>(s.table) + s.contextCount + s.rows > limits.tableSlots)
    refuse(nameOf(index) + " has a table of " + std::to_string(s.contextCount + s.rows) + " slots at place " + std::to_string(s.table) + " of " +
           std::to_string(limits.tableSlots) + ".");
}

// Overlapping tables would mix the keys of two sequences.
void checkPlaces(const Batch& batch) {
  std::vector<std::pair<int, int>> places;
  for (int i = 0; i < batch.count; i++) {
    const Sequence& s = batch.sequences[i];
    if (s.table >= 0) places.push_back({s.table, s.table + s.contextCount + s.rows});
  }
  std::sort(places.begin(), places.end());
  for (size_t i = 1; i < places.size(); i++)
    if (places[i].first < places[i - 1].second) refuse("Two sequences have a table at place " + std::to_string(places[i].first) + ".");
}

void checkSequence(const Sequence& s, int index, const StepLimits& limits) {
  const auto wrong = [index](const std::string& what) { refuse(nameOf(index) + " " + what); };
  const int64_t keys = static_cast<int64_t>(s.contextCount) + s.rows;
  const int vocabulary = limits.shape.vocabulary;
  if (s.rows < 1 || !s.positions) wrong("has no inputs.");
  if ((s.tokens != nullptr) + (s.embeds != nullptr) + (s.picked != nullptr) != 1) wrong("needs either tokens or embeds, or picked tokens.");
  if (s.known < 0 || s.known > s.contextCount || (s.contextCount > s.known && !s.context)) wrong("has no context.");
  if (keys > limits.keys) wrong("has " + std::to_string(keys) + " keys; a step lists at most " + std::to_string(limits.keys) + ".");
  checkTable(s, index, limits);
  if (s.outputRows < 0 || s.outputRows > s.rows)
    wrong("wants outputs of " + std::to_string(s.outputRows) + " of " + std::to_string(s.rows) + " inputs.");
  if (s.topK < 0 || s.topK > std::min(MAX_TOP_K, vocabulary)) wrong("wants " + std::to_string(s.topK) + " tokens a row.");
  if ((s.draws || s.allowed) && s.topK < 1) wrong("has draws or allowed tokens, and wants no tokens.");
  if (s.changeTokens) {
    if (s.outputRows != 1 || s.topK < 1)
      wrong("changes logits, and wants tokens of " + std::to_string(s.topK < 1 ? 0 : s.outputRows) + " rows.");
    if (s.changes < 0 || s.changes > vocabulary || !s.changeValues) wrong("changes " + std::to_string(s.changes) + " logits.");
    for (int i = 0; i < s.changes; i++) {
      const uint32_t token = s.changeTokens[i] & ~CHOSEN_TOKEN;
      if (token >= static_cast<uint32_t>(vocabulary))
        wrong("changes the logit of token " + std::to_string(token) + " of " + std::to_string(vocabulary) + ".");
    }
  }
  if (!s.writes && s.rows > limits.scratchSlots)
    wrong("keeps no keys and has " + std::to_string(s.rows) + " inputs; there is room for " + std::to_string(limits.scratchSlots) + ".");
  if (s.tokens) checkBelow(s.tokens, s.rows, vocabulary, index, "token");
  if (s.writes) checkBelow(s.writes, s.rows, limits.slots, index, "slot");
  checkBelow(s.context, s.contextCount - s.known, limits.slots, index, "slot");
  checkBelow(s.positions, s.rows, MOST_POSITION, index, "position");
}

// Resources that a piece needs.
Part costOf(const Piece& piece, const Sequence& s, const StepLimits& limits) {
  Part cost;
  const int outputs = piece.outputs(s);
  cost.rows = piece.rows;
  cost.scratch = s.writes ? 0 : piece.rows;
  cost.keys = piece.keys(s);
  // A mask of the sequence's own, and one for each window.
  const int64_t masks = (s.mask ? 1 : 0) + static_cast<int64_t>(limits.windows.size());
  cost.maskWords = static_cast<int>(std::min<int64_t>(masks * piece.rows * ((cost.keys + 31) / 32), 1 << 30));
  cost.heads = s.topK > 0 ? outputs : 0;
  cost.results = static_cast<int64_t>(cost.heads) * s.topK;
  cost.states = s.states ? outputs : 0;
  cost.wanted = s.states || s.topK > 0 ? outputs : 0;
  cost.draws = s.draws ? outputs : 0;
  cost.allowedRows = s.allowed ? outputs : 0;
  cost.changedRows = s.changeTokens ? outputs : 0;
  cost.changes = s.changeTokens && outputs > 0 ? s.changes : 0;
  cost.embedRows = s.embeds ? piece.rows : 0;
  cost.attention = s.attention ? cost.keys : 0;
  cost.maxTopK = cost.heads > 0 ? s.topK : 0;
  cost.wantsAttention = s.attention;
  cost.places = s.adapter ? s.adapter->places() : 0;
  return cost;
}

bool fits(const Part& part, const Part& cost, const StepLimits& limits) {
  return part.rows + cost.rows <= limits.rows && static_cast<int>(part.pieces.size()) < limits.sequences &&
         part.scratch + cost.scratch <= limits.scratchSlots &&
         static_cast<int64_t>(part.keys) + cost.keys <= limits.keys && static_cast<int64_t>(part.maskWords) + cost.maskWords <= limits.maskWords &&
         part.results + cost.results <= limits.results && part.allowedRows + cost.allowedRows <= limits.allowedRows &&
         part.changes + cost.changes <= limits.changes;
}

void add(Part& part, const Piece& piece, const Sequence& s, const StepLimits& limits) {
  const Part cost = costOf(piece, s, limits);
  part.pieces.push_back(piece);
  part.rows += cost.rows;
  part.scratch += cost.scratch;
  part.keys += cost.keys;
  part.maskWords += cost.maskWords;
  part.results += cost.results;
  part.heads += cost.heads;
  part.states += cost.states;
  part.wanted += cost.wanted;
  part.draws += cost.draws;
  part.allowedRows += cost.allowedRows;
  part.changedRows += cost.changedRows;
  part.changes += cost.changes;
  part.embedRows += cost.embedRows;
  part.attention += cost.attention;
  part.maxTopK = std::max(part.maxTopK, cost.maxTopK);
  part.wantsAttention = part.wantsAttention || cost.wantsAttention;
  part.places |= cost.places;
}

// The largest number of rows, from row `from` on, that fit into the rest of a part and end where the sequence may be cut; 0 if no row fits.
int rowsThatFit(const Part& part, const Sequence& s, int index, int from, const StepLimits& limits) {
  int fit = 0;
  for (int rows = 1; from + rows <= s.rows; rows++) {
    Part cost = costOf({index, from, rows, 0}, s, limits);
    cost.scratch = 0;  // All scratch slots of a sequence are reserved at once.
    if (!fits(part, cost, limits)) break;
    fit = rows;
  }
  return s.mask && from + fit < s.rows ? lastCut(s.mask, s.contextCount, s.rows, from, from + fit) - from : fit;
}

}  // namespace

std::vector<Part> splitBatch(const Batch& batch, const StepLimits& limits) {
  if (batch.count < 0) refuse("The number of sequences must not be negative.");
  for (int i = 0; i < batch.count; i++) checkSequence(batch.sequences[i], i, limits);
  checkPlaces(batch);
  std::vector<Part> parts(1);
  for (int i = 0; i < batch.count; i++) {
    const Sequence& s = batch.sequences[i];
    const Piece whole{i, 0, s.rows, parts.back().scratch};
    const Part cost = costOf(whole, s, limits);
    if (fits(parts.back(), cost, limits)) {
      add(parts.back(), whole, s, limits);
      continue;
    }
    if (fits(Part(), cost, limits)) {
      parts.emplace_back();
      add(parts.back(), {i, 0, s.rows, 0}, s, limits);
      continue;
    }
    // Cuts the sequence. Without writes, its keys lie in scratch slots, and later rows read the keys of earlier ones. So each of its parts reserves
    // scratch slots for the whole sequence, starting at 0.
    if (!s.writes && !parts.back().pieces.empty()) parts.emplace_back();
    for (int from = 0; from < s.rows;) {
      const int rows = rowsThatFit(parts.back(), s, i, from, limits);
      if (rows == 0) {
        if (parts.back().pieces.empty())
          refuse(nameOf(i) + " of " + std::to_string(s.rows) + " inputs and " + std::to_string(s.contextCount) +
                 " context slots does not fit a step of " + std::to_string(limits.rows) + " inputs, and its mask leaves no place to cut it.");
        parts.emplace_back();
        continue;
      }
      add(parts.back(), {i, from, rows, 0}, s, limits);
      if (!s.writes) parts.back().scratch = s.rows;
      from += rows;
      if (from < s.rows) parts.emplace_back();
    }
  }
  if (parts.back().pieces.empty()) parts.pop_back();
  return parts;
}

}  // namespace pie
