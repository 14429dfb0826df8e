#include "linear-choice.h"
#include <algorithm>
#include <iterator>
#include <limits>
#include "linear-widen.h"
#include "../vectors.h"

namespace pie {
namespace {

// Rates (bytes or operations per second) and latencies (seconds) of one Hopper card, fitted to the times of an H100 (`linear` of ../harness). With
// the layouts chosen by them, the products of one step take at most 1.02 times as long as with the fastest layouts for an 8B model in bf16, 1.03
// times in fp8 and int4 (8 to 32 rows), and 1.09 times for a 1B model in bf16.
constexpr double SKINNY_MEMORY_SHARE = 0.965;  // Of the device's memory rate.
constexpr double TILE_MEMORY_SHARE = 0.9, NARROW_TILE_MEMORY_SHARE = 0.8;
constexpr double CACHE_RATE = 5.6e12;         // L2 to all multiprocessors together.
constexpr double CACHE_RATE_OF_ONE = 6e10;    // L2 to one multiprocessor, with the loads in flight that these kernels have.
constexpr double NARROW_CACHE_RATE = 6.5e12;  // CACHE_RATE for the skinny kernel with narrow weights (8 or 4 bits).
constexpr double NARROW_RATE_OF_ONE = 5e10;   // CACHE_RATE_OF_ONE for the same: its blocks on one multiprocessor do not overlap.
constexpr double MATRIX_RATE = 6.0e14;        // mma.sync with warp tiles of 64 × 64.
constexpr double SMALL_TILE_RATE = 4.0e14;    // Smaller warp tiles, which shared memory limits.
constexpr double ISSUE_RATE = 2.9e13;         // Instructions of all lanes: 132 multiprocessors × 128 lanes × 1.75 GHz.
constexpr double ALONE_ISSUE_SHARE = 0.84;    // Share of ISSUE_RATE with narrow weights if a multiprocessor runs one block although two fit.
constexpr double MEMORY_LATENCY = 8e-7;
constexpr double SPLIT_LATENCY = 2e-6;        // Publishing partial sums, counting the blocks that did, reading the sums back.
constexpr double BLOCK_LATENCY = 5e-7;        // Reduction within a block.

// An H200's memory is 1.4 times as fast as an H100's. For bf16 it takes the rates below, fitted to the times of whole steps of 1B, 3B and 8B models
// with 4, 8, 16 and 32 rows, and of their products alone. With an H100's rates, steps with 4 and 8 rows took 1.08 (1B) to 1.3 times (8B) as long.
// Other cards with memory as fast or faster (GH200, B200) have not been measured and take the same rates.
constexpr double FAST_MEMORY = 3.6e12;               // Least memory rate for these values; deviceMemoryRate is 3.0e12 on an H100, 4.3e12 on an H200.
constexpr double FAST_CACHE_RATE_OF_ONE = 8e10;
constexpr double FAST_CACHE_RATE = 5e12;             // With more than 16 rows.
// The skinny kernel reads a W of more than FAST_WAVES_BYTES slowly, at FAST_WAVES_MEMORY_SHARE of the memory rate, if its blocks take several waves
// and it begins before the previous kernel has ended. The cause is not known.
constexpr double FAST_WAVES_BYTES = 8e7;
constexpr double FAST_WAVES_MEMORY_SHARE = 0.7;

constexpr int STREAMING_WARPS = 12;  // Warps per multiprocessor of the vector kernel that stream W concurrently.
constexpr int VECTOR_STEP = 256;     // bf16 inputs per step of such a warp. Each warp should have at least two steps.

// Instructions per lane and weight, counted in nvcc 13.0's output. At 3.0 TB/s there is time for 19 instructions per weight of 16 bits, 10 of 8 bits
// and 5 of 4 bits.
double skinnyInstructions(const LinearProblem& problem) { return problem.weightBits == 16 ? 2.5 : 3.5; }
double tileInstructions(const LinearProblem& problem, const LinearTile& size) {
  const bool few = size.warpsDown == 1;
  if (problem.weightBits == 16) return few ? 5.5 : 6.3;
  return problem.weightBits == 8 ? (few ? 6.3 : 9.5) : (few ? 8.7 : 10.2);
}

double bytesPerWeight(const LinearProblem& problem) { return problem.weightBits / 8.0 + (problem.group > 0 ? 2.0 / problem.group : 0); }

LinearSchedule layOut(const LinearProblem& problem, int tile, int blocks) {
  const LinearTile& size = LINEAR_TILES[tile];
  LinearSchedule schedule;
  schedule.tile = tile;
  schedule.rowTiles = divideUp(problem.rows, size.rows);
  schedule.tiles = schedule.rowTiles * divideUp(problem.outputs, size.outputs);
  schedule.depth = divideUp(problem.inputs, LINEAR_DEPTH);
  schedule.blocks = std::max(1, std::min(blocks, schedule.tiles * schedule.depth));
  const int left = schedule.tiles % schedule.blocks;
  // The last, partial wave is split together with one full wave, so that every block's run is long enough to be worth starting.
  schedule.splitTiles = left == 0 ? 0 : std::min(schedule.tiles, left + schedule.blocks);
  schedule.alone = schedule.blocks <= problem.multiprocessors;
  return schedule;
}

LinearSchedule whole(const LinearProblem& problem, int tile) {
  const LinearTile& size = LINEAR_TILES[tile];
  LinearSchedule schedule = layOut(problem, tile, 1);
  schedule.blocks = std::min(schedule.tiles, problem.multiprocessors * size.blocksPerProcessor);
  schedule.splitTiles = 0;
  schedule.alone = schedule.blocks <= problem.multiprocessors;
  return schedule;
}

bool fits(const LinearProblem& problem, const LinearSchedule& schedule) {
  // The kernel computes stage × block in 32 bits.
  if (static_cast<double>(schedule.splitTiles) * schedule.depth * (schedule.blocks + 1) > 2e9) return false;
  return schedule.splitTiles == 0 || (schedule.splitTiles <= LINEAR_COUNTERS && linearPartialBytes(schedule) <= problem.workspaceBytes);
}

bool hasFastMemory(const LinearProblem& problem) { return problem.weightBits == 16 && problem.memoryRate >= FAST_MEMORY; }

int vectorSplits(const LinearProblem& problem) {
  const int pairs = divideUp(problem.outputs, 2);
  int splits = 1;
  const int step = VECTOR_STEP * 16 / problem.weightBits;
  while (splits < 8 && pairs * splits < STREAMING_WARPS * problem.multiprocessors && problem.inputs / (step * splits * 2) >= 2) splits *= 2;
  return splits;
}

}  // namespace

size_t linearPartialBytes(const LinearSchedule& schedule) {
  const LinearTile& size = LINEAR_TILES[schedule.tile];
  return LINEAR_COUNTERS * sizeof(unsigned) + static_cast<size_t>(schedule.blocks) * 2 * size.rows * size.outputs * sizeof(float);
}

size_t linearWorkspaceBytes(int maxRows, int maxOutputs, int multiprocessors, bool widens) {
  size_t most = 0;
  for (int tile = 0; tile < LINEAR_TILE_COUNT; tile++) {
    LinearSchedule schedule{};
    schedule.tile = tile;
    schedule.blocks = multiprocessors * LINEAR_TILES[tile].blocksPerProcessor;
    most = std::max(most, linearPartialBytes(schedule));
  }
  // The workspace holds either partial tiles, or all that a product with cuBLASLt needs: an intermediate result (for SwiGLU and for narrow weights),
  // cuBLASLt's own workspace and widened weights.
  const size_t widened = widens && maxRows >= LINEAR_WIDENED_ROWS ? LINEAR_WIDENED_BYTES : 0;
  const size_t cublas = LINEAR_COUNTERS * sizeof(unsigned) + static_cast<size_t>(maxRows) * maxOutputs * 2 + 512 + CUBLAS_WORKSPACE_BYTES + widened;
  return aligned256(std::max(most, cublas));
}

double linearCost(const LinearProblem& problem, const LinearSchedule& schedule) {
  const bool narrow = problem.weightBits < 16;
  const LinearTile& size = LINEAR_TILES[schedule.tile];
  const double iterations = static_cast<double>(schedule.tiles) * schedule.depth;
  const double weightBytes = static_cast<double>(problem.outputs) * problem.inputs * bytesPerWeight(problem);
  const int wholeTiles = schedule.tiles - schedule.splitTiles;
  const double ofOneBlock = divideUp(wholeTiles, schedule.blocks) * static_cast<double>(schedule.depth) +
                            static_cast<double>(divideUp(schedule.splitTiles * schedule.depth, schedule.blocks));
  const double ofOneProcessor = ofOneBlock * divideUp(schedule.blocks, problem.multiprocessors);
  const double underWay = static_cast<double>(schedule.blocks) * (size.stages - 1) * size.outputs * LINEAR_DEPTH * bytesPerWeight(problem);
  const double memoryShare = narrow ? NARROW_TILE_MEMORY_SHARE : TILE_MEMORY_SHARE;
  const double memory = weightBytes / std::min(memoryShare * problem.memoryRate, underWay / MEMORY_LATENCY);
  const double stageBytes = size.stageBytes(problem.weightBits);
  const double cache = std::max(iterations * stageBytes / CACHE_RATE, ofOneProcessor * stageBytes / CACHE_RATE_OF_ONE);
  const double rate = (size.rows * size.outputs >= 128 * 128 ? MATRIX_RATE : SMALL_TILE_RATE) / problem.multiprocessors;
  const double matrix = ofOneProcessor * size.rows * size.outputs * LINEAR_DEPTH * 2 / rate;
  const double share = narrow && schedule.alone && size.blocksPerProcessor > 1 ? ALONE_ISSUE_SHARE : 1;
  const double issue = ofOneProcessor * size.outputs * LINEAR_DEPTH * tileInstructions(problem, size) / (share * ISSUE_RATE / problem.multiprocessors);
  double seconds = std::max({memory, cache, matrix, issue}) + MEMORY_LATENCY;
  if (schedule.splitTiles > 0) {
    const double tileBytes = static_cast<double>(size.rows) * size.outputs * sizeof(float);
    const double pieces = static_cast<double>(schedule.blocks) + schedule.splitTiles;
    seconds += SPLIT_LATENCY + 2 * pieces * tileBytes / CACHE_RATE + pieces / schedule.splitTiles * tileBytes / CACHE_RATE_OF_ONE;
  }
  return seconds * 1e6;
}

double skinnyCost(const LinearProblem& problem, int columns) {
  const bool narrow = problem.weightBits < 16, fast = hasFastMemory(problem);
  const int blocks = divideUp(problem.outputs, 8 * columns), rows = divideUp(problem.rows, 8) * 8, waves = divideUp(blocks, problem.multiprocessors);
  const double blockBytes = (8.0 * columns * bytesPerWeight(problem) + rows * 2) * problem.inputs;
  const double cacheRate = narrow ? NARROW_CACHE_RATE : fast && rows > 16 ? FAST_CACHE_RATE : CACHE_RATE;
  const double rateOfOne = narrow ? NARROW_RATE_OF_ONE : fast ? FAST_CACHE_RATE_OF_ONE : CACHE_RATE_OF_ONE;
  const double cache = std::max(blocks * blockBytes / cacheRate, waves * blockBytes / rateOfOne);
  const double weightBytes = static_cast<double>(problem.outputs) * problem.inputs * bytesPerWeight(problem);
  const double memoryShare = fast && waves > 1 && weightBytes > FAST_WAVES_BYTES ? FAST_WAVES_MEMORY_SHARE : SKINNY_MEMORY_SHARE;
  const double memory = weightBytes / (memoryShare * problem.memoryRate);
  const double issue = waves * 8.0 * columns * problem.inputs * skinnyInstructions(problem) / (ISSUE_RATE / problem.multiprocessors);
  return (std::max({memory, cache, issue}) + (narrow ? waves : 1) * (MEMORY_LATENCY + BLOCK_LATENCY)) * 1e6;
}

LinearSchedule scheduleTiles(const LinearProblem& problem, int tile, int blocks) {
  const LinearSchedule plain = whole(problem, tile);
  if (blocks > 0) {
    const LinearSchedule fixed = layOut(problem, tile, std::min(blocks, problem.multiprocessors * LINEAR_TILES[tile].blocksPerProcessor));
    return fits(problem, fixed) ? fixed : plain;
  }
  // The three smallest tiles take the cost of tile 1, so that all of them split the same way.
  const int costed = plain.rowTiles == 1 && tile < 3 ? 1 : tile;
  const auto cost = [&](LinearSchedule schedule) {
    schedule.tile = costed;
    return linearCost(problem, schedule);
  };
  LinearSchedule best = plain;
  double least = cost(plain);
  const auto consider = [&](int blocks) {
    const LinearSchedule schedule = layOut(problem, tile, blocks);
    if (!fits(problem, schedule)) return;
    const double its = cost(schedule);
    if (its < least) best = schedule, least = its;
  };
  const int slots = problem.multiprocessors * LINEAR_TILES[tile].blocksPerProcessor;
  consider(problem.multiprocessors);
  consider(slots);
  for (int pieces = 2; pieces * plain.tiles <= slots && pieces * 2 <= plain.depth; pieces++) consider(pieces * plain.tiles);
  return best;
}

bool linearSupports(LinearKernel kernel, const LinearProblem& problem) {
  switch (kernel) {
    case LinearKernel::Vector: return problem.narrow && problem.aligned && problem.rows <= LINEAR_VECTOR_ROWS;
    case LinearKernel::Skinny: return problem.narrow && problem.aligned && problem.inputs > 0 && problem.rows <= LINEAR_SKINNY_ROWS;
    case LinearKernel::Tiles: return problem.narrow && problem.aligned && problem.inputs > 0;
    case LinearKernel::Cublas: return problem.narrow && problem.aligned && problem.inputs > 0 && problem.cublas && problem.weightBits == 16;
    default: return true;
  }
}

LinearChoice chooseLinear(const LinearProblem& problem, const LinearTuning& tuning) {
  LinearChoice choice{LinearKernel::Plain, 1, LINEAR_SKINNY_COLUMNS[0], {}};
  const auto allowed = [&](LinearKernel kernel) {
    return (tuning.kernel == LinearKernel::Auto || tuning.kernel == kernel) && linearSupports(kernel, problem);
  };
  // With more rows than these, multiplying on CUDA cores does not keep up with memory.
  const bool vectors = problem.rows <= (problem.weightBits == 16 ? 2 : 1) || tuning.kernel == LinearKernel::Vector;
  if (vectors && allowed(LinearKernel::Vector)) {
    choice.kernel = LinearKernel::Vector;
    choice.splits = tuning.splits > 0 ? tuning.splits : vectorSplits(problem);
    return choice;
  }
  if (allowed(LinearKernel::Cublas) && (problem.rows > LINEAR_OWN_ROWS || tuning.kernel == LinearKernel::Cublas)) {
    choice.kernel = LinearKernel::Cublas;
    return choice;
  }
  double least = std::numeric_limits<double>::infinity();
  const auto consider = [&](LinearKernel kernel, double cost) {
    if (cost >= least) return false;
    choice.kernel = kernel, least = cost;
    return true;
  };
  if (allowed(LinearKernel::Tiles)) {
    // Up to 64 rows take the smallest tile that holds all rows. More rows consider every tile from `smallest` on.
    const int rows = problem.rows;
    const int smallest = rows <= 16 ? 0 : rows <= 32 ? 1 : rows <= 64 ? 2 : rows <= 128 ? 3 : 2;
    const int first = tuning.tile >= 0 ? tuning.tile : smallest;
    const int last = tuning.tile >= 0 || rows <= 64 ? first : LINEAR_TILE_COUNT - 1;
    for (int tile = first; tile <= last; tile++) {
      const LinearSchedule schedule = scheduleTiles(problem, tile, tuning.blocks);
      if (consider(LinearKernel::Tiles, linearCost(problem, schedule))) choice.schedule = schedule;
    }
  }
  if (allowed(LinearKernel::Skinny)) {
    // If memory bounds the product, all numbers of columns cost the same, and the first one considered is chosen. For few rows of bf16 on an H100
    // that is the fewest columns, whose many blocks end together; otherwise the most columns, which start the fewest blocks and read x least often.
    constexpr int COUNT = std::size(LINEAR_SKINNY_COLUMNS);
    const bool fewest = problem.rows <= 8 && problem.weightBits == 16 && !hasFastMemory(problem);
    for (int i = 0; i < COUNT; i++) {
      const int columns = LINEAR_SKINNY_COLUMNS[fewest ? i : COUNT - 1 - i];
      if (linearSkinnyFits(problem.weightBits, problem.rows, columns) && (tuning.columns == 0 || tuning.columns == columns) &&
          consider(LinearKernel::Skinny, skinnyCost(problem, columns))) choice.columns = columns;
    }
  }
  return choice;
}

}  // namespace pie
