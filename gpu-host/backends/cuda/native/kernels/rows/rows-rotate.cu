// Rotary position embedding (Su et al., 2021) of queries and keys, fused with their norms and the KV write.
#include <type_traits>
#include "../../device/launch.h"
#include "kv-rows.h"
#include "rows.h"
#include "../vectors.h"

namespace pie {
namespace {

constexpr int TABLE_THREADS = 128;

// A row of blocks for each rotation.
__global__ __launch_bounds__(TABLE_THREADS) void rotationTable(float2* rotation, const int* positions, Rotations rotations, int rows, int half) {
  letNextBegin();
  waitForEarlier();
  const int i = blockIdx.x * TABLE_THREADS + threadIdx.x;
  if (i >= rows * half) return;
  const size_t pair = static_cast<size_t>(blockIdx.y) * half + i % half;
  const double scale = rotations.scales ? rotations.scales[pair] : 1;
  double sine, cosine;
  sincos(positions[i / half] * rotations.frequencies[pair], &sine, &cosine);
  rotation[static_cast<size_t>(blockIdx.y) * rows * half + i] = make_float2(static_cast<float>(cosine * scale), static_cast<float>(sine * scale));
}

template <typename T, typename K>
struct RotateArguments {
  T* queries;
  KvLayer<K> layer;
  const T* qkv;
  const float2* rotation;
  const int* slots;
  const T* queryNorm;
  const T* keyNorm;
  int heads;
  int kvHeads;
  int headDim;
  float epsilon;
  float normOffset;
};

// One head of one row: source, destination and norm.
template <typename T>
struct Head {
  const T* from;
  T* to;  // Null if the destination is a slot of another type.
  const T* norm;
  bool rotated;
};

// Head `index` of a row's projection, in the row's slot. A slot holds the keys of all heads, then the values, in the order of the projection.
template <typename T, typename K>
__device__ __forceinline__ K* slotOf(const RotateArguments<T, K>& a, int row, int index) {
  return a.layer.base + static_cast<size_t>(a.slots[row]) * a.layer.slotWidth + static_cast<size_t>(index - a.heads) * a.headDim;
}

// All lanes of a head call this function with the head's largest magnitude; `first` is true for one of the lanes. Stores the head's scale and returns
// its reciprocal.
template <typename T>
__device__ __forceinline__ float storeScale(const RotateArguments<T, float8>& a, int row, int index, float most, bool first) {
  const int head = (index - a.heads) % a.kvHeads, isValue = (index - a.heads) / a.kvHeads;
  const Float8Scale scale = float8Scale(most);
  if (first) scalesOf(a.layer, a.slots[row], head)[isValue] = halfOf(scale.scale);
  return scale.perScale;
}

__device__ __forceinline__ float largestOf(float most, const Eight& eight) {
#pragma unroll
  for (int j = 0; j < EIGHT; j++) most = fmaxf(most, fabsf(eight.values[j]));
  return most;
}
__device__ __forceinline__ void storeEight(float8* to, const Eight& eight, float perScale) {
  const float* v = eight.values;
  const auto pair = [&](int j) { return float8Pair(v[j] * perScale, v[j + 1] * perScale); };
  *reinterpret_cast<uint2*>(to) = make_uint2(pair(0) | pair(2) << 16, pair(4) | pair(6) << 16);
}

template <typename T, typename K>
__device__ __forceinline__ Head<T> headOf(const RotateArguments<T, K>& a, int row, int index) {
  const int count = a.heads + 2 * a.kvHeads;
  const T* from = a.qkv + (static_cast<size_t>(row) * count + index) * a.headDim;
  if (index < a.heads) return {from, a.queries + (static_cast<size_t>(row) * a.heads + index) * a.headDim, a.queryNorm, true};
  T* to = nullptr;
  if constexpr (std::is_same_v<T, K>) to = slotOf(a, row, index);
  const bool isKey = index < a.heads + a.kvHeads;
  return {from, to, isKey ? a.keyNorm : nullptr, isKey};
}

constexpr int ROTATE_THREADS = 128;

// `lanes` threads per head, each with eight values of the first half and eight of the second: lanes = headDim / 16, a power of two up to 32.
template <typename T, typename K>
__global__ __launch_bounds__(ROTATE_THREADS) void rotateEights(RotateArguments<T, K> a, int lanes) {
  letNextBegin();
  waitForEarlier();
  constexpr bool ALIKE = std::is_same_v<T, K>;
  const int row = blockIdx.x;
  const int index = blockIdx.y * (ROTATE_THREADS / lanes) + threadIdx.x / lanes;
  const int offset = threadIdx.x % lanes * EIGHT;
  const int half = a.headDim / 2;
  // Lanes past the last head stay active for the shuffles.
  const bool present = index < a.heads + 2 * a.kvHeads;
  Head<T> head = {};
  Eight first = {}, second = {};
  float2 turns[EIGHT] = {};
  if (present) {
    head = headOf(a, row, index);
    first = loadEight(head.from + offset);
    second = loadEight(head.from + half + offset);
    if (head.rotated) {
      const float4* table = reinterpret_cast<const float4*>(a.rotation + static_cast<size_t>(row) * half + offset);
#pragma unroll
      for (int j = 0; j < EIGHT / 2; j++) {
        const float4 two = table[j];
        turns[2 * j] = make_float2(two.x, two.y);
        turns[2 * j + 1] = make_float2(two.z, two.w);
      }
    }
  }
  if (a.queryNorm || a.keyNorm) {
    float squares = 0;
#pragma unroll
    for (int j = 0; j < EIGHT; j++) squares += first.values[j] * first.values[j] + second.values[j] * second.values[j];
    for (int distance = lanes / 2; distance > 0; distance /= 2) squares += __shfl_xor_sync(0xffffffffu, squares, distance);
    if (head.norm) {
      const float scale = rsqrtf(squares / a.headDim + a.epsilon);
      const Eight firstNorm = loadEight(head.norm + offset), secondNorm = loadEight(head.norm + half + offset);
#pragma unroll
      for (int j = 0; j < EIGHT; j++) {
        first.values[j] *= scale * (firstNorm.values[j] + a.normOffset);
        second.values[j] *= scale * (secondNorm.values[j] + a.normOffset);
      }
    }
  }
  if (ALIKE && !present) return;
  if (head.rotated) {
#pragma unroll
    for (int j = 0; j < EIGHT; j++) {
      const float x = first.values[j], y = second.values[j];
      first.values[j] = x * turns[j].x - y * turns[j].y;
      second.values[j] = y * turns[j].x + x * turns[j].y;
    }
  }
  if constexpr (!ALIKE) {
    float most = largestOf(largestOf(0, first), second);
    for (int distance = lanes / 2; distance > 0; distance /= 2) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, distance));
    if (!present) return;
    if (head.to == nullptr) {
      const float perScale = storeScale(a, row, index, most, offset == 0);
      K* to = slotOf(a, row, index);
      storeEight(to + offset, first, perScale);
      storeEight(to + half + offset, second, perScale);
      return;
    }
  }
  storeEight(head.to + offset, first);
  storeEight(head.to + half + offset, second);
}

