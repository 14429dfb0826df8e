#include "linear-choice.h"
#include <algorithm>
#include "../../testing/test.h"

using namespace pie;
using testing::Random;

namespace {

LinearProblem problem(int rows, int outputs, int inputs) {
  LinearProblem p{};
  p.rows = rows, p.outputs = outputs, p.inputs = inputs;
  p.aligned = p.narrow = true;
  p.weightBits = 16;
  p.multiprocessors = 132;
  p.memoryRate = 3.0e12;
  p.workspaceBytes = linearWorkspaceBytes(512, outputs, 132);
  return p;
}

// Checks that every stage of every tile belongs to exactly one piece, and that linearOwner agrees.
void checkCovered(const LinearSchedule& schedule) {
  std::vector<int> owners(static_cast<size_t>(schedule.tiles) * schedule.depth, -1);
  size_t covered = 0;
  int wrong = 0;
  for (int block = 0; block < schedule.blocks; block++) {
    int partsFromBegin = 0, partsFromWithin = 0, pieces = 0;
    for (LinearPiece piece = linearPiece(schedule, block, 0); piece.tile < schedule.tiles; piece = linearPiece(schedule, block, ++pieces)) {
      if (piece.begin >= piece.end || piece.begin < 0 || piece.end > schedule.depth) wrong++;
      for (int k = piece.begin; k < piece.end; k++) {
        int& owner = owners[static_cast<size_t>(piece.tile) * schedule.depth + k];
        if (owner != -1) wrong++;
        owner = block, covered++;
      }
      const bool part = piece.end - piece.begin < schedule.depth;
      if (part && piece.tile >= schedule.splitTiles) wrong++;
      if (part) (piece.begin > 0 ? partsFromWithin : partsFromBegin)++;
    }
    // The workspace has room for two partial tiles of a block: one that starts at the tile's first stage, and one that starts later.
    if (partsFromBegin > 1 || partsFromWithin > 1 || pieces == 0) wrong++;
  }
  for (int stage = 0; stage < schedule.splitTiles * schedule.depth; stage++)
    if (linearOwner(schedule, stage) != owners[stage]) wrong++;
  CHECK_EQUAL(wrong, 0);
  CHECK_EQUAL(covered, owners.size());
}

}  // namespace

TEST("linear choice: every schedule covers every tile once") {
  Random random(7);
  for (int i = 0; i < 300; i++) {
    const int rows = static_cast<int>(random.integer(1, 300)), outputs = static_cast<int>(random.integer(1, 3000));
    LinearProblem p = problem(rows, outputs, static_cast<int>(random.integer(1, 3000)));
    p.multiprocessors = static_cast<int>(random.integer(1, 20));
    p.workspaceBytes = random.integer(0, 3) == 0 ? 0 : size_t{1} << 30;
    const int tile = static_cast<int>(random.integer(0, LINEAR_TILE_COUNT - 1));
    const LinearSchedule schedule = scheduleTiles(p, tile, random.integer(0, 1) ? 0 : static_cast<int>(random.integer(1, 50)));
    CHECK(schedule.blocks <= p.multiprocessors * LINEAR_TILES[tile].blocksPerProcessor);
    if (p.workspaceBytes == 0) CHECK_EQUAL(schedule.splitTiles, 0);
    checkCovered(schedule);
  }
}

TEST("linear choice: the kernel depends on rows, on availability and on tuning") {
  LinearProblem p = problem(1, 4096, 4096);
  CHECK_EQUAL(chooseLinear(p, {}).kernel, LinearKernel::Vector);
  for (const int rows : {5, 16, 17, 32}) {
    p.rows = rows;
    CHECK_EQUAL(chooseLinear(p, {}).kernel, LinearKernel::Skinny);
    // Up to 8 rows take the fewest columns, more rows the most columns that fit.
    CHECK_EQUAL(chooseLinear(p, {}).columns, rows <= 8 ? 2 : linearSkinnyFits(16, rows, 6) ? 6 : 5);
  }
  for (const int rows : {33, 64, 65, 128}) {
    p.rows = rows;
    const LinearChoice choice = chooseLinear(p, {});
    CHECK_EQUAL(choice.kernel, LinearKernel::Tiles);
    CHECK(LINEAR_TILES[choice.schedule.tile].rows >= rows);
    // Up to 64 rows take the smallest tile that holds them.
    CHECK(rows > 64 || LINEAR_TILES[choice.schedule.tile].rows < 2 * rows + 16);
  }
  p.rows = 129;
  CHECK_EQUAL(chooseLinear(p, {}).kernel, LinearKernel::Tiles);
  p.cublas = true;
  for (const int rows : {32, 33, 129}) {
    p.rows = rows;
    CHECK_EQUAL(chooseLinear(p, {}).kernel, rows > 32 ? LinearKernel::Cublas : LinearKernel::Skinny);
  }
  // The second field of a tuning is the tile. -1 and the zeros leave the choice to chooseLinear.
  CHECK_EQUAL(chooseLinear(p, {LinearKernel::Tiles, 4, 0, 0, 0}).kernel, LinearKernel::Tiles);
  CHECK_EQUAL(chooseLinear(p, {LinearKernel::Tiles, 4, 0, 0, 0}).schedule.tile, 4);
  CHECK_EQUAL(chooseLinear(p, {LinearKernel::Vector, -1, 0, 0, 0}).kernel, LinearKernel::Plain);
  p.aligned = false;
  CHECK_EQUAL(chooseLinear(p, {}).kernel, LinearKernel::Plain);
  p.aligned = true, p.narrow = false;
  CHECK_EQUAL(chooseLinear(p, {}).kernel, LinearKernel::Plain);
}

