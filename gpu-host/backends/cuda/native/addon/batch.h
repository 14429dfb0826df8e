// A batch as it comes from JavaScript: one array of 32-bit words, so that a step costs one call and no walk over JavaScript objects.
// `../../batch-words.ts` writes what is read here; both say the same layout.
#pragma once
#include <cstdint>
#include <string>
#include <vector>
#include "../engine/engine.h"

namespace pie {

// Words: MAGIC, count of all words, count of sequences, 0; then each sequence: the six words of its header, then its arrays in this order:
//   inputs     rows tokens, or rows × hidden float values (EMBEDS), or rows of the batch before whose tokens they are (PICKED)
//   positions  rows
//   context    contextCount slots
//   writes     rows slots (WRITES)
//   mask       rows × (contextCount + rows) bytes, up to the next whole word (MASK)
//   allowed    outputRows × ceil(vocabulary / 32) words (ALLOWED)
//   draws      outputRows × 5 words: temperature, topP, minP (float), seed, position (DRAWS)
namespace batch_words {
constexpr uint32_t MAGIC = 0x31454950;
constexpr int HEADER = 4;
constexpr int SEQUENCE = 6;  // rows, contextCount, outputRows, topK, flags, 0
enum Flag : uint32_t { EMBEDS = 1, MASK = 2, WRITES = 4, PROBABILITIES = 8, STATES = 16, ATTENTION = 32, ALLOWED = 64, DRAWS = 128, PICKED = 256 };
}  // namespace batch_words

// What the words of a batch may name.
struct BatchLimits {
  int hidden;
  int vocabulary;
  uint32_t slots;
  uint32_t picks = 0;  // Tokens that the batch before picks.
};

// What is to be handed back of one sequence.
struct ResultShape {
  size_t rows;  // Output rows.
  size_t topK;
  bool logProbabilities;
  bool draws;
  bool states;
  size_t keys;  // 0: no attention is wanted.
};

struct ParsedBatch {
  // Their pointers are into the words.
  std::vector<Sequence> sequences;
  std::vector<ResultShape> shapes;
};

// Reads words from outside: whatever they say, nothing outside of them is read, and every token, slot and number is one that the model has.
// Throws EngineError "invalid", and says of which sequence.
ParsedBatch parseBatch(const uint32_t* words, size_t count, const BatchLimits& limits);

// Words of all results: of each sequence the drawn tokens (one a row) or the top tokens and, where wanted, their log-probabilities; then its
// states; then its attention.
size_t resultWords(const std::vector<ResultShape>& shapes, int hidden);

// A row of which nothing could be drawn has NOTHING_DRAWN for a token.
void packResults(uint32_t* into, const std::vector<ResultShape>& shapes, const Results& results, int hidden);

}  // namespace pie