// Any even headDim: one warp per head.
template <typename T, typename K>
__global__ __launch_bounds__(ROTATE_THREADS) void rotatePlain(RotateArguments<T, K> a) {
  letNextBegin();
  waitForEarlier();
  const int row = blockIdx.x;
  const int index = blockIdx.y * (ROTATE_THREADS / 32) + threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const int half = a.headDim / 2;
  if (index >= a.heads + 2 * a.kvHeads) return;
  const Head<T> head = headOf(a, row, index);
  float scale = 1;
  if (head.norm) {
    float squares = 0;
    for (int i = lane; i < a.headDim; i += 32) squares += widen(head.from[i]) * widen(head.from[i]);
    scale = rsqrtf(warpSum(squares) / a.headDim + a.epsilon);
  }
  // Rotates values i and i + half.
  const auto turned = [&](int i) {
    float x = widen(head.from[i]), y = widen(head.from[i + half]);
    if (head.norm) {
      x *= scale * (widen(head.norm[i]) + a.normOffset);
      y *= scale * (widen(head.norm[i + half]) + a.normOffset);
    }
    const float2 turn = head.rotated ? a.rotation[static_cast<size_t>(row) * half + i] : make_float2(1, 0);
    return head.rotated ? make_float2(x * turn.x - y * turn.y, y * turn.x + x * turn.y) : make_float2(x, y);
  };
  if constexpr (!std::is_same_v<T, K>) {
    if (head.to == nullptr) {
      float most = 0;
      for (int i = lane; i < half; i += 32) {
        const float2 two = turned(i);
        most = fmaxf(most, fmaxf(fabsf(two.x), fabsf(two.y)));
      }
      const float perScale = storeScale(a, row, index, warpMax(most), lane == 0);
      K* to = slotOf(a, row, index);
      for (int i = lane; i < half; i += 32) {
        const float2 two = turned(i);
        to[i].code = float8Of(two.x * perScale);
        to[i + half].code = float8Of(two.y * perScale);
      }
      return;
    }
  }
  for (int i = lane; i < half; i += 32) {
    const float2 two = turned(i);
    storeRounded(head.to + i, two.x);
    storeRounded(head.to + i + half, two.y);
  }
}

}  // namespace

