// Copies of KV slots. All sources are copied to scratch memory before any destination is written, so that chains and swaps behave as if all sources
// were read first.
#include <type_traits>
#include "kv-rows.h"
#include "rows.h"
#include "../vectors.h"

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

// One block per pair and layer. Rotations compose: rotating the stored key of position p by `shift` gives the key of position p + shift. It is
// computed in double from the stored value and rounded once.
template <typename T>
__global__ __launch_bounds__(COPY_THREADS) void gatherSlots(T* scratch, const T* pool, const int* sources, const int* shifts, const double* frequencies,
                                                            const int* rotationOf, size_t slots, int layers, int slotWidth, int headDim, bool wide) {
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
  if (rotationOf) frequencies += rotationOf[layer] * half;
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

// The float8 version. A rotated key head has a new maximum, so its scale is recomputed; values, their scales and padding are copied unchanged.
__global__ __launch_bounds__(COPY_THREADS) void gatherFloat8(KvLayer<float8> scratch, KvLayer<float8> pool, const int* sources, const int* shifts,
                                                             const double* frequencies, const int* rotationOf, size_t slots, int layers, int kvHeads,
                                                             int headDim) {
  DYNAMIC_SHARED(double2, turns);
  const int pair = blockIdx.x, layer = blockIdx.y, to = pair * layers + layer;
  pool.base += layer * slots * pool.slotWidth;
  copyValues(scratch.base + static_cast<size_t>(to) * pool.slotWidth, pool.base + static_cast<size_t>(sources[pair]) * pool.slotWidth, pool.slotWidth, true);
  const int shift = shifts ? shifts[pair] : 0;
  if (shift == 0) return;
  const int half = headDim / 2, lane = threadIdx.x % 32;
  if (rotationOf) frequencies += rotationOf[layer] * half;
  for (int i = threadIdx.x; i < half; i += COPY_THREADS) sincos(shift * frequencies[i], &turns[i].y, &turns[i].x);
  __syncthreads();
  for (int head = threadIdx.x / 32; head < kvHeads; head += COPY_THREADS / 32) {
    const KvRow<float8> keys = keysOf(pool, sources[pair], head, headDim);
    const auto turned = [&](int i) {
      const double x = keys[i], y = keys[i + half];
      return make_float2(static_cast<float>(x * turns[i].x - y * turns[i].y), static_cast<float>(y * turns[i].x + x * turns[i].y));
    };
    float most = 0;
    for (int i = lane; i < half; i += 32) {
      const float2 two = turned(i);
      most = fmaxf(most, fmaxf(fabsf(two.x), fabsf(two.y)));
    }
    const Float8Scale scale = float8Scale(warpMax(most));
    if (lane == 0) scalesOf(scratch, to, head)[0] = halfOf(scale.scale);
    float8* codes = scratch.base + static_cast<size_t>(to) * pool.slotWidth + head * headDim;
    for (int i = lane; i < half; i += 32) {
      const float2 two = turned(i);
      codes[i].code = float8Of(two.x * scale.perScale);
      codes[i + half].code = float8Of(two.y * scale.perScale);
    }
  }
}

template <typename T>
__global__ __launch_bounds__(COPY_THREADS) void scatterSlots(T* pool, const T* scratch, const int* destinations, size_t slots, int layers, int slotWidth,
                                                             bool wide) {
  const int pair = blockIdx.x, layer = blockIdx.y;
  copyValues(pool + (layer * slots + destinations[pair]) * slotWidth, scratch + (static_cast<size_t>(pair) * layers + layer) * slotWidth, slotWidth, wide);
}

}  // namespace

template <typename K>
void launchCopySlots(K* pool, K* scratch, const int* sources, const int* destinations, const int* shifts, const double* frequencies, int pairs, size_t slots,
                     const ModelShape& shape, cudaStream_t stream, const int* rotationOf) {
  if (pairs == 0) return;
  const KvLayer<K> layer = kvLayer(pool, shape);
  const bool wide = layer.slotWidth % (16 / sizeof(K)) == 0 && areAligned(pool, scratch);
  const dim3 grid(pairs, shape.layers);
  const size_t turnsBytes = sizeof(double2) * (shape.headDim / 2);
  if constexpr (std::is_same_v<K, float8>)
    LAUNCH(gatherFloat8, grid, COPY_THREADS, turnsBytes, stream, kvLayer(scratch, shape), layer, sources, shifts, frequencies, rotationOf, slots,
           shape.layers, shape.kvHeads, shape.headDim);
  else
    LAUNCH(gatherSlots<K>, grid, COPY_THREADS, turnsBytes, stream, scratch, pool, sources, shifts, frequencies, rotationOf, slots, shape.layers,
           layer.slotWidth, shape.headDim, wide);
  LAUNCH(scatterSlots<K>, grid, COPY_THREADS, 0, stream, pool, scratch, destinations, slots, shape.layers, layer.slotWidth, wide);
}

#define ROWS_OF(K)                                                                                                                             \
  template void launchCopySlots<K>(K*, K*, const int*, const int*, const int*, const double*, int, size_t, const ModelShape&, cudaStream_t, \
                                   const int*);
ROWS_OF(bf16)
ROWS_OF(float8)
ROWS_OF(float)

}  // namespace pie
