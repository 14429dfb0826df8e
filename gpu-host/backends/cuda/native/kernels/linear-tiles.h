// Products on tensor cores, any number of rows.
#pragma once
#include "linear-choice.h"
#include "linear-epilogue.h"
#include "linear-weights.h"

namespace pie {

// Outputs that one thread finishes together: `to.vectors` must be set, for runs of so many.
constexpr int linearTileRun(const LinearTile& tile) { return tile.outputs / tile.warpsAcross / 4; }

// `xStride` is a multiple of 8, `inputs` of what 16 bytes of W hold; x and W lie at multiples of 16 bytes. W has `weightRows` rows; to.outputs may be more, up
// to a whole run. W is bf16, int8_t, Float8 or Int4.
template <typename W>
void launchLinearTiles(const LinearOutput<bf16>& to, const LinearLines<W>& lines, const bf16* x, size_t xStride, int inputs, int weightRows,
                       const LinearSchedule& schedule, float* workspace, cudaStream_t stream);

}  // namespace pie
