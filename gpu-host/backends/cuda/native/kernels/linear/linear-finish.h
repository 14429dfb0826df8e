// The epilogue as a separate kernel, for sums that another kernel left in memory.
#pragma once
#include "linear-epilogue.h"

namespace pie {

// sums: to.rows × to.outputs with a row stride of `stride` values. S is float or bf16.
template <typename S>
void launchFinish(const LinearOutput<bf16>& to, const S* sums, size_t stride, cudaStream_t stream);

}  // namespace pie