void launchRotation(float2* rotation, const int* positions, const Rotations& rotations, int rows, int headDim, cudaStream_t stream) {
  const int half = headDim / 2;
  if (rows * half == 0) return;
  const dim3 grid(divideUp(rows * half, TABLE_THREADS), rotations.count);
  LAUNCH_CHAINED(rotationTable, grid, TABLE_THREADS, 0, stream, rotation, positions, rotations, rows, half);
}

template <typename T, typename K>
void launchRotateAndStore(T* queries, KvLayer<K> layer, const T* qkv, const float2* rotation, const int* slots, const T* queryNorm, const T* keyNorm, int rows,
                          const ModelShape& shape, cudaStream_t stream) {
  if (rows == 0) return;
  const RotateArguments<T, K> a = {queries, layer,       qkv,           rotation,      slots,           queryNorm,
                                   keyNorm, shape.heads, shape.kvHeads, shape.headDim, shape.rmsEpsilon, shape.normOffset};
  const int count = shape.heads + 2 * shape.kvHeads;
  const int lanes = shape.headDim / (2 * EIGHT);
  const bool eights = shape.headDim % (2 * EIGHT) == 0 && lanes <= 32 && (lanes & (lanes - 1)) == 0 && layer.slotWidth % EIGHT == 0 &&
                      areAligned(queries, qkv, queryNorm, keyNorm) && areAligned(layer.base) && areAligned(rotation);
  if (eights)
    LAUNCH_CHAINED((rotateEights<T, K>), dim3(rows, divideUp(count, ROTATE_THREADS / lanes)), ROTATE_THREADS, 0, stream, a, lanes);
  else
    LAUNCH_CHAINED((rotatePlain<T, K>), dim3(rows, divideUp(count, ROTATE_THREADS / 32)), ROTATE_THREADS, 0, stream, a);
}

#define ROWS_OF(T, K)                                                                                                                        \
  template void launchRotateAndStore<T, K>(T*, KvLayer<K>, const T*, const float2*, const int*, const T*, const T*, int, const ModelShape&, \
                                           cudaStream_t);
ROWS_OF(bf16, bf16)
ROWS_OF(bf16, float8)
ROWS_OF(float, float)

}  // namespace pie
