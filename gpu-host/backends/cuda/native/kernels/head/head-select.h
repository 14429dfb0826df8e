// Selects the k largest of many keys in one block: radix selection of the k-th key, then a bitonic sort of the few that remain.
#pragma once
#include "head-rows.h"

namespace pie {

constexpr int DIGIT_BITS = 11;
constexpr int BINS = 1 << DIGIT_BITS;

// Shared memory of a selection.
struct Selection {
  uint32_t bins[BINS];
  uint64_t least[32];
  uint64_t most[32];
  uint32_t counts[32];
  int digit;
  uint32_t above;   // Keys in the bins above `digit`.
  uint32_t inside;  // Keys in the bin `digit`.
};

// Finds the digit of the `needed`-th largest key among the keys counted in `bins`: the first bin, from the top down, at which the running count
// reaches `needed`.
template <int THREADS>
__device__ __forceinline__ void findDigit(Selection& s, uint32_t needed) {
  constexpr int PER_THREAD = BINS / THREADS;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int top = BINS - 1 - static_cast<int>(threadIdx.x) * PER_THREAD;
  uint32_t own = 0;
#pragma unroll
  for (int j = 0; j < PER_THREAD; j++) own += s.bins[top - j];
  uint32_t reached = own;
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const uint32_t before = __shfl_up_sync(0xffffffffu, reached, distance);
    if (lane >= distance) reached += before;
  }
  if (lane == 31) s.counts[warp] = reached;
  __syncthreads();
  uint32_t above = reached - own;
  for (int w = 0; w < warp; w++) above += s.counts[w];
  if (above < needed && needed <= above + own) {
    for (int j = 0; j < PER_THREAD; j++) {
      const uint32_t inside = s.bins[top - j];
      if (needed <= above + inside) {
        s.digit = top - j;
        s.above = above;
        s.inside = inside;
        break;
      }
      above += inside;
    }
  }
  __syncthreads();
}

// Returns a threshold that exactly `wanted` of the `count` keys reach, or 1 if at most `wanted` keys are nonzero. Nonzero keys must be distinct. All
// threads of the block call this function; `keyAt(i)` must return the same key on every call.
template <int THREADS, typename KeyAt>
__device__ __forceinline__ uint64_t selectThreshold(Selection& s, int count, uint32_t wanted, KeyAt keyAt) {
  // The digits start at the first bit in which the keys differ, so that keys spread over the bins.
  uint64_t least = ~uint64_t{0}, most = 0;
  uint32_t present = 0;
  for (int i = threadIdx.x; i < count; i += THREADS) {
    const uint64_t key = keyAt(i);
    if (key == 0) continue;
    least = min(least, key);
    most = max(most, key);
    present++;
  }
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    least = min(least, __shfl_xor_sync(0xffffffffu, least, distance));
    most = max(most, __shfl_xor_sync(0xffffffffu, most, distance));
  }
  present = __reduce_add_sync(0xffffffffu, present);
  __syncthreads();
  if (threadIdx.x % 32 == 0) {
    s.least[threadIdx.x / 32] = least;
    s.most[threadIdx.x / 32] = most;
    s.counts[threadIdx.x / 32] = present;
  }
  __syncthreads();
  present = 0;
  for (int w = 0; w < THREADS / 32; w++) {
    least = min(least, s.least[w]);
    most = max(most, s.most[w]);
    present += s.counts[w];
  }
  if (present <= wanted) return 1;

  int shift = 64 - __clzll(static_cast<long long>(least ^ most));
  uint64_t prefix = most >> shift;
  for (;;) {
    const int next = max(0, shift - DIGIT_BITS);
    __syncthreads();
    for (int i = threadIdx.x; i < BINS; i += THREADS) s.bins[i] = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < count; i += THREADS) {
      const uint64_t key = keyAt(i);
      if (key != 0 && key >> shift == prefix) atomicAdd(&s.bins[key >> next & ((1u << (shift - next)) - 1)], 1u);
    }
    __syncthreads();
    findDigit<THREADS>(s, wanted);
    wanted -= s.above;
    prefix = prefix << (shift - next) | static_cast<uint32_t>(s.digit);
    shift = next;
    if (s.inside == wanted || shift == 0) return prefix << shift;
  }
}

// Sorts keys[0 .. count) in descending order. `keys` must have room for the next power of two.
template <int THREADS>
__device__ __forceinline__ void sortDescending(uint64_t* keys, int count) {
  int size = 2;
  while (size < count) size *= 2;
  for (int i = count + threadIdx.x; i < size; i += THREADS) keys[i] = 0;
  __syncthreads();
  for (int run = 2; run <= size; run *= 2) {
    for (int stride = run / 2; stride > 0; stride /= 2) {
      for (int pair = threadIdx.x; pair < size / 2; pair += THREADS) {
        const int low = pair / stride * 2 * stride + pair % stride;
        const uint64_t a = keys[low], b = keys[low + stride];
        if ((a < b) == ((low & run) == 0)) {
          keys[low] = b;
          keys[low + stride] = a;
        }
      }
      // With a stride of 32 or less, the pairs of a warp lie within the same 64 keys. So a warp barrier suffices, unless this stride or the next one
      // is larger.
      if (stride > 32 || (stride == 1 && run >= 64))
        __syncthreads();
      else
        __syncwarp();
    }
  }
  __syncthreads();
}

}  // namespace pie
