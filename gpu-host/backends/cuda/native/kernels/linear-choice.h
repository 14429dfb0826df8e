// Which kernel computes a product, and how it is laid over the device. Pure: the arguments alone decide.
#pragma once
#include <cstddef>
#include "linear.h"

namespace pie {

// Inputs of one stage of the tensor-core kernel: 128 bytes of bf16, all banks once.
constexpr int LINEAR_DEPTH = 64;

// One size of the tensor-core kernel. A block computes tiles of `rows × outputs`; its warps stand `warpsAcross` by the outputs, `warpsDown` by the rows.
struct LinearTile {
  int rows;
  int outputs;
  int warpsDown;
  int warpsAcross;
  int stages;               // Pieces of LINEAR_DEPTH inputs in shared memory.
  int blocksPerProcessor;
  __host__ __device__ constexpr int threads() const { return 32 * warpsDown * warpsAcross; }
  // Of x and W; weights of 4 bits bring the scales of two groups.
  __host__ __device__ constexpr int stageBytes(int weightBits) const {
    return (rows * 16 + outputs * weightBits) * LINEAR_DEPTH / 8 + (weightBits == 4 ? outputs * 4 : 0);
  }
};

// The first three are for few rows, where reading W is what costs: much of it is under way at once. They split W over the inputs alike, so that a row's
// result does not depend on which of them runs. Warps of the last two take 64 × 64 values, which is what shared memory can feed.
constexpr LinearTile LINEAR_TILES[] = {
    {16, 128, 1, 8, 6, 2}, {32, 128, 1, 8, 5, 2}, {64, 128, 2, 4, 4, 2}, {128, 128, 2, 2, 3, 2}, {128, 256, 2, 4, 4, 1},
};
constexpr int LINEAR_TILE_COUNT = sizeof(LINEAR_TILES) / sizeof(LINEAR_TILES[0]);

// Most rows of a vector product, of a skinny one, and before cuBLASLt is asked.
constexpr int LINEAR_VECTOR_ROWS = 4;
constexpr int LINEAR_SKINNY_ROWS = 32;
constexpr int LINEAR_OWN_ROWS = 128;
// Eighths of the outputs of a block of the skinny kernel: 128 blocks have 2,048, 3,072, 4,096, 5,120 or 6,144 outputs.
constexpr int LINEAR_SKINNY_COLUMNS[] = {2, 3, 4, 5, 6};
// Whether a warp's loads fit its registers: with weights of 4 bits come four times their bytes of each row of x.
constexpr bool linearSkinnyFits(int weightBits, int rows, int columns) { return weightBits > 4 || rows <= 16 || columns <= 3; }

// How tiles are laid over blocks. The first `splitTiles` are cut into `blocks` equal runs over their inputs (Stream-K: Osama et al., PPoPP '23), the rest
// are dealt out whole, block by block.
struct LinearSchedule {
  int tile;       // Index into LINEAR_TILES.
  int rowTiles;
  int tiles;
  int depth;      // Stages of one tile.
  int blocks;
  int splitTiles;
};

// What a block has of one tile: stages [begin, end) of its inputs.
struct LinearPiece {
  int tile, begin, end;
};

__host__ __device__ inline int linearRunBegin(const LinearSchedule& schedule, int block) {
  return schedule.splitTiles * schedule.depth * block / schedule.blocks;
}

// Which block has a stage of the split tiles, counted through all of them.
__host__ __device__ inline int linearOwner(const LinearSchedule& schedule, int stage) {
  const unsigned stages = schedule.splitTiles * schedule.depth;
  return static_cast<int>((static_cast<unsigned>(stage + 1) * schedule.blocks - 1) / stages);
}

// A block's pieces in order: its run of the split tiles, then every `blocks`-th whole tile. Past the last, `tile` is at least `schedule.tiles`. The kernel
// works it out anew for each piece, as registers are scarce there.
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
  bool aligned;   // As the fast kernels want it.
  bool narrow;    // bf16 activations.
  int weightBits;
  int group;      // Inputs that share a scale of two bytes; 0: there are none.
  bool cublas;    // There is one.
  int multiprocessors;
  size_t workspaceBytes;
};

struct LinearChoice {
  LinearKernel kernel;
  int splits;               // Vector.
  int columns;              // Skinny.
  LinearSchedule schedule;  // Tiles.
};

LinearChoice chooseLinear(const LinearProblem& problem, const LinearTuning& tuning);
bool linearSupports(LinearKernel kernel, const LinearProblem& problem);

// The cheapest way to lay one tile size over the device. `blocks` > 0 fixes their number.
LinearSchedule scheduleTiles(const LinearProblem& problem, int tile, int blocks);
// Predicted microseconds: what the choice compares.
double linearCost(const LinearProblem& problem, const LinearSchedule& schedule);
double skinnyCost(const LinearProblem& problem, int columns);
double vectorCost(const LinearProblem& problem);

// The workspace holds counters of split tiles, then two partial tiles for each block.
constexpr int LINEAR_COUNTERS = 2048;
// Past them and cuBLASLt's own result, what it asks for on this chip.
constexpr size_t CUBLAS_WORKSPACE_BYTES = size_t{32} << 20;
size_t linearPartialBytes(const LinearSchedule& schedule);

}  // namespace pie
