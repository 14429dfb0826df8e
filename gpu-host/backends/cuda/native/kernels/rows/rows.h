// Kernels that work row by row: embedding, normalisation, rotation with the KV write.
#pragma once
#include "../types.h"

namespace pie {

// Token values that are not token ids: EMBED_GIVEN (the input is an embed), or pickedToken(i) (token i of those picked on the device).
constexpr int EMBED_GIVEN = -1;
__host__ __device__ constexpr int pickedToken(int which) { return EMBED_GIVEN - 1 - which; }

// Inputs of a step, by row.
struct EmbedInputs {
  const int* tokens;
  const uint32_t* picked;  // The picked tokens. This and the following pointers may be null if no row uses them.
  const float* embeds;
  const int* embedRows;
  float scale = 1;  // Of the tokens' embeddings.
};

// Slots that a step adds to a slot table: words [from, from + count) of `block` go to words [to, to + count) of `tables`. A list of more than
// TABLE_WRITE_SLOTS slots comes in pieces, so that several blocks copy it.
struct alignas(16) TableWrite {
  int from, to, count;
};
constexpr int TABLE_WRITE_SLOTS = 1024;
struct TableWrites {
  const int* counts = nullptr;  // Number of writes, and the word of `block` at which they begin. Null: there are none.
  const int* block = nullptr;
  int* tables = nullptr;
};

// residual[r] = scale × table[token], or the given embed. Applies the table writes, too, because one more launch would lengthen every decode step.
template <typename T>
void launchEmbed(float* residual, const T* table, const EmbedInputs& inputs, const TableWrites& writes, int rows, int hidden, cudaStream_t stream);

// out[r] = norm(residual[r]) * weight (RMSNorm: Zhang and Sennrich, 2019). With `delta`, first residual[r] += delta[r]. If `out` is null, only the
// sum is computed.
template <typename T>
void launchAddNorm(T* out, float* residual, const T* delta, const T* weight, int rows, int hidden, float epsilon, cudaStream_t stream);

// out[i] = norm(residual[pick[i]] + delta[pick[i]]) * weight for the picked rows, as float `states` and as `narrow` of T (the head's input); either
// may be null, and so may delta. Does not modify the residual.
template <typename T>
void launchPickNorm(float* states, T* narrow, const float* residual, const T* delta, const int* pick, const T* weight, int count, int hidden, float epsilon,
                    cudaStream_t stream);

// out, residual, delta: rows of a block's output on its way into the residual stream, for models that norm or scale it there. With d = delta[r],
// normalised and multiplied by `outputNorm` if that is not null: residual[r] += scale · d; then the sum, normalised and multiplied by `norm` if that
// is not null, goes to `states` and to `out`, of which either may be null. With `pick`, output i is that of row pick[i], and the residual stays.
// The stored weights of both norms are less by `offset`. `delta` may be null.
template <typename T>
struct BlockNorm {
  float* residual;
  const T* delta;
  const T* outputNorm;
  float scale;
  const T* norm;
  float offset;
  float* states;
  T* out;
  const int* pick;
};
template <typename T>
void launchBlockNorm(const BlockNorm<T>& norm, int rows, int hidden, float epsilon, cudaStream_t stream);

// Normalises the queries of each row of the joint projection as a whole, and so its keys, in place (OLMo 2: OLMo Team, 2025).
template <typename T>
void launchRowNorms(T* qkv, const T* queryNorm, const T* keyNorm, int rows, const ModelShape& shape, cudaStream_t stream);

// out[r][i] = gelu(gate) · up of rows whose gate and up alternate: rows × 2 · intermediate. GELU with tanh (Hendrycks and Gimpel, 2016).
template <typename T>
void launchGeGlu(T* out, const T* gateUp, int rows, int intermediate, cudaStream_t stream);

// Rotations that layers use: `count` times headDim / 2 frequencies, in radians per position. `scales` multiplies both sides of each pair; null: 1.
struct Rotations {
  const double* frequencies = nullptr;
  const double* scales = nullptr;
  int count = 1;
};

// rotation[n][r][i] = (cos, sin) of positions[r] × frequencies[n][i], times scales[n][i], with angles in double. Computed once per step for all
// layers.
void launchRotation(float2* rotation, const int* positions, const Rotations& rotations, int rows, int headDim, cudaStream_t stream);

// Takes rows of the joint projection: normalises each query and key head (if the weights are not null, plus normOffset), rotates them by halves (element i with i +
// headDim / 2, as Hugging Face's Llama does), writes queries to `queries` (rows × heads × headDim) and keys and values to their slots, rounded once.
// K is T, or float8 with T = bf16.
template <typename T, typename K>
void launchRotateAndStore(T* queries, KvLayer<K> layer, const T* qkv, const float2* rotation, const int* slots, const T* queryNorm, const T* keyNorm, int rows,
                          const ModelShape& shape, cudaStream_t stream);

// Copies keys and values of all layers between slots, pairwise, as if all sources were read first. With `shifts` (may be null), each key is rotated
// by its pair's shift in positions; the result is computed in double from the stored value and rounded again. Destinations must be distinct.
// `scratch` holds `pairs × layers` slots. `rotationOf`: by layer, which of the rotations of `frequencies` it has; null: all have the first.
template <typename K>
void launchCopySlots(K* pool, K* scratch, const int* sources, const int* destinations, const int* shifts, const double* frequencies, int pairs, size_t slots,
                     const ModelShape& shape, cudaStream_t stream, const int* rotationOf = nullptr);

// narrow[i] = wide[i], rounded to nearest even.
template <typename T>
void launchNarrow(T* narrow, const float* wide, size_t count, cudaStream_t stream);

}  // namespace pie
