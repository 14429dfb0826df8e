// Products of up to LINEAR_NORMED_ROWS rows which they normalise first.
#pragma once
#include "linear-epilogue.h"
#include "linear-normed.h"
#include "linear-weights.h"

namespace pie {

// As launchLinearVector (linear-vector.h). `inputs` is at most LINEAR_NORMED_INPUTS; all that x points to, W included, lies at multiples of 16 bytes.
template <typename W>
void launchLinearVectorNormed(const LinearOutput<bf16>& to, const LinearLines<W>& lines, const NormedInput<bf16>& x, int inputs, int splits,
                              int multiprocessors, cudaStream_t stream);

}  // namespace pie
