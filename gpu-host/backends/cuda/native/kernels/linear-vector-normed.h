// Products of up to LINEAR_NORMED_ROWS rows that normalise their input first.
#pragma once
#include "linear-epilogue.h"
#include "linear-normed.h"
#include "linear-weights.h"

namespace pie {

// The contract of launchLinearVector (linear-vector.h). `inputs` is at most LINEAR_NORMED_INPUTS; all arrays of x and W must be 16-byte aligned.
template <typename W>
void launchLinearVectorNormed(const LinearOutput<bf16>& to, const LinearLines<W>& lines, const NormedInput<bf16>& x, int inputs, int splits,
                              int multiprocessors, cudaStream_t stream);

}  // namespace pie
