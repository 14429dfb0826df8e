// Copies of KV slots. All sources go to scratch memory before any destination is written, so that chains and swaps come out as if read first.
#include "rows.h"
#include "vectors.h"

namespace pie {
namespace {

constexpr int COPY_THREADS = 128;

template <typename T>
__device__ __forceinline__ void copyValues(T* to, const T* from, int count, bool wide) {
  constexpr int PER_WORD = 16 / sizeof(T);
  if (wide) {
    const int words = count / PER_WORD;
    for (int i = threadIdx.x; i < words; i += COPY_THREADS) reinterpret_cast<uint4*>(to)[i] = reinterpret_cast<const uint4*>(from)[i];
  } else {
    for (int i = threadIdx.x; i < count; i += COPY_THREADS) to[i] = from[i];
  }
}

__device__ __forceinline__ void storeOnce(float* to, double value) { *to = static_cast<float>(value); }
__device__ __forceinline__ void storeOnce(bf16* to, double value) { *to = __double2bfloat16(value); }

// A block per pair and layer. Rotations add up: a key of position p becomes one of p + shift. In double from the stored value, rounded once.
template <typename T>
__global__ __launch_bounds__(COPY_THREADS) void gatherSlots(T* scratch, const T* pool, const int* sources, const int* shifts, const double* frequencies,
                                                            size_t slots, int layers, int slotWidth, int headDim, bool wide) {
  DYNAMIC_SHARED(double2, turns);
  const int pair = blockIdx.x, layer = blockIdx.y;
  const T* from = pool + (layer * slots + sources[pair]) * slotWidth;
  T* to = scratch + (static_cast<size_t>(pair) * layers + layer) * slotWidth;
  const int shift = shifts ? shifts[pair] : 0;
  if (shift == 0) {
    copyValues(to, from, slotWidth, wide);
    return;
  }
  const int half = headDim / 2, keys = slotWidth / 2;
  for (int i = threadIdx.x; i < half; i += COPY_THREADS) sincos(shift * frequencies[i], &turns[i].y, &turns[i].x);
  __syncthreads();
  for (int k = threadIdx.x; k < keys / 2; k += COPY_THREADS) {
    const int i = k % half, first = k / half * headDim + i;
    const double x = widen(from[first]), y = widen(from[first + half]);
    storeOnce(to + first, x * turns[i].x - y * turns[i].y);
    storeOnce(to + first + half, y * turns[i].x + x * turns[i].y);
  }
  copyValues(to + keys, from + keys, keys, wide && keys % (16 / sizeof(T)) == 0);
}

template <typename T>
__global__ __launch_bounds__(COPY_THREADS) void scatterSlots(T* pool, const T* scratch, const int* destinations, size_t slots, int layers, int slotWidth,
                                                             bool wide) {
  const int pair = blockIdx.x, layer = blockIdx.y;
  copyValues(pool + (layer * slots + destinations[pair]) * slotWidth, scratch + (static_cast<size_t>(pair) * layers + layer) * slotWidth, slotWidth, wide);
}

}  // namespace

template <typename T>
void launchCopySlots(T* pool, T* scratch, const int* sources, const int* destinations, const int* shifts, const double* frequencies, int pairs, size_t slots,
                     const ModelShape& shape, cudaStream_t stream) {
  if (pairs == 0) return;
  const bool wide = shape.slotWidth() % (16 / sizeof(T)) == 0 && areAligned(pool, scratch);
  const dim3 grid(pairs, shape.layers);
  LAUNCH(gatherSlots<T>, grid, COPY_THREADS, sizeof(double2) * (shape.headDim / 2), stream, scratch, pool, sources, shifts, frequencies, slots, shape.layers,
         shape.slotWidth(), shape.headDim, wide);
  LAUNCH(scatterSlots<T>, grid, COPY_THREADS, 0, stream, pool, scratch, destinations, slots, shape.layers, shape.slotWidth(), wide);
}

#define ROWS_OF(T)                                                                                                                             \
  template void launchCopySlots<T>(T*, T*, const int*, const int*, const int*, const double*, int, size_t, const ModelShape&, cudaStream_t);
ROWS_OF(bf16)
ROWS_OF(float)

}  // namespace pie
