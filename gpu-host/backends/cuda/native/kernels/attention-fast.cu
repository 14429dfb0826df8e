// The tensor-core attention kernel, for heads of 64 and 128.
#include "attention-fast.h"
#include "attention-tile.h"

namespace pie::attention {
namespace {

constexpr int BLOCKS_64 = 2, BLOCKS_128 = 2;

struct Pointers {
  bf16* out;
  const bf16* queries;
  KvLayer<bf16> layer;
};

// Brings tiles of keys and values from their slots to shared memory, each warp the rows of its quarter. The place for narrower storage: only this
// stage knows how the pool holds numbers.
template <typename V>
struct TileLoader {
  static constexpr int ROWS = TILE / WARPS;
  int tile;  // The next one.
  int slot;  // Of lane % ROWS of this warp's keys of it; -1 past the end.

  __device__ __forceinline__ void seek(const AttentionItem& item, const Arguments& a, int from) {
    tile = visibleTile(item, a.tables.tileWords, from);
    const int key = tile * TILE + static_cast<int>(threadIdx.x / 32 * ROWS + threadIdx.x % ROWS);
    slot = tile < item.endTile && key < item.keys ? __ldg(a.tables.slots + item.firstKey + key) : -1;
  }

  __device__ __forceinline__ void load(bf16* stage, const KvLayer<bf16>& layer, const AttentionItem& item) const {
    constexpr int PIECES = V::HEAD_DIM / 8, ROWS_AT_ONCE = 32 / PIECES;
    const int warp = static_cast<int>(threadIdx.x / 32), row = static_cast<int>(threadIdx.x % 32) / PIECES, piece = static_cast<int>(threadIdx.x) % PIECES;
    const bf16* head = layer.base + item.kvHead * V::HEAD_DIM + piece * 8;
#pragma unroll
    for (int i = 0; i < ROWS; i += ROWS_AT_ONCE) {
      const int from = __shfl_sync(ALL_LANES, slot, i + row);
      const int to = swizzled<V::HEAD_DIM>(warp * ROWS + i + row, piece);
      const bf16* key = head + static_cast<size_t>(max(from, 0)) * layer.slotWidth;
      // A missing key is zero: its score is hidden, but its value is multiplied.
      copyAsync16(stage + to, key, from >= 0);
      copyAsync16(stage + TILE * V::HEAD_DIM + to, key + layer.slotWidth / 2, from >= 0);
    }
  }
};

// Starts bringing queries to shared memory; leaves each row's input there (registers are scarce where many rows are masked).
template <typename V>
__device__ __forceinline__ void loadQueries(bf16* shared, const bf16* queries, const AttentionItem& item, const Arguments& a) {
  constexpr int PIECES = V::HEAD_DIM / 8;
  for (int i = static_cast<int>(threadIdx.x); i < V::ROWS * PIECES; i += THREADS) {
    const int row = i / PIECES, piece = i % PIECES;
    const bf16* from = queries + headRow(item, a, min(row, item.rows - 1)) * V::HEAD_DIM + piece * 8;
    copyAsync16(shared + swizzled<V::HEAD_DIM>(row, piece), from, row < item.rows);
  }
  // A padding row sees what the last one does.
  for (int row = static_cast<int>(threadIdx.x); row < V::ROWS; row += THREADS)
    reinterpret_cast<int*>(shared + V::SHARED)[row] = (item.firstRow + min(row, item.rows - 1)) / a.group;
}

// The item's rows over its tiles, for this warp.
template <typename V, typename Claim>
__device__ __forceinline__ void attendTiles(WarpRows<V>& rows, bf16* shared, const Pointers& p, const AttentionItem& item, const Arguments& a, Claim claim) {
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  const int warpRow = V::FEW ? 0 : warp * V::WARP_ROWS, warpKey = V::FEW ? warp * V::KEYS : 0;
  bf16* const stages = shared + V::ROWS * V::HEAD_DIM;
  TileLoader<V> loader;
  loader.seek(item, a, item.firstTile);
  const int first = loader.tile;
  if (first >= item.endTile) return claim();
  loadQueries<V>(shared, p.queries, item, a);
#pragma unroll
  for (int s = 0; s < V::STAGES - 1; s++) {
    if (loader.tile < item.endTile) {
      loader.load(stages + s * V::STAGE, p.layer, item);
      loader.seek(item, a, loader.tile + 1);
    }
    commitCopies();
  }
  claim();
  const int* inputs = reinterpret_cast<const int*>(shared + V::SHARED) + warpRow;
  int stage = 0;
  for (int tile = first; tile < item.endTile; tile = visibleTile(item, a.tables.tileWords, tile + 1)) {
    waitForCopies<V::STAGES - 2>();
    // Everybody's rows are there, and the stage before this one has been read by all. With few rows a warp reads none but its own.
    if (V::FEW && tile != first) __syncwarp();
    else __syncthreads();
    if (loader.tile < item.endTile) {
      loader.load(stages + (stage == 0 ? V::STAGES - 1 : stage - 1) * V::STAGE, p.layer, item);
      loader.seek(item, a, loader.tile + 1);
    }
    commitCopies();
    const int firstKey = tile * TILE + warpKey;
    // The first key that no row of the warp sees, and the first that some row does not.
    const int allHidden = item.maskWord >= 0 ? item.keys : item.context + inputs[V::WARP_ROWS - 1] + 1;
    if (firstKey < allHidden && warpRow < item.rows) {
      const bf16* keys = stages + stage * V::STAGE + warpKey * V::HEAD_DIM;
      Scores<V> scores;
      multiplyKeys<V>(scores, shared + warpRow * V::HEAD_DIM, keys, lane);
      if (item.maskWord >= 0 || firstKey + V::KEYS > item.context + inputs[0] + 1) hideKeys<V>(scores, item, a, inputs, firstKey, lane);
      takeMaxima<V>(scores, rows, a.scale);
      multiplyValues<V>(rows, scores, keys + TILE * V::HEAD_DIM, lane);
    }
    stage = stage + 1 == V::STAGES ? 0 : stage + 1;
  }
  waitForCopies<0>();
  joinTotals<V>(rows);
}

__device__ __forceinline__ uint2 packBf16x4(const Floats<4>& v, float factor) {
  return make_uint2(packed(v.at[0] * factor, v.at[1] * factor), packed(v.at[2] * factor, v.at[3] * factor));
}

// Few rows: warps have different keys of the same rows, which meet in shared memory.
template <typename V>
__device__ __forceinline__ void writeFew(const WarpRows<V>& rows, bf16* shared, const Pointers& p, const AttentionItem& item, const Arguments& a) {
  // Rows that differ by 8 values begin 8 banks apart.
  constexpr int STRIDE = V::HEAD_DIM + 8;
  static_assert(WARPS * V::ROWS * (STRIDE + 2) * sizeof(float) <= V::SHARED * sizeof(bf16), "fits where queries and stages were");
  float* const sums = reinterpret_cast<float*>(shared);
  float2* const statistics = reinterpret_cast<float2*>(sums + WARPS * V::ROWS * STRIDE);
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  __syncthreads();
#pragma unroll
  for (int band = 0; band < V::BANDS; band++) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int row = 16 * band + 8 * half + lane / 4;
      if (row >= item.rows) continue;
#pragma unroll
      for (int n = 0; n < V::HEAD_DIM / 8; n++)
        *reinterpret_cast<float2*>(sums + (warp * V::ROWS + row) * STRIDE + 8 * n + lane % 4 * 2) =
            make_float2(rows.sum[band][n][2 * half], rows.sum[band][n][2 * half + 1]);
      if (lane % 4 == 0) statistics[warp * V::ROWS + row] = make_float2(rows.largest[band][half] * a.scale, rows.total[band][half]);
    }
  }
  __syncthreads();
  constexpr int PIECES = V::HEAD_DIM / 4;
  for (int i = static_cast<int>(threadIdx.x); i < item.rows * PIECES; i += THREADS) {
    const int row = i / PIECES, piece = i % PIECES;
    Floats<4> sum = {};
    float largest = -INFINITY, total = 0;
#pragma unroll
    for (int w = 0; w < WARPS; w++) {
      const float2 one = statistics[w * V::ROWS + row];
      mergeInto(sum, largest, total, *reinterpret_cast<const Floats<4>*>(sums + (w * V::ROWS + row) * STRIDE + 4 * piece), one.x, one.y);
    }
    if (item.parts > 1) {
      float* partial = partialRow(item, a, item.part, row);
      reinterpret_cast<Floats<4>*>(partial)[piece] = sum;
      if (piece == 0) *reinterpret_cast<float2*>(partial + V::HEAD_DIM) = make_float2(largest, total);
    } else {
      const size_t target = headRow(item, a, row);
      *reinterpret_cast<uint2*>(p.out + target * V::HEAD_DIM + 4 * piece) = packBf16x4(sum, total > 0 ? 1 / total : 0);
      if (piece == 0 && a.tables.statistics != nullptr) a.tables.statistics[target] = make_float2(largest, total);
    }
  }
}

