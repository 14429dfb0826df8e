#include "../../device/launch.h"
#include "head-rows.h"

namespace pie {
namespace {

constexpr int CHANGE_THREADS = 256;

// One block per row. The tokens of a row's list are distinct, so no two threads write one logit.
__global__ __launch_bounds__(CHANGE_THREADS) void changeLogits(float* logits, const HeadRow* rows, const HeadChange* changes, const uint32_t* words,
                                                               const uint32_t* picked, int vocabulary) {
  __shared__ int isChosen;
  letNextBegin();
  waitForEarlier();
  const HeadRow wanted = rows[blockIdx.x];
  if (wanted.topK == 0 || wanted.change < 0) return;
  const HeadChange change = changes[wanted.change];
  float* const mine = logits + static_cast<size_t>(blockIdx.x) * vocabulary;
  const uint32_t* const tokens = words + change.firstWord;
  const float* const values = reinterpret_cast<const float*>(tokens + change.count);
  const uint32_t last = change.picked < 0 ? NOTHING_DRAWN : picked[change.picked];
  if (threadIdx.x == 0) isChosen = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < change.count; i += CHANGE_THREADS) {
    const uint32_t token = tokens[i] & ~CHOSEN_TOKEN;
    mine[token] += values[i];
    if (token == last && (tokens[i] & CHOSEN_TOKEN)) isChosen = 1;
  }
  __syncthreads();
  if (threadIdx.x == 0 && last < static_cast<uint32_t>(vocabulary)) mine[last] -= isChosen ? change.frequency : change.frequency + change.presence;
}

__global__ __launch_bounds__(CHANGE_THREADS) void capLogits(float* logits, float scale, float cap, int vocabulary) {
  letNextBegin();
  waitForEarlier();
  const int token = blockIdx.y * CHANGE_THREADS + threadIdx.x;
  if (token >= vocabulary) return;
  float* const logit = logits + static_cast<size_t>(blockIdx.x) * vocabulary + token;
  const float scaled = *logit * scale;
  *logit = cap > 0 ? cap * tanhf(scaled / cap) : scaled;
}

}  // namespace

void launchCap(float* logits, float scale, float cap, int count, int vocabulary, cudaStream_t stream) {
  if (count > 0)
    LAUNCH_CHAINED(capLogits, dim3(count, (vocabulary + CHANGE_THREADS - 1) / CHANGE_THREADS), CHANGE_THREADS, 0, stream, logits, scale, cap, vocabulary);
}

void launchChange(float* logits, const HeadRow* rows, const HeadChange* changes, const uint32_t* words, const uint32_t* picked, int count, int vocabulary,
                  cudaStream_t stream) {
  if (count > 0) LAUNCH_CHAINED(changeLogits, static_cast<unsigned>(count), CHANGE_THREADS, 0, stream, logits, rows, changes, words, picked, vocabulary);
}

}  // namespace pie
