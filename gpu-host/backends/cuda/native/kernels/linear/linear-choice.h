// Chooses the kernel of a product and its layout over the device. Pure functions of their arguments.
#pragma once
#include <cstddef>
#include "../../device/capability.h"
#include "linear.h"

namespace pie {

// Inputs per stage of the tensor-core kernel: 128 bytes of bf16, one pass over all banks of shared memory.
constexpr int LINEAR_DEPTH = 64;

// One tile size of the tensor-core kernel. A block computes tiles of `rows` × `outputs`; `warpsDown` warps share the rows, `warpsAcross` warps the
// outputs.
struct LinearTile {
  int rows;
  int outputs;
  int warpsDown;
  int warpsAcross;
  int stages;               // Stages of LINEAR_DEPTH inputs in shared memory.
  int blocksPerProcessor;
  __host__ __device__ constexpr int threads() const { return 32 * warpsDown * warpsAcross; }
  // Bytes of x and W; weights of 4 bits add the scales of two groups.
  __host__ __device__ constexpr int stageBytes(int weightBits) const {
    return (rows * 16 + outputs * weightBits) * LINEAR_DEPTH / 8 + (weightBits == 4 ? outputs * 4 : 0);
  }
};

// A tile with up to `mostStages` stages, as far as shared memory holds them, and with up to `mostBlocks` blocks per multiprocessor.
constexpr LinearTile linearTile(int rows, int outputs, int warpsDown, int warpsAcross, int mostStages, int mostBlocks) {
  LinearTile tile{rows, outputs, warpsDown, warpsAcross, mostStages, 1};
  while (tile.stages > 2 && tile.stages * tile.stageBytes(16) > SHARED_BYTES) tile.stages--;
  // Two blocks share a multiprocessor only if each keeps all stages, or all but two.
  for (int stages = tile.stages; mostBlocks > 1 && stages >= mostStages - 2 && stages > 2; stages--) {
    if (blocksWithin(stages * tile.stageBytes(16), mostBlocks) < mostBlocks) continue;
    tile.stages = stages, tile.blocksPerProcessor = mostBlocks;
    break;
  }
  return tile;
}
// The first three tiles are for few rows, where reading W dominates; their many stages keep many loads in flight. They split W over the inputs the
// same way, so that a row's result does not depend on which of them runs. A warp of the last two tiles computes 64 × 64 values, which is what
// shared-memory bandwidth can feed.
constexpr LinearTile LINEAR_TILES[] = {
    linearTile(16, 128, 1, 8, 6, 2),  linearTile(32, 128, 1, 8, 5, 2),  linearTile(64, 128, 2, 4, 4, 2),
    linearTile(128, 128, 2, 2, 3, 2), linearTile(128, 256, 2, 4, 4, 1),
};
constexpr int LINEAR_TILE_COUNT = sizeof(LINEAR_TILES) / sizeof(LINEAR_TILES[0]);

// Largest row counts of the vector kernel, of the skinny kernel, and of products for which this project's kernels are preferred to cuBLASLt. On an
// H100 these kernels take 1.03 to 1.36 times cuBLASLt's time for 64 rows and 1.03 to 1.77 times for 128.
constexpr int LINEAR_VECTOR_ROWS = 4;
constexpr int LINEAR_SKINNY_ROWS = 32;
constexpr int LINEAR_OWN_ROWS = 32;
// Columns of 8 outputs per block of the skinny kernel: 128 blocks together have 2,048, 3,072, 4,096, 5,120 or 6,144 outputs.
constexpr int LINEAR_SKINNY_COLUMNS[] = {2, 3, 4, 5, 6};
constexpr int LINEAR_SKINNY_WARPS = 16;  // Per block of the skinny kernel.
// Row stride of a warp's sums, in floats: the lanes of one store hit different banks.
__host__ __device__ constexpr int linearSkinnyLine(int outputs) { return outputs % 16 == 8 ? outputs : outputs + 8; }
// Bytes of the sums of all warps in shared memory.
constexpr int linearSkinnyBytes(int rows, int columns) {
  return LINEAR_SKINNY_WARPS * (rows <= 8 ? 8 : rows <= 16 ? 16 : 32) * linearSkinnyLine(8 * columns) * static_cast<int>(sizeof(float));
}
// True if a warp's loads fit its registers and the sums fit shared memory. The registers are the limit with weights of 4 bits, because a row of x
// takes four times the bytes of a line of W.
constexpr bool linearSkinnyFits(int weightBits, int rows, int columns) {
  return (weightBits > 4 || rows <= 16 || columns <= 3) && linearSkinnyBytes(rows, columns) <= SHARED_BYTES;
}

// How tiles are distributed over blocks. The first `splitTiles` tiles are divided into `blocks` equal runs over their inputs (Stream-K: Osama et al.,
// PPoPP '23); the remaining tiles are assigned whole, round-robin.
struct LinearSchedule {
  int tile;       // Index into LINEAR_TILES.
  int rowTiles;
  int tiles;
  int depth;      // Stages per tile.
  int blocks;
  int splitTiles;
  bool alone;     // There is at most one block per multiprocessor, and two blocks may not share a multiprocessor.
};

// A block's part of one tile: stages [begin, end) of its inputs.
struct LinearPiece {
  int tile, begin, end;
};

__host__ __device__ inline int linearRunBegin(const LinearSchedule& schedule, int block) {
  return schedule.splitTiles * schedule.depth * block / schedule.blocks;
}

// The block that owns a stage of the split tiles; stages are numbered through all split tiles.
__host__ __device__ inline int linearOwner(const LinearSchedule& schedule, int stage) {
  const unsigned stages = schedule.splitTiles * schedule.depth;
  return static_cast<int>((static_cast<unsigned>(stage + 1) * schedule.blocks - 1) / stages);
}

// A block's pieces in order: its run of the split tiles, then every `blocks`-th whole tile. After the last piece, `tile` is at least
// `schedule.tiles`. The kernel recomputes each piece because registers are scarce.
__host__ __device__ inline LinearPiece linearPiece(const LinearSchedule& schedule, int block, int index) {
  const int depth = schedule.depth, from = linearRunBegin(schedule, block), to = linearRunBegin(schedule, block + 1);
  const int first = from / depth, tile = first + index;
  if (tile * depth < to) return {tile, index == 0 ? from - first * depth : 0, depth < to - tile * depth ? depth : to - tile * depth};
  const int ofRun = to > from ? (to - 1) / depth - first + 1 : 0;
  return {schedule.splitTiles + block + (index - ofRun) * schedule.blocks, 0, depth};
}

struct LinearProblem {
  int rows;
  int outputs;
  int inputs;
  bool aligned;   // Aligned as the fast kernels require.
  bool narrow;    // bf16 activations.
  int weightBits;
  int group;      // Inputs that share one 2-byte scale; 0: no group scales.
  bool cublas;    // cuBLASLt is available.
  int multiprocessors;
  double memoryRate;  // Bytes per second.
  size_t workspaceBytes;
};

struct LinearChoice {
  LinearKernel kernel;
  int splits;               // For Vector.
  int columns;              // For Skinny.
  LinearSchedule schedule;  // For Tiles.
};

LinearChoice chooseLinear(const LinearProblem& problem, const LinearTuning& tuning);
bool linearSupports(LinearKernel kernel, const LinearProblem& problem);

// The cheapest layout of one tile size over the device. `blocks` > 0 fixes the number of blocks.
LinearSchedule scheduleTiles(const LinearProblem& problem, int tile, int blocks);
// Predicted microseconds, which chooseLinear compares.
double linearCost(const LinearProblem& problem, const LinearSchedule& schedule);
double skinnyCost(const LinearProblem& problem, int columns);

// The workspace holds one counter per split tile, then two partial tiles per block.
constexpr int LINEAR_COUNTERS = 2048;
// Workspace for cuBLASLt itself, behind the counters and the intermediate result; cuBLASLt's recommendation for this chip.
constexpr size_t CUBLAS_WORKSPACE_BYTES = size_t{32} << 20;
size_t linearPartialBytes(const LinearSchedule& schedule);

}  // namespace pie
