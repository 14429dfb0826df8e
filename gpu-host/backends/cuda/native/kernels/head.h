// What becomes of logits: the most probable tokens, draws, scores.
#pragma once
#include "types.h"

namespace pie {

// What is wanted of one row of logits.
struct HeadRow {
  int topK;          // 0 in rows that only fill a captured launch up: nothing is written for them.
  int allowedWord;   // First word of its mask of allowed tokens among the step's, or -1.
  int firstResult;   // Where its topK tokens and log-probabilities go.
  int draw;          // Index of its draw, or -1. The candidates are its topK tokens.
};

// How one token is drawn: the cuts of `gpu-host/backends/draw.ts`, in its order. Same seed and position, same token.
struct Draw {
  float temperature;  // 0: the most probable.
  float topP;
  float minP;
  uint32_t seed;
  uint32_t position;
};

struct HeadResults {
  uint32_t* tokens;         // Most probable first, equal logits by token id; places past the last allowed token hold 0.
  float* logProbabilities;  // Natural logarithms over all (allowed) tokens at temperature 1; -Infinity past the last allowed one.
  uint32_t* drawn;          // By draw: place in the row's top tokens.
  uint32_t* picked = nullptr;  // By row: the token drawn, or else the most probable one; 0 where nothing was. Null: not wanted.
};

// Most topK that is computed on the device.
constexpr int MAX_TOP_K = 2048;
// Largest vocabulary: a token id is 18 bits of the keys that are sorted.
constexpr int MAX_VOCABULARY = 1 << 18;
// What is drawn of a row without any number: its first log-probability is NaN.
constexpr uint32_t NOTHING_DRAWN = 0xffffffff;

// 256-byte aligned memory for launchTop of up to `maxRows` rows; its contents mean nothing between launches.
size_t headWorkspaceBytes(int maxRows, int vocabulary);

// logits: rows × vocabulary. Reads the rows' requests from device memory; none has a topK past `maxTopK`, which chooses the kernels (1 is the cheapest,
// then up to 256). A NaN logit counts as -Infinity; of a row in which some are NaN and none is a number above -Infinity the caller hears by
// NOTHING_DRAWN and a first log-probability of NaN. A row's results do not depend on the other rows.
void launchTop(const HeadResults& results, const float* logits, const HeadRow* rows, const uint32_t* allowed, const Draw* draws, int count, int vocabulary,
               int maxTopK, void* workspace, cudaStream_t stream);

// For each row: log-probabilities of listed tokens (tokens[first[r] .. first[r + 1])), and the entropy of the whole distribution in nats. A token past the
// vocabulary has -Infinity; a row as above has NaN throughout.
void launchScore(float* logProbabilities, float* entropies, const float* logits, const uint32_t* tokens, const int* first, int count, int vocabulary,
                 cudaStream_t stream);

}  // namespace pie
