// Processing of logits: the most probable tokens, draws, scores.
#pragma once
#include "../types.h"

namespace pie {

// The request for one row of logits.
struct HeadRow {
  int topK;          // 0: the row pads a captured launch, and nothing is written for it.
  int allowedWord;   // First word of its mask of allowed tokens in the step's mask words, or -1.
  int firstResult;   // First index of its topK tokens and log-probabilities in the results.
  int draw;          // Index of the row's draw, or -1. The candidates are the row's topK tokens.
  int change = -1;   // Index of its HeadChange, or -1. In a row with a change, tokens whose logit is -Infinity are not allowed.
};

// Changes of a row's logits before anything else is computed from them: biases, and penalties for tokens that the text has chosen.
struct HeadChange {
  // First word of a list: `count` distinct tokens (each marked with CHOSEN_TOKEN if the text already has it), then `count` floats to add to their
  // logits.
  int firstWord;
  int count;
  // Index of the row's input among the picked tokens of the previous step, or -1. The logit of that token loses `frequency`, and `presence` unless
  // the list marks the token with CHOSEN_TOKEN.
  int picked;
  float frequency;
  float presence;
};
constexpr uint32_t CHOSEN_TOKEN = 0x80000000;

// Parameters of one draw. The cuts and their order are those of `gpu-host/backends/draw.ts`. The same seed and position give the same token.
struct Draw {
  float temperature;  // 0: the most probable token.
  float topP;
  float minP;
  uint32_t seed;
  uint32_t position;
};

struct HeadResults {
  uint32_t* tokens;         // By descending probability, equal logits by token id; entries past the last allowed token hold 0.
  float* logProbabilities;  // Natural logarithms over all (allowed) tokens at temperature 1; -Infinity past the last allowed one.
  uint32_t* drawn;          // By draw: index into the row's top tokens.
  uint32_t* picked = nullptr;  // By row: the drawn token, or else the most probable one; 0 if there is none. Null: not wanted.
};

// Largest topK that the device computes.
constexpr int MAX_TOP_K = 2048;
// Largest vocabulary: a token id occupies 19 bits of the sort keys.
constexpr int MAX_VOCABULARY = 1 << 19;
// The drawn place of a row that has no token to draw. Either its allowed logits are all NaN or -Infinity, at least one of them NaN (then its first
// log-probability is NaN), or its change bans all tokens.
constexpr uint32_t NOTHING_DRAWN = 0xffffffff;

// Changes the logits of rows that have changes. A logit takes one rounded addition, and one rounded subtraction if its token was picked.
void launchChange(float* logits, const HeadRow* rows, const HeadChange* changes, const uint32_t* words, const uint32_t* picked, int count, int vocabulary,
                  cudaStream_t stream);

// logits[i] *= scale; then, if `cap` is not 0, cap × tanh(logits[i] / cap).
void launchCap(float* logits, float scale, float cap, int count, int vocabulary, cudaStream_t stream);

// Bytes of workspace for launchTop with up to `maxRows` rows. The memory must be 256-byte aligned; its contents may change between launches.
size_t headWorkspaceBytes(int maxRows, int vocabulary);

// logits: rows × vocabulary. The kernels read the rows' requests from device memory. No topK may exceed `maxTopK`, which selects the kernels: 1
// selects the cheapest, and up to 256 the next cheaper. A NaN logit counts as -Infinity. If a row has NaN logits and no logit above -Infinity, the
// launch reports NOTHING_DRAWN and a first log-probability of NaN. A row's results do not depend on the other rows.
void launchTop(const HeadResults& results, const float* logits, const HeadRow* rows, const uint32_t* allowed, const Draw* draws, int count, int vocabulary,
               int maxTopK, void* workspace, cudaStream_t stream);

// For each row: log-probabilities of the listed tokens (tokens[first[r] .. first[r + 1])), and the entropy of the whole distribution in nats. A token
// id past the vocabulary gets -Infinity; a row without a number (see launchTop) gets NaN throughout.
void launchScore(float* logProbabilities, float* entropies, const float* logits, const uint32_t* tokens, const int* first, int count, int vocabulary,
                 cudaStream_t stream);

}  // namespace pie
