// x · Wᵀ on tensor cores. A fixed number of blocks processes tiles of the result stage by stage (LINEAR_DEPTH inputs each); copies of the next stages
// are always in flight, also across tile boundaries. Tiles that are split over the inputs are combined in the workspace: the block that arrives last
// adds the parts in the order of the inputs, so that the result does not depend on timing.
#include "linear-tiles.h"
#include "../../device/copy.h"
#include "../../device/launch.h"
#include "../../device/mma.h"

namespace pie {
namespace {

constexpr int LINE = LINEAR_DEPTH * 2;     // Bytes of one row of x in a stage.
constexpr int SLICES = LINEAR_DEPTH / 16;  // mma steps per stage.

// Maps a copy index to a line of W.
//   Order of outputs: column j of a warp's n-tile i is output 2 · TILES_N · (j / 2) + 2 · i + j % 2 of the warp, so that a thread's sums adjoin.
//   Banks: the eight lines of W that form an 8 × 8 matrix therefore differ in bit 0 and in two bits starting at log2(2 · TILES_N). These bits select
//   the banks (with 8-bit weights, bit 0 alone selects the half of 128 bytes). They are the lowest three bits of `index`, in which all lines that a
//   thread copies agree, so that the thread's place within a line is fixed.
//   4-bit weights: 16 bytes hold the inputs of two slices. They are stored in the order of `index`, so that a matrix is 128 contiguous bytes. The
//   matrices of all lines for one half of a stage come first, then those for the other half.
template <int TILES_N>
__host__ __device__ constexpr int weightLineOf(int index) {
  constexpr int HIGH = TILES_N == 2 ? 2 : TILES_N == 4 ? 3 : 4;
  const int middle = (index >> 3) & ((1 << (HIGH - 1)) - 1), upper = index >> (HIGH + 2);
  return (index & 1) | middle << 1 | ((index >> 1) & 3) << HIGH | upper << (HIGH + 2);
}

template <typename W, int TILE>
__global__ void __launch_bounds__(LINEAR_TILES[TILE].threads(), LINEAR_TILES[TILE].blocksPerProcessor)
    tileProduct(LinearOutput<bf16> to, LinearLines<W> lines, const bf16* x, unsigned xStride, unsigned inputs, int weightRows, LinearSchedule schedule,
                float* workspace) {
  constexpr LinearTile SIZE = LINEAR_TILES[TILE];
  constexpr int BITS = WEIGHT_BITS<W>;
  constexpr int THREADS = SIZE.threads(), STAGES = SIZE.stages, STAGE_BYTES = SIZE.stageBytes(BITS);
  constexpr int WARP_ROWS = SIZE.rows / SIZE.warpsDown, WARP_OUTPUTS = SIZE.outputs / SIZE.warpsAcross;
  constexpr int TILES_M = WARP_ROWS / 16, TILES_N = WARP_OUTPUTS / 8;
  constexpr int CHUNKS = LINE / 16, WEIGHT_LINE = LINEAR_DEPTH * BITS / 8, WEIGHT_CHUNKS = WEIGHT_LINE / 16;
  constexpr int LINES = THREADS / CHUNKS, WEIGHT_LINES = THREADS / WEIGHT_CHUNKS;  // Lines that all threads copy at once.
  DYNAMIC_SHARED(unsigned char, shared);
  __shared__ unsigned arrivedBefore;

  const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
  const int warpRow = warp / SIZE.warpsAcross * WARP_ROWS, warpOutput = warp % SIZE.warpsAcross * WARP_OUTPUTS;

  // Copies: each thread has one column of 16 bytes in every LINES-th line; a stage is copied in as many parts as it has slices. Lines past the last
  // row or output keep stale data, whose results are never stored; inputs past the last one are zero-filled.
  constexpr int X_COPIES = (SIZE.rows + LINES - 1) / LINES, WEIGHT_COPIES = SIZE.outputs / WEIGHT_LINES;
  const int line = thread / CHUNKS, weightIndex = thread / WEIGHT_CHUNKS, weightLine = weightLineOf<TILES_N>(weightIndex);
  const int weightKey = BITS == 16 ? weightIndex & 7 : (weightIndex >> 1) & 3;
  const int xAt = line * LINE + (thread % CHUNKS ^ (line & 7)) * 16;
  constexpr int HALF_STAGE = SIZE.outputs * 16, SCALES = SIZE.rows * LINE + 2 * HALF_STAGE;  // For 4-bit weights.
  const int weightAt = SIZE.rows * LINE + (BITS == 4 ? thread % WEIGHT_CHUNKS * HALF_STAGE + weightIndex * 16
                                                     : weightLine * WEIGHT_LINE + (thread % WEIGHT_CHUNKS ^ weightKey) * 16);
  int loadsPiece = 0, loadsAt, loadsEnd;
  unsigned wanted;  // Copies that this thread makes. Bit i: copy i of W; bit 16 + i: copy i of x.
  const bf16* xFrom;
  const W* weightFrom;
  int scalesFrom;  // For 4-bit weights: the first output whose scale this thread copies.
  const auto aim = [&] {
    const LinearPiece piece = linearPiece(schedule, blockIdx.x, loadsPiece);
    loadsAt = piece.begin, loadsEnd = piece.end;
    wanted = 0;
    scalesFrom = weightRows;
    if (piece.tile >= schedule.tiles) return;
    const int row = piece.tile % schedule.rowTiles * SIZE.rows + line, output = piece.tile / schedule.rowTiles * SIZE.outputs + weightLine;
#pragma unroll
    for (int i = 0; i < WEIGHT_COPIES; i++) wanted |= output + weightLineOf<TILES_N>(i * WEIGHT_LINES) < weightRows ? 1u << i : 0;
#pragma unroll
    for (int i = 0; i < X_COPIES; i++) wanted |= row + i * LINES < to.rows && line + i * LINES < SIZE.rows ? 0x10000u << i : 0;
    xFrom = x + static_cast<size_t>(row) * xStride;
    weightFrom = weightsFrom(lines.values, static_cast<size_t>(output) * inputs);
    scalesFrom = piece.tile / schedule.rowTiles * SIZE.outputs + thread % (SIZE.outputs / 8) * 8;
  };
  aim();
  const auto copyPart = [&](int stage, int part) {
    unsigned char* const into = shared + stage * STAGE_BYTES;
    const unsigned xK = loadsAt * LINEAR_DEPTH + thread % CHUNKS * 8, weightK = loadsAt * LINEAR_DEPTH + thread % WEIGHT_CHUNKS * WEIGHTS_PER_LOAD<W>;
    const bool xInside = xK < inputs, weightInside = weightK < inputs;
    const bf16* const xs = xFrom + (xInside ? xK : 0);
    const W* const weights = weightsFrom(weightFrom, weightInside ? weightK : 0);
#pragma unroll
    for (int i = part * WEIGHT_COPIES / SLICES; i < (part + 1) * WEIGHT_COPIES / SLICES; i++) {
      const int down = weightLineOf<TILES_N>(i * WEIGHT_LINES);
      unsigned char* const at = into + weightAt + (BITS == 4 ? i * WEIGHT_LINES * 16 : down * WEIGHT_LINE);
      if (wanted & 1u << i) copyAsync16(at, weightsFrom(weights, static_cast<size_t>(inputs) * down), weightInside);
    }
    if constexpr (BITS == 4) {
      const int half = thread / (SIZE.outputs / 8);
      const unsigned k = loadsAt * LINEAR_DEPTH + half * 32;
      if (part == 0 && half < 2 && scalesFrom < weightRows)
        copyAsync16(into + SCALES + thread * 16, lines.scales + static_cast<size_t>(k < inputs ? k >> lines.shift : 0) * lines.stride + scalesFrom, k < inputs);
    }
#pragma unroll
    for (int i = part * X_COPIES / SLICES; i < (part + 1) * X_COPIES / SLICES; i++) {
      const int down = i * LINES;
      if (wanted & 0x10000u << i) copyAsync16(into + xAt + down * LINE, xs + static_cast<size_t>(xStride) * down, xInside);
    }
    if (part < SLICES - 1) return;
    commitCopies();
    if (++loadsAt == loadsEnd) loadsPiece++, aim();
  };

  // Fragments: offsets of this lane's line of each 8 × 8 matrix.
  const int matrix = lane / 8, within = lane % 8;
  const int xFragment = (warpRow + (matrix & 1) * 8 + within) * LINE + (((matrix >> 1) ^ within) << 4);
  // Lines of W are assigned so that this lane's sums are adjacent outputs; a matrix has half the inputs of a slice (bf16) or all of them (8 bits).
  const int weightWithin = warpOutput + 2 * TILES_N * (within >> 1) + (within & 1);
  const int weightFragment = SIZE.rows * LINE + (BITS == 16  ? (weightWithin + 2 * (matrix >> 1)) * WEIGHT_LINE + (((matrix & 1) ^ within) << 4)
                                                 : BITS == 8 ? (weightWithin + 2 * (matrix % TILES_N)) * WEIGHT_LINE + ((within >> 1) << 4)
                                                             : (warpOutput + matrix % TILES_N * 8 + within) * 16);
  constexpr int WORDS = BITS == 16 ? 2 : 1;  // Registers per n-tile and slice before widening; for 4 bits, per two slices.
  constexpr int SLICES_PER_WORD = BITS == 4 ? 2 : 1;
  uint32_t a[2][TILES_M][4], b[2][TILES_N][WORDS];
  const auto takeFragments = [&](int stage, int slice) {
    const int buffer = slice % 2, weightBuffer = slice / SLICES_PER_WORD % 2;
    const unsigned char* const from = shared + stage * STAGE_BYTES;
#pragma unroll
    for (int m = 0; m < TILES_M; m++) loadMatrices(a[buffer][m], from + ((xFragment ^ (slice << 5)) + m * 16 * LINE));
    constexpr int AT_ONCE = 4 / WORDS < TILES_N ? 4 / WORDS : TILES_N;
    if (slice % SLICES_PER_WORD != 0) return;
#pragma unroll
    for (int n = 0; n < TILES_N; n += AT_ONCE) {
      uint32_t loaded[AT_ONCE * WORDS];
      loadMatrices(loaded, from + (BITS == 4 ? weightFragment + slice / 2 * HALF_STAGE + n * 128
                                             : (weightFragment ^ (slice << (WORDS == 2 ? 5 : 4))) + n * 2 * WEIGHT_LINE));
#pragma unroll
      for (int i = 0; i < AT_ONCE * WORDS; i++) b[weightBuffer][n + i / WORDS][i % WORDS] = loaded[i];
    }
  };
  // Scales of this lane's column in each n-tile, two per register, for half a stage.
  uint32_t scales[TILES_N / 2];
  const auto takeScales = [&](int stage, int half) {
    if constexpr (BITS == 4) {
      const int column = lane / 4, output = warpOutput + 2 * TILES_N * (column >> 1);
      const uint32_t* const pairs = reinterpret_cast<const uint32_t*>(shared + stage * STAGE_BYTES + SCALES + (half * SIZE.outputs + output) * 2);
#pragma unroll
      for (int n = 0; n < TILES_N / 2; n++) scales[n] = __byte_perm(pairs[2 * n], pairs[2 * n + 1], column % 2 == 0 ? 0x5410 : 0x7632);
    }
  };

  float sums[TILES_M][TILES_N][4];
  const auto finish = [&](const LinearPiece& piece) {
    constexpr int VECTORS = TILES_M * TILES_N;
    if (piece.end - piece.begin < schedule.depth) {
      float4* const partials = reinterpret_cast<float4*>(workspace + LINEAR_COUNTERS) + thread;
      unsigned* const counter = reinterpret_cast<unsigned*>(workspace) + piece.tile;
      // A block has at most two partial tiles: the tile in which its run begins and the one in which it ends.
      float4* const mine = partials + static_cast<size_t>(blockIdx.x * 2 + (piece.begin > 0 ? 0 : 1)) * VECTORS * THREADS;
#pragma unroll
      for (int i = 0; i < VECTORS; i++) {
        const float(&s)[4] = sums[i / TILES_N][i % TILES_N];
        mine[i * THREADS] = make_float4(s[0], s[1], s[2], s[3]);
      }
      __threadfence();
      __syncthreads();
      if (thread == 0) arrivedBefore = atomicAdd(counter, 1u);
      __syncthreads();
      const int from = piece.tile * schedule.depth;
      const int first = linearOwner(schedule, from), last = linearOwner(schedule, from + schedule.depth - 1);
      const bool complete = arrivedBefore == static_cast<unsigned>(last - first);
      // No race on `arrivedBefore`: every iteration has a barrier between this read and the next write.
      if (!complete) return;
      __threadfence();
      if (thread == 0) *counter = 0;
#pragma unroll
      for (int i = 0; i < VECTORS; i++) {
        float(&s)[4] = sums[i / TILES_N][i % TILES_N];
        s[0] = s[1] = s[2] = s[3] = 0;
      }
      const auto add = [&](int i, const uint4& v) {
        float(&s)[4] = sums[i / TILES_N][i % TILES_N];
        s[0] += __uint_as_float(v.x), s[1] += __uint_as_float(v.y), s[2] += __uint_as_float(v.z), s[3] += __uint_as_float(v.w);
      };
      const auto partOf = [&](int block) { return partials + static_cast<size_t>(block * 2 + (block > first ? 0 : 1)) * VECTORS * THREADS; };
      // Small parts are loaded several at a time.
      constexpr int AT_ONCE = VECTORS < 8 ? 8 / VECTORS : 1;
      int block = first;
#pragma unroll 1
      for (; block + AT_ONCE <= last + 1; block += AT_ONCE) {
#pragma unroll
        for (int i = 0; i < AT_ONCE * VECTORS; i++) add(i % VECTORS, loadFresh16(partOf(block + i / VECTORS) + i % VECTORS * THREADS));
      }
#pragma unroll 1
      for (; AT_ONCE > 1 && block <= last; block++) {
#pragma unroll
        for (int i = 0; i < VECTORS; i++) add(i, loadFresh16(partOf(block) + i * THREADS));
      }
    }
    const int row = piece.tile % schedule.rowTiles * SIZE.rows + warpRow + lane / 4;
    const int output = piece.tile / schedule.rowTiles * SIZE.outputs + warpOutput + lane % 4 * 2 * TILES_N;
#pragma unroll
    for (int m = 0; m < TILES_M; m++) {
#pragma unroll
      for (int half = 0; half < 2; half++) {
        float run[2 * TILES_N];
#pragma unroll
        for (int i = 0; i < 2 * TILES_N; i++) run[i] = sums[m][i / 2][half * 2 + i % 2];
        finishWholeRun<BITS == 8>(to, row + m * 16 + half * 8, output, run);
      }
    }
  };

  // No kernel writes the weights, so those of the first stages are prefetched while the previous kernel still runs; one thread per line.
  if (thread % WEIGHT_CHUNKS == 0) {
#pragma unroll 1
    for (int at = loadsAt; at < min(loadsAt + STAGES - 1, loadsEnd); at++) {
#pragma unroll
      for (int i = 0; i < WEIGHT_COPIES; i++)
        if (wanted & 1u << i) prefetch(weightsFrom(weightFrom, static_cast<size_t>(inputs) * weightLineOf<TILES_N>(i * WEIGHT_LINES) + at * LINEAR_DEPTH));
    }
  }
  waitForEarlier();
#pragma unroll 1
  for (int s = 0; s < STAGES - 1; s++) {
#pragma unroll
    for (int part = 0; part < SLICES; part++) copyPart(s, part);
  }
  waitForCopies<STAGES - 2>();
  __syncthreads();
  int stage = 0;
  takeFragments(stage, 0);
  takeScales(stage, 0);
#pragma unroll 1
  for (int index = 0;; index++) {
    int left;
    {
      const LinearPiece piece = linearPiece(schedule, blockIdx.x, index);
      if (piece.tile >= schedule.tiles) break;
      left = piece.end - piece.begin;
    }
#pragma unroll
    for (int m = 0; m < TILES_M; m++) {
#pragma unroll
      for (int n = 0; n < TILES_N; n++) sums[m][n][0] = sums[m][n][1] = sums[m][n][2] = sums[m][n][3] = 0;
    }
#pragma unroll 1
    for (; left > 0; left--) {
      const int free = stage == 0 ? STAGES - 1 : stage - 1;
#pragma unroll
      for (int slice = 0; slice < SLICES; slice++) {
        copyPart(free, slice);
        if (slice == SLICES - 1) {
          // All fragments of this stage are in registers, so its buffer may be refilled; waitForCopies guarantees that the next stage has arrived.
          waitForCopies<STAGES - 2>();
          __syncthreads();
          stage = stage + 1 == STAGES ? 0 : stage + 1;
        }
        takeFragments(stage, (slice + 1) % SLICES);
#pragma unroll
        for (int n = 0; n < TILES_N; n++) {
          uint32_t operand[2];
          if constexpr (BITS == 16) {
            operand[0] = b[slice % 2][n][0], operand[1] = b[slice % 2][n][1];
          } else if constexpr (BITS == 8) {
            widenWord(operand, b[slice % 2][n][0], W{});
          } else {
            widenInt4(operand, b[slice / 2 % 2][n][0], slice % 2);
            scaleOperand<W>(operand, bf16Pair(__byte_perm(scales[n / 2], 0, n % 2 == 0 ? 0x1010 : 0x3232)));
          }
#pragma unroll
          for (int m = 0; m < TILES_M; m++) multiplyAdd(sums[m][n], a[slice % 2][m], operand);
        }
        if (slice % 2 == 1) takeScales(stage, (slice + 1) % SLICES / 2);
      }
    }
    if (linearPiece(schedule, blockIdx.x, index + 1).tile >= schedule.tiles) letNextBegin();
    finish(linearPiece(schedule, blockIdx.x, index));
  }
  waitForCopies<0>();
}

template <typename W, int TILE>
void launch(const LinearOutput<bf16>& to, const LinearLines<W>& lines, const bf16* x, size_t xStride, int inputs, int weightRows,
            const LinearSchedule& schedule, float* workspace, cudaStream_t stream) {
  constexpr LinearTile SIZE = LINEAR_TILES[TILE];
  constexpr int BYTES = SIZE.stages * SIZE.stageBytes(WEIGHT_BITS<W>);
  // A chained launch begins while other kernels occupy some multiprocessors. If there are enough multiprocessors for every block to have its own, two
  // blocks must not share a free one: requesting half of the shared memory prevents that.
  constexpr int ALONE_BYTES = BYTES > MULTIPROCESSOR_SHARED_BYTES / 2 ? BYTES : MULTIPROCESSOR_SHARED_BYTES / 2;
  static_assert(ALONE_BYTES <= SHARED_BYTES && blocksWithin(ALONE_BYTES, 2) == 1);
  // Set on every launch: the call is cheap and does not touch the stream.
  cudaFuncSetAttribute(tileProduct<W, TILE>, cudaFuncAttributeMaxDynamicSharedMemorySize, ALONE_BYTES);
  const int bytes = schedule.alone ? ALONE_BYTES : BYTES;
  LAUNCH_CHAINED((tileProduct<W, TILE>), schedule.blocks, SIZE.threads(), bytes, stream, to, lines, x, xStride, inputs, weightRows, schedule, workspace);
}

}  // namespace

template <typename W>
void launchLinearTiles(const LinearOutput<bf16>& to, const LinearLines<W>& lines, const bf16* x, size_t xStride, int inputs, int weightRows,
                       const LinearSchedule& schedule, float* workspace, cudaStream_t stream) {
  constexpr decltype(&launch<W, 0>) LAUNCHERS[] = {launch<W, 0>, launch<W, 1>, launch<W, 2>, launch<W, 3>, launch<W, 4>};
  static_assert(sizeof(LAUNCHERS) / sizeof(LAUNCHERS[0]) == LINEAR_TILE_COUNT, "one of each");
  LAUNCHERS[schedule.tile](to, lines, x, xStride, inputs, weightRows, schedule, workspace, stream);
}

#define TILES_OF(W)                                                                                                                            \
  template void launchLinearTiles(const LinearOutput<bf16>&, const LinearLines<W>&, const bf16*, size_t, int, int, const LinearSchedule&, float*, \
                                  cudaStream_t);
TILES_OF(bf16)
TILES_OF(int8_t)
TILES_OF(Float8)
TILES_OF(Int4)

}  // namespace pie
