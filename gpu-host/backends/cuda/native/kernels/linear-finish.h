// The epilogue alone, of sums that another kernel left in memory.
#pragma once
#include "linear-epilogue.h"

namespace pie {

// sums: to.rows × to.outputs, `stride` values from row to row. S is float or bf16.
template <typename S>
void launchFinish(const LinearOutput<bf16>& to, const S* sums, size_t stride, cudaStream_t stream);

}  // namespace pie