TEST("linear choice: the small tiles split alike, and the workspace suffices for the chosen layout") {
  const LinearTuning tiles{LinearKernel::Tiles, -1, 0, 0, 0};
  for (const int hidden : {2048, 3072, 4096})
    for (const auto& [outputs, inputs] : {std::pair{hidden, hidden}, {hidden * 3 / 2, hidden}, {hidden * 8, hidden}, {hidden, hidden * 4}, {128256, hidden}}) {
      const LinearSchedule few = chooseLinear(problem(5, outputs, inputs), tiles).schedule;
      for (const int rows : {17, 40, 64}) {
        const LinearSchedule more = chooseLinear(problem(rows, outputs, inputs), tiles).schedule;
        CHECK_EQUAL(more.blocks, few.blocks);
        CHECK_EQUAL(more.splitTiles, few.splitTiles);
      }
      for (const int rows : {5, 64, 100, 128, 300, 512}) {
        const LinearProblem p = problem(rows, outputs, inputs);
        const LinearSchedule schedule = chooseLinear(p, tiles).schedule;
        CHECK(schedule.splitTiles == 0 || linearPartialBytes(schedule) <= p.workspaceBytes);
        CHECK(linearCost(p, schedule) < 1.1 * linearCost(p, scheduleTiles(p, schedule.tile, p.multiprocessors)));
      }
    }
}

TEST("linear choice: a small product still fills the device") {
  // 2,048 × 2,048: sixteen tiles for 132 multiprocessors.
  const LinearChoice few = chooseLinear(problem(8, 2048, 2048), {});
  CHECK_EQUAL(few.kernel, LinearKernel::Skinny);
  CHECK_EQUAL(few.columns, 2);
  for (const int rows : {64, 128}) {
    const LinearSchedule schedule = chooseLinear(problem(rows, 2048, 2048), {}).schedule;
    CHECK(schedule.blocks >= 64);
    CHECK_EQUAL(schedule.splitTiles, 16);
  }
  CHECK(chooseLinear(problem(1, 2048, 2048), {}).splits >= 2);
  CHECK_EQUAL(chooseLinear(problem(1, 128256, 2048), {}).splits, 1);
}

