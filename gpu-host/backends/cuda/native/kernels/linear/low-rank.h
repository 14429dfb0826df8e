// Low-rank adapters (Hu et al., LoRA, 2021): y += B · (A · x), where each row of a step has an adapter of its own, or none. As in Punica (Chen et
// al., arXiv 2310.18547) and S-LoRA (Sheng et al., arXiv 2311.03285), one launch shrinks the inputs of all rows and one expands the results, whatever
// the number of adapters and their ranks: rows of one adapter form tasks, and a task names its matrices.
#pragma once
#include "../types.h"

namespace pie {

// Maximum rows of a task: one tile of the tensor cores.
constexpr int LOW_RANK_ROWS = 16;
// Ranks are padded with zeros to a multiple of this; the padding does not change the result.
constexpr int LOW_RANK_STEP = 16;
// Maximum number of projections of a place.
constexpr int LOW_RANK_PARTS = 3;
// Inputs of a split, which one block multiplies with A. Each split has sums of its own, so that many blocks share A.
constexpr int LOW_RANK_SPLIT = 1024;
__host__ __device__ constexpr int lowRankSplits(int inputs) { return (inputs + LOW_RANK_SPLIT - 1) / LOW_RANK_SPLIT; }

// Places of a layer at which adapters change an output. Projections of one place share their input.
enum LowRankPlace { QKV_PLACE, OUTPUT_PLACE, GATE_UP_PLACE, DOWN_PLACE, LOW_RANK_PLACES };

// One adapter's matrices for a place, on the device.
template <typename T>
struct LowRankMatrices {
  struct alignas(16) Up {
    const T* weight;  // B: outputs × rank. Null: this projection is not changed.
    int from;         // First column of `low`: the sum of the ranks of the parts before this one.
    int rank;         // Multiple of LOW_RANK_STEP, or 0.
  };
  const T* down;  // A of all changed projections, one below the other: ranks × inputs.
  float* low;     // A · x of the step's rows, in the order of LowRankTables::rows: rows × lowRankSplits(inputs) × ranks.
  int ranks;      // Sum over `ups`; 0: the place is not changed.
  Up ups[LOW_RANK_PARTS];
};

// Up to LOW_RANK_ROWS rows of one adapter, or of none.
struct alignas(16) LowRankTask {
  const void* matrices;  // LowRankMatrices<T>, by layer and place. Null: the rows have no adapter.
  int first;             // First row in LowRankTables::rows.
  int count;
};

// The rows of a step that have adapters, or all rows if the projections alternate (LowRankProduct::alternating). The tables lie on the device:
// kernels read the number of tasks there, so that a captured graph serves all steps of its shape.
struct LowRankTables {
  const int* taskCount = nullptr;
  const LowRankTask* tasks = nullptr;  // Memory for one task per row: kernels load tasks before they know the count.
  const int* rows = nullptr;
};

// A place of one layer.
struct LowRankProduct {
  int matrices;                   // Index into an adapter's matrices.
  int inputs;
  int parts;                      // Projections.
  int outputs[LOW_RANK_PARTS];    // Of each projection. In y, projections follow each other unless they alternate.
  bool alternating;               // Two projections with the same number of outputs, which alternate in y: gate and up.
  bool gelu;                      // The gate's function is GELU with tanh instead of SiLU.
};

// y += B · (A · x) for the rows of `tables`. At most `rows` rows have adapters. `xStride` and `yStride` are row strides in values. bf16 uses tensor
// cores if inputs and strides are multiples of 8, outputs are even, and x, y and `gated` are 16-byte aligned; it rounds A · x to bf16. A row's result
// depends on no other row.
// If the product alternates, y is unchanged, and gated[row] (outputs[0] values) = f(gate) · up of the changed outputs, for all rows of `tables`, where f
// is SiLU or GELU.
// In a chain (../device/launch.h), the launch before must be the product that made y from x: x is read without a wait.
template <typename T>
void launchLowRank(const LowRankProduct& product, const LowRankTables& tables, const T* x, size_t xStride, T* y, size_t yStride, T* gated, int rows,
                   cudaStream_t stream);

}  // namespace pie