// Many rows: each warp has its own.
template <typename V>
__device__ __forceinline__ void writeMany(const WarpRows<V>& rows, bf16* shared, const Pointers& p, const AttentionItem& item, const Arguments& a) {
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32), warpRow = warp * V::WARP_ROWS;
  // The warp's queries are used up: outputs take their place, and leave it in pieces of 16 bytes.
  bf16* const mine = shared + warpRow * V::HEAD_DIM;
#pragma unroll
  for (int band = 0; band < V::BANDS; band++) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int row = 16 * band + 8 * half + lane / 4;
      const float largest = rows.largest[band][half] * a.scale, total = rows.total[band][half], share = total > 0 ? 1 / total : 0;
      if (warpRow + row >= item.rows) continue;
      if (item.parts > 1) {
        float* partial = partialRow(item, a, item.part, warpRow + row);
#pragma unroll
        for (int n = 0; n < V::HEAD_DIM / 8; n++)
          *reinterpret_cast<float2*>(partial + 8 * n + lane % 4 * 2) = make_float2(rows.sum[band][n][2 * half], rows.sum[band][n][2 * half + 1]);
        if (lane % 4 == 0) *reinterpret_cast<float2*>(partial + V::HEAD_DIM) = make_float2(largest, total);
      } else {
#pragma unroll
        for (int n = 0; n < V::HEAD_DIM / 8; n++)
          *reinterpret_cast<uint32_t*>(mine + swizzled<V::HEAD_DIM>(row, n) + lane % 4 * 2) =
              packed(rows.sum[band][n][2 * half] * share, rows.sum[band][n][2 * half + 1] * share);
        if (lane % 4 == 0 && a.tables.statistics != nullptr) a.tables.statistics[headRow(item, a, warpRow + row)] = make_float2(largest, total);
      }
    }
  }
  if (item.parts > 1) return;
  __syncwarp();
  constexpr int PIECES = V::HEAD_DIM / 8;
  for (int i = lane; i < V::WARP_ROWS * PIECES; i += 32) {
    const int row = i / PIECES, piece = i % PIECES;
    if (warpRow + row >= item.rows) continue;
    reinterpret_cast<uint4*>(p.out + headRow(item, a, warpRow + row) * V::HEAD_DIM)[piece] =
        *reinterpret_cast<const uint4*>(mine + swizzled<V::HEAD_DIM>(row, piece));
  }
}

