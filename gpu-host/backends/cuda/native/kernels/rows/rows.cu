// Embedding, which also applies the table writes, and rounding.
#include "rows.h"
#include "../../device/launch.h"
#include "../vectors.h"

namespace pie {
namespace {

constexpr int EMBED_THREADS = 256;
constexpr int NARROW_THREADS = 256;

__device__ __forceinline__ void writeTables(const TableWrites& writes) {
  if (writes.counts == nullptr) return;
  const int count = writes.counts[0];
  const TableWrite* all = reinterpret_cast<const TableWrite*>(writes.block + writes.counts[1]);
  for (int i = static_cast<int>(blockIdx.y * gridDim.x + blockIdx.x); i < count; i += static_cast<int>(gridDim.x * gridDim.y)) {
    const TableWrite write = all[i];
    for (int k = static_cast<int>(threadIdx.x); k < write.count; k += static_cast<int>(blockDim.x)) writes.tables[write.to + k] = writes.block[write.from + k];
  }
}

__device__ __forceinline__ Eight scaled(Eight values, float scale) {
#pragma unroll
  for (int j = 0; j < EIGHT; j++) values.values[j] *= scale;
  return values;
}

template <typename T, bool EIGHTS>
__global__ __launch_bounds__(EMBED_THREADS) void embed(float* residual, const T* table, EmbedInputs inputs, TableWrites writes, int hidden) {
  letNextBegin();
  waitForEarlier();
  const int row = blockIdx.x;
  int token = inputs.tokens[row];
  if (token < EMBED_GIVEN) token = static_cast<int>(inputs.picked[pickedToken(token)]);
  float* to = residual + static_cast<size_t>(row) * hidden;
  const T* entry = token < 0 ? nullptr : table + static_cast<size_t>(token) * hidden;
  const float* given = token < 0 ? inputs.embeds + static_cast<size_t>(inputs.embedRows[row]) * hidden : nullptr;
  if constexpr (EIGHTS) {
    for (int i = (blockIdx.y * blockDim.x + threadIdx.x) * EIGHT; i < hidden; i += gridDim.y * blockDim.x * EIGHT)
      storeEight(to + i, entry ? scaled(loadEight(entry + i), inputs.scale) : loadEight(given + i));
  } else {
    for (int i = blockIdx.y * blockDim.x + threadIdx.x; i < hidden; i += gridDim.y * blockDim.x) to[i] = entry ? widen(entry[i]) * inputs.scale : given[i];
  }
  writeTables(writes);
}

// The first threads convert the remaining values after the last full vector.
template <typename T>
__global__ __launch_bounds__(NARROW_THREADS) void narrowEights(T* narrow, const float* wide, size_t count) {
  const size_t thread = static_cast<size_t>(blockIdx.x) * NARROW_THREADS + threadIdx.x;
  const size_t threads = static_cast<size_t>(gridDim.x) * NARROW_THREADS;
  const size_t eights = count / EIGHT;
  for (size_t i = thread; i < eights; i += threads) storeEight(narrow + i * EIGHT, loadEight(wide + i * EIGHT));
  if (thread < count % EIGHT) storeRounded(narrow + eights * EIGHT + thread, wide[eights * EIGHT + thread]);
}

template <typename T>
__global__ __launch_bounds__(NARROW_THREADS) void narrowPlain(T* narrow, const float* wide, size_t count) {
  const size_t threads = static_cast<size_t>(gridDim.x) * NARROW_THREADS;
  for (size_t i = static_cast<size_t>(blockIdx.x) * NARROW_THREADS + threadIdx.x; i < count; i += threads) storeRounded(narrow + i, wide[i]);
}

}  // namespace

template <typename T>
void launchEmbed(float* residual, const T* table, const EmbedInputs& inputs, const TableWrites& writes, int rows, int hidden, cudaStream_t stream) {
  if (rows == 0) return;
  const bool eights = hidden % EIGHT == 0 && areAligned(residual, table, inputs.embeds);
  const int units = eights ? hidden / EIGHT : hidden;
  const int threads = min(EMBED_THREADS, divideUp(units, 32) * 32);
  // Few rows are spread over more blocks to fill the device.
  const dim3 grid(rows, rows < 64 ? divideUp(units, threads) : 1);
  if (eights)
    LAUNCH_CHAINED((embed<T, true>), grid, threads, 0, stream, residual, table, inputs, writes, hidden);
  else
    LAUNCH_CHAINED((embed<T, false>), grid, threads, 0, stream, residual, table, inputs, writes, hidden);
}

template <typename T>
void launchNarrow(T* narrow, const float* wide, size_t count, cudaStream_t stream) {
  if (count == 0) return;
  constexpr size_t MAX_BLOCKS = 2048;
  const bool eights = areAligned(narrow, wide);
  const size_t wanted = ((eights ? count / EIGHT : count) + NARROW_THREADS - 1) / NARROW_THREADS;
  const unsigned blocks = static_cast<unsigned>(wanted == 0 ? 1 : wanted < MAX_BLOCKS ? wanted : MAX_BLOCKS);
  if (eights)
    LAUNCH(narrowEights<T>, blocks, NARROW_THREADS, 0, stream, narrow, wide, count);
  else
    LAUNCH(narrowPlain<T>, blocks, NARROW_THREADS, 0, stream, narrow, wide, count);
}

#define ROWS_OF(T)                                                                                                  \
  template void launchEmbed<T>(float*, const T*, const EmbedInputs&, const TableWrites&, int, int, cudaStream_t); \
  template void launchNarrow<T>(T*, const float*, size_t, cudaStream_t);
ROWS_OF(bf16)
ROWS_OF(float)

}  // namespace pie