TEST("linear choice: with bf16, an H200 takes the layouts of the fastest measured steps, and an H100 takes others") {
  struct Matrix {
    int outputs, inputs, rows;
    LinearKernel kernel;
    int columns;  // Of the skinny kernel, or 0.
  };
  // Products in an H200's steps of an 8B, a 3B and a 1B model: queries, keys and values together; output; gate and up together; down; head.
  const Matrix measured[] = {
      {6144, 4096, 4, LinearKernel::Skinny, 6},   {4096, 4096, 8, LinearKernel::Skinny, 6},   {28672, 4096, 4, LinearKernel::Tiles, 0},
      {28672, 4096, 16, LinearKernel::Tiles, 0},  {4096, 14336, 8, LinearKernel::Skinny, 6},  {128256, 4096, 8, LinearKernel::Tiles, 0},
      {6144, 4096, 32, LinearKernel::Tiles, 0},   {28672, 4096, 32, LinearKernel::Tiles, 0},  {16384, 3072, 4, LinearKernel::Tiles, 0},
      {3072, 8192, 8, LinearKernel::Skinny, 6},   {16384, 2048, 4, LinearKernel::Skinny, 6},  {16384, 2048, 8, LinearKernel::Skinny, 6},
      {3072, 2048, 8, LinearKernel::Skinny, 6},   {2048, 8192, 4, LinearKernel::Skinny, 3},   {128256, 2048, 4, LinearKernel::Tiles, 0},
  };
  const auto at = [](const Matrix& matrix, double memoryRate, int bits) {
    LinearProblem p = problem(matrix.rows, matrix.outputs, matrix.inputs);
    p.memoryRate = memoryRate, p.weightBits = bits;
    return chooseLinear(p, {});
  };
  const auto equal = [](const LinearChoice& a, const LinearChoice& b) { return a.kernel == b.kernel && a.columns == b.columns; };
  int others = 0;
  for (const Matrix& matrix : measured) {
    for (const double h200 : {4.3e12, 4.425e12}) {
      CHECK_EQUAL(at(matrix, h200, 16).kernel, matrix.kernel);
      if (matrix.columns > 0) CHECK_EQUAL(at(matrix, h200, 16).columns, matrix.columns);
    }
    others += !equal(at(matrix, 3.0e12, 16), at(matrix, 4.3e12, 16));
    CHECK(equal(at(matrix, 3.0e12, 16), at(matrix, 3.02e12, 16)));
    // With weights of 8 bits, both cards take the same layout.
    if (matrix.rows == 4 && matrix.outputs == 28672) CHECK(equal(at(matrix, 4.3e12, 8), at(matrix, 3.0e12, 8)));
  }
  // Most of the 15 choices differ from an H100's.
  CHECK(others > 8);
}

TEST("linear choice: weights of fewer bits cost less, and take the vector kernel for one row only") {
  const auto of = [](int bits, int rows) {
    LinearProblem p = problem(rows, 28672, 4096);
    p.weightBits = bits;
    p.group = bits == 4 ? 128 : 0;
    return p;
  };
  for (const int columns : LINEAR_SKINNY_COLUMNS) CHECK(skinnyCost(of(4, 8), columns) < skinnyCost(of(8, 8), columns));
  for (const int bits : {16, 8, 4}) {
    CHECK_EQUAL(chooseLinear(of(bits, 1), {}).kernel, LinearKernel::Vector);
    CHECK_EQUAL(chooseLinear(of(bits, 2), {}).kernel, bits == 16 ? LinearKernel::Vector : LinearKernel::Skinny);
  }
  // With 4 columns, 4,096 outputs make 128 blocks for 132 multiprocessors. Fewer columns need a second wave of blocks, and more columns leave more
  // multiprocessors idle.
  for (const auto& [bits, rows] : {std::pair{8, 16}, {8, 32}, {4, 8}, {4, 16}}) {
    LinearProblem p = of(bits, rows);
    p.outputs = 4096, p.inputs = 14336;
    CHECK_EQUAL(chooseLinear(p, {}).kernel, LinearKernel::Skinny);
    CHECK_EQUAL(chooseLinear(p, {}).columns, 4);
  }
  // A large product runs two blocks on each multiprocessor where two fit; each block of a small one has a multiprocessor to itself.
  for (const int outputs : {4096, 28672}) {
    LinearProblem p = of(4, 32);
    p.outputs = outputs;
    const LinearSchedule schedule = chooseLinear(p, {}).schedule;
    const bool twoFit = LINEAR_TILES[schedule.tile].blocksPerProcessor > 1;
    // SHARED_BYTES is 99, 163 or 227 KB. Only 99 KB have no room for a second block.
    CHECK(twoFit || SHARED_BYTES < 100 << 10);
    CHECK_EQUAL(schedule.alone, outputs == 4096 || !twoFit);
    CHECK_EQUAL(schedule.blocks <= p.multiprocessors, schedule.alone);
  }
  // A higher memory rate lowers the cost of products that the memory bounds.
  LinearProblem quick = of(8, 2);
  quick.memoryRate = 4.3e12;
  CHECK(skinnyCost(quick, 6) < skinnyCost(of(8, 2), 6));
  LinearProblem few = of(4, 30);
  few.outputs = 4096;
  const LinearChoice choice = chooseLinear(few, {LinearKernel::Skinny, -1, 0, 0, 0});
  CHECK_EQUAL(choice.kernel, LinearKernel::Skinny);
  CHECK(linearSkinnyFits(4, 30, choice.columns));
  // Tuning cannot force a layout that does not fit the registers.
  CHECK_EQUAL(chooseLinear(few, {LinearKernel::Skinny, -1, 0, 0, 6}).kernel, LinearKernel::Plain);
}