template <typename V, typename Claim>
__device__ __forceinline__ void attend(bf16* shared, const Pointers& p, const AttentionItem& item, const Arguments& a, Claim claim) {
  WarpRows<V> rows;
  clear<V>(rows);
  attendTiles<V>(rows, shared, p, item, a, claim);
  if constexpr (V::FEW) writeFew<V>(rows, shared, p, item, a);
  else writeMany<V>(rows, shared, p, item, a);
}

template <int HEAD_DIM>
constexpr size_t sharedBytes() {
  const size_t few = Variant<HEAD_DIM, 2, true>::BYTES, many = Variant<HEAD_DIM, 2, false>::BYTES;
  return few > many ? few : many;
}

template <int HEAD_DIM, int BLOCKS>
__global__ void __launch_bounds__(THREADS, BLOCKS) fastAttention(Pointers p, Arguments a) {
  DYNAMIC_SHARED(bf16, shared);
  takeItems(a.tables, [&](const AttentionItem& item, auto claim) {
    if (item.rows <= 16) attend<Variant<HEAD_DIM, 1, true>>(shared, p, item, a, claim);
    else if (item.rows <= 32) attend<Variant<HEAD_DIM, 2, true>>(shared, p, item, a, claim);
    else if (item.rows <= 64) attend<Variant<HEAD_DIM, 1, false>>(shared, p, item, a, claim);
    else attend<Variant<HEAD_DIM, 2, false>>(shared, p, item, a, claim);
    if (item.parts > 1) finishPart<bf16, 4>(p.out, item, a);
  });
}

template <int HEAD_DIM, int BLOCKS>
void launch(const Pointers& p, const Arguments& a, int blocks, cudaStream_t stream) {
  constexpr size_t BYTES = sharedBytes<HEAD_DIM>();
  // More than 48 KB are asked for; what fails here shows as the launch's error.
  (void)cudaFuncSetAttribute(fastAttention<HEAD_DIM, BLOCKS>, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(BYTES));
  LAUNCH((fastAttention<HEAD_DIM, BLOCKS>), blocks, THREADS, BYTES, stream, p, a);
}

}  // namespace

int fastBlocks(int headDim) { return headDim == 64 ? BLOCKS_64 : BLOCKS_128; }

void launchFast(bf16* out, const bf16* queries, KvLayer<bf16> layer, const Arguments& arguments, int blocks, cudaStream_t stream) {
  const Pointers pointers = {out, queries, layer};
  if (arguments.headDim == 64) launch<64, BLOCKS_64>(pointers, arguments, blocks, stream);
  else launch<128, BLOCKS_128>(pointers, arguments, blocks, stream);
}

}  // namespace pie::attention
