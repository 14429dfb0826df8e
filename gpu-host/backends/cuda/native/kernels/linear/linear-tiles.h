// Products on tensor cores, for any number of rows.
#pragma once
#include "linear-choice.h"
#include "linear-epilogue.h"
#include "linear-weights.h"

namespace pie {

// Number of adjacent outputs that one thread finishes: `to.vectors` must be set for runs of this length.
constexpr int linearTileRun(const LinearTile& tile) { return tile.outputs / tile.warpsAcross / 4; }

// `xStride` must be a multiple of 8, `inputs` a multiple of the values in 16 bytes of W; x and W must be 16-byte aligned. W has `weightRows` rows;
// to.outputs may be larger, up to a whole run. W is bf16, int8_t, Float8 or Int4.
template <typename W>
void launchLinearTiles(const LinearOutput<bf16>& to, const LinearLines<W>& lines, const bf16* x, size_t xStride, int inputs, int weightRows,
                       const LinearSchedule& schedule, float* workspace, cudaStream_t stream);

}  // namespace pie
