#include "batch.h"
#include <cmath>
#include <cstdint>
#include <cstring>
#include "../engine/bounds.h"

namespace pie {

namespace {

using namespace batch_words;

[[noreturn]] void refuse(int sequence, const std::string& what) {
  throw EngineError("invalid", "sequence " + std::to_string(sequence) + " of the batch: " + what);
}

// Takes arrays from the words one after another.
class Reader {
 public:
  Reader(const uint32_t* words, size_t count) : words_(words), left_(count) {}

  const uint32_t* take(uint64_t count, int sequence) {
    if (count > left_) refuse(sequence, "an array ends after " + std::to_string(left_) + " of " + std::to_string(count) + " words");
    const uint32_t* taken = words_;
    words_ += count;
    left_ -= count;
    return taken;
  }
  size_t left() const { return left_; }

 private:
  const uint32_t* words_;
  size_t left_;
};

void checkBelow(const uint32_t* values, size_t count, uint32_t end, const char* what, int sequence) {
  if (allBelow(values, count, end)) return;
  refuse(sequence, std::string(what) + " " + std::to_string(largest(values, count)) + " is not below " + std::to_string(end));
}

void checkFinite(const float* values, size_t count, int sequence) {
  bool finite = true;
  for (size_t i = 0; i < count; i++) finite &= std::isfinite(values[i]);
  if (!finite) refuse(sequence, "an embed holds a number that is not finite");
}

void readSequence(Reader& reader, int index, const BatchLimits& limits, int rowsLeft, ParsedBatch& batch) {
  const uint32_t* header = reader.take(SEQUENCE, index);
  const uint64_t rows = header[0], context = header[1], outputRows = header[2], topK = header[3];
  const uint32_t flags = header[4];
  if (rows == 0) refuse(index, "it has no inputs");
  if (rows > uint64_t(rowsLeft)) refuse(index, "the batch has more than 2^31 - 1 inputs");
  if (context > uint64_t(INT32_MAX) - rows) refuse(index, "more than 2^31 - 1 context slots and inputs");
  if (outputRows > rows) refuse(index, "more output rows than inputs");
  if (topK > uint64_t(limits.vocabulary) || topK > uint64_t(MAX_TOP_K)) refuse(index, "more top tokens than can be computed");
  if (outputRows == 0 && (topK > 0 || (flags & (STATES | DRAWS | ALLOWED)))) refuse(index, "it requests outputs of no rows");
  if ((flags & CHANGES) && (topK == 0 || outputRows != 1)) refuse(index, "changed logits of other than one row");
  if (topK == 0 && (flags & (DRAWS | ALLOWED))) refuse(index, "a draw or a token mask without top tokens");

  Sequence sequence;
  sequence.rows = int(rows);
  sequence.contextCount = int(context);
  sequence.outputRows = int(outputRows);
  sequence.topK = int(topK);
  sequence.logProbabilities = flags & PROBABILITIES;
  sequence.states = flags & STATES;
  sequence.attention = flags & ATTENTION;
  if ((flags & EMBEDS) && (flags & PICKED)) refuse(index, "two kinds of inputs: embeds and picked tokens");
  if (flags & EMBEDS) {
    sequence.embeds = reinterpret_cast<const float*>(reader.take(rows * limits.hidden, index));
    checkFinite(sequence.embeds, rows * limits.hidden, index);
  } else if (flags & PICKED) {
    sequence.picked = reader.take(rows, index);
    checkBelow(sequence.picked, rows, limits.picks, "the token picked at row", index);
  } else {
    sequence.tokens = reader.take(rows, index);
    checkBelow(sequence.tokens, rows, limits.vocabulary, "token", index);
  }
  sequence.positions = reader.take(rows, index);
  uint64_t known = 0;
  if (flags & TABLE) {
    known = header[6];
    if (flags & MASK) refuse(index, "a table and a mask");
    if (known > context) refuse(index, "its table holds more slots than its context");
    if (header[5] + context + rows > limits.tableSlots) refuse(index, "its table is not within " + std::to_string(limits.tableSlots) + " slots");
    sequence.table = int(header[5]);
    sequence.known = int(known);
  }
  sequence.context = reader.take(context - known, index);
  checkBelow(sequence.context, context - known, limits.slots, "slot", index);
  if (flags & WRITES) {
    sequence.writes = reader.take(rows, index);
    checkBelow(sequence.writes, rows, limits.slots, "slot", index);
  }
  if (flags & MASK) sequence.mask = reinterpret_cast<const uint8_t*>(reader.take((rows * (context + rows) + 3) / 4, index));
  if (flags & ALLOWED) sequence.allowed = reader.take(outputRows * ((uint64_t(limits.vocabulary) + 31) / 32), index);
  if (flags & CHANGES) {
    const uint32_t* const changes = reader.take(3, index);
    const uint64_t count = changes[0];
    if (count > uint64_t(limits.vocabulary)) refuse(index, "more changed logits than tokens");
    std::memcpy(&sequence.frequency, changes + 1, sizeof(float));
    std::memcpy(&sequence.presence, changes + 2, sizeof(float));
    if (!std::isfinite(sequence.frequency) || !std::isfinite(sequence.presence)) refuse(index, "a penalty that is not finite");
    sequence.changes = int(count);
    sequence.changeTokens = reader.take(count, index);
    sequence.changeValues = reinterpret_cast<const float*>(reader.take(count, index));
    for (uint64_t i = 0; i < count; i++) {
      if ((sequence.changeTokens[i] & ~CHOSEN_TOKEN) >= uint32_t(limits.vocabulary)) refuse(index, "a changed logit of no token");
      if (!(sequence.changeValues[i] < INFINITY)) refuse(index, "a change of a logit that is no number, or infinite");
    }
  }
  if (flags & DRAWS) {
    static_assert(sizeof(Draw) == 5 * sizeof(uint32_t), "draws are read in place");
    sequence.draws = reinterpret_cast<const Draw*>(reader.take(outputRows * 5, index));
  }
  batch.sequences.push_back(sequence);
  batch.adapters.push_back(header[7]);
  batch.shapes.push_back({outputRows, topK, sequence.logProbabilities && topK > 0, sequence.draws != nullptr, sequence.states,
                          sequence.attention ? context + rows : 0});
}

// Words of one sequence's results.
size_t wordsOf(const ResultShape& shape, int hidden) {
  size_t words = shape.keys;
  if (shape.draws) words += shape.rows;
  else words += shape.rows * shape.topK * (shape.logProbabilities ? 2 : 1);
  if (shape.states) words += shape.rows * hidden;
  return words;
}

}  // namespace

ParsedBatch parseBatch(const uint32_t* words, size_t count, const BatchLimits& limits) {
  if (count < size_t(HEADER) || words[0] != MAGIC || words[1] > count || words[1] < uint32_t(HEADER))
    throw EngineError("invalid", "the words are not a batch");
  const uint32_t sequences = words[2];
  if (sequences == 0 || sequences > words[1] / SEQUENCE)
    throw EngineError("invalid", std::to_string(sequences) + " sequences in " + std::to_string(words[1]) + " words");
  Reader reader(words + HEADER, words[1] - HEADER);
  ParsedBatch batch;
  batch.sequences.reserve(sequences);
  batch.shapes.reserve(sequences);
  batch.adapters.reserve(sequences);
  int rows = 0;
  for (uint32_t i = 0; i < sequences; i++) {
    readSequence(reader, int(i), limits, INT32_MAX - rows, batch);
    rows += batch.sequences.back().rows;
  }
  if (reader.left() > 0) throw EngineError("invalid", std::to_string(reader.left()) + " words after the last sequence");
  return batch;
}

size_t resultWords(const std::vector<ResultShape>& shapes, int hidden) {
  size_t words = 0;
  for (const ResultShape& shape : shapes) words += wordsOf(shape, hidden);
  return words;
}

void packResults(uint32_t* into, const std::vector<ResultShape>& shapes, const Results& results, int hidden) {
  const uint32_t* tokens = results.tokens;
  const float* logProbabilities = results.logProbabilities;
  const uint32_t* drawn = results.drawn;
  const float* states = results.states;
  const float* attention = results.attention;
  const auto put = [&into](const void* from, size_t words) {
    if (words > 0) std::memcpy(into, from, words * sizeof(uint32_t));
    into += words;
  };
  for (const ResultShape& shape : shapes) {
    const size_t places = shape.rows * shape.topK;
    if (shape.draws) {
      for (size_t row = 0; row < shape.rows; row++) *into++ = drawn[row] < shape.topK ? tokens[row * shape.topK + drawn[row]] : NOTHING_DRAWN;
      drawn += shape.rows;
    } else {
      uint32_t* const packed = into;
      put(tokens, places);
      if (shape.logProbabilities) put(logProbabilities, places);
      else
        for (size_t first = 0; first < places; first += shape.topK)
          if (std::isnan(logProbabilities[first])) packed[first] = NOTHING_DRAWN;
    }
    tokens += places;
    logProbabilities += places;
    if (shape.states) {
      put(states, shape.rows * hidden);
      states += shape.rows * hidden;
    }
    put(attention, shape.keys);
    attention += shape.keys;
  }
}

}  // namespace pie
