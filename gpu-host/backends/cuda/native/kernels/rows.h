// Kernels that work row by row: embedding, normalisation, rotation with the KV write.
#pragma once
#include "types.h"

namespace pie {

// What the token of an input says besides a token: that an embed is given instead, or which of the tokens that were picked on the device it is.
constexpr int EMBED_GIVEN = -1;
__host__ __device__ constexpr int pickedToken(int which) { return EMBED_GIVEN - 1 - which; }

// Inputs of a step, by row.
struct EmbedInputs {
  const int* tokens;
  const uint32_t* picked;  // All of them tokens. May be null when none is taken, as may what follows.
  const float* embeds;
  const int* embedRows;
};

// residual[r] = table[token], or the embed where one is given.
template <typename T>
void launchEmbed(float* residual, const T* table, const EmbedInputs& inputs, int rows, int hidden, cudaStream_t stream);

// out[r] = norm(residual[r]) * weight. With `delta`, residual[r] += delta[r] before that (RMSNorm: Zhang and Sennrich, 2019).
// With `out` null only the sum is made.
template <typename T>
void launchAddNorm(T* out, float* residual, const T* delta, const T* weight, int rows, int hidden, float epsilon, cudaStream_t stream);

// out[i] = norm(residual[pick[i]] + delta[pick[i]]) * weight for the rows that are wanted; float states and T states (the head's input), either may be
// null; delta may be null. The residual is left alone.
template <typename T>
void launchPickNorm(float* states, T* narrow, const float* residual, const T* delta, const int* pick, const T* weight, int count, int hidden, float epsilon,
                    cudaStream_t stream);

// rotation[r][i] = (cos, sin) of positions[r] * frequencies[i], angles in double: once a step, for all layers.
void launchRotation(float2* rotation, const int* positions, const double* frequencies, int rows, int headDim, cudaStream_t stream);

// Takes rows of the joint projection: normalises each query and key head (when the weights are not null), rotates them by halves (element i with
// i + headDim / 2, as Hugging Face's Llama does), writes queries to `queries` (rows × heads × headDim) and keys and values to their slots, rounded once (K: T, or
// float8 beside bf16).
template <typename T, typename K>
void launchRotateAndStore(T* queries, KvLayer<K> layer, const T* qkv, const float2* rotation, const int* slots, const T* queryNorm, const T* keyNorm, int rows,
                          const ModelShape& shape, cudaStream_t stream);

// Copies keys and values of all layers between slots, pairwise, as if all sources were read first; with `shifts` (may be null) keys are rotated on by
// that many positions, computed in double from the stored value and rounded again. No two destinations are the same slot. `scratch` holds
// `pairs × layers` slots.
template <typename K>
void launchCopySlots(K* pool, K* scratch, const int* sources, const int* destinations, const int* shifts, const double* frequencies, int pairs, size_t slots,
                     const ModelShape& shape, cudaStream_t stream);

// narrow[i] = wide[i], rounded to nearest even.
template <typename T>
void launchNarrow(T* narrow, const float* wide, size_t count, cudaStream_t stream);

}  // namespace pie
