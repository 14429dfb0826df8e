// Parses a batch from JavaScript: one array of 32-bit words, so that a step costs one call and no traversal of JavaScript objects.
// `../../batch-words.ts` writes the words; both files must agree on the layout.
#pragma once
#include <cstdint>
#include <string>
#include <vector>
#include "../engine/engine.h"

namespace pie {

// Words: MAGIC, number of words, number of sequences, 0; then for each sequence the words of its header and its arrays in this order:
//   inputs     rows tokens, or rows × hidden float values (EMBEDS), or indices into the previous batch's picked tokens (PICKED)
//   positions  rows
//   context    contextCount slots; with TABLE only the slots after the first `known`
//   writes     rows slots (WRITES)
//   mask       rows × (contextCount + rows) bytes, padded to a whole word (MASK)
//   allowed    outputRows × ceil(vocabulary / 32) words (ALLOWED)
//   changes    count, frequency and presence (float), then count tokens and count float values (CHANGES); see HeadChange of ../kernels/head/head.h
//   draws      outputRows × 5 words: temperature, topP, minP (float), seed, position (DRAWS)
namespace batch_words {
constexpr uint32_t MAGIC = 0x31454950;
constexpr int HEADER = 4;
constexpr int SEQUENCE = 8;  // rows, contextCount, outputRows, topK, flags, table, known (TABLE; else 0), id of the adapter (0: none)
enum Flag : uint32_t {
  EMBEDS = 1, MASK = 2, WRITES = 4, PROBABILITIES = 8, STATES = 16, ATTENTION = 32, ALLOWED = 64, DRAWS = 128, PICKED = 256, TABLE = 512,
  CHANGES = 1024
};
}  // namespace batch_words

// Upper bounds for the numbers in a batch's words.
struct BatchLimits {
  int hidden;
  int vocabulary;
  uint32_t slots;
  uint32_t picks = 0;  // Tokens that the previous batch picks.
  uint32_t tableSlots = 0;
};

// The results that one sequence requests.
struct ResultShape {
  size_t rows;  // Output rows.
  size_t topK;
  bool logProbabilities;
  bool draws;
  bool states;
  size_t keys;  // 0: attention is not wanted.
};

struct ParsedBatch {
  // The pointers of a sequence point into the parsed words. Its `adapter` is not set; see `adapters`.
  std::vector<Sequence> sequences;
  std::vector<ResultShape> shapes;
  std::vector<uint32_t> adapters;  // Ids, by sequence; 0: none.
};

// Parses untrusted words: never reads outside of them, and accepts only tokens, slots and numbers that the model has. Throws EngineError "invalid",
// whose message names the sequence.
ParsedBatch parseBatch(const uint32_t* words, size_t count, const BatchLimits& limits);

// Words of all results. For each sequence: its drawn tokens (one per row), or its top tokens and, if wanted, their log-probabilities; then its
// states; then its attention.
size_t resultWords(const std::vector<ResultShape>& shapes, int hidden);

// Writes the words of all results. NOTHING_DRAWN stands for the token of a row from which no token could be drawn. If log-probabilities are not
// requested, it also stands for the first top token of a row whose log-probabilities are NaN.
void packResults(uint32_t* into, const std::vector<ResultShape>& shapes, const Results& results, int hidden);

}  // namespace pie
