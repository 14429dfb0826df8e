// The vector product; x is read from global memory through the caches.
#include "linear-vector.h"
#include "../../device/launch.h"
#include "linear-vector-lines.h"

namespace pie {
namespace {

template <typename W, int ROWS>
__global__ void __launch_bounds__(32 * VECTOR_WARPS, VECTOR_BLOCKS<ROWS>)
    vectorProduct(LinearOutput<bf16> to, LinearLines<W> lines, const bf16* x, size_t xStride, int inputs, int splits) {
  __shared__ VectorPartials<ROWS> partial;
  const int pairs = VECTOR_WARPS / splits, first = static_cast<int>(blockIdx.x) * pairs * 2;
  VectorLines<W, ROWS> pair(lines, first + static_cast<int>(threadIdx.x) / 32 / splits * 2, to.outputs, inputs, splits);
  // No kernel writes the weights, so the first loads are issued while the previous kernel still runs.
  pair.load();
  waitForEarlier();
  letNextBegin();
  float sums[ROWS][2] = {};
  pair.multiply(sums, [&](int row, int k) { return loadKept16(x + min(row, to.rows - 1) * xStride + k); });
  finishVector<W>(to, sums, partial, first, splits);
}

}  // namespace

template <typename W>
void launchLinearVector(const LinearOutput<bf16>& to, const LinearLines<W>& lines, const bf16* x, size_t xStride, int inputs, int splits, cudaStream_t stream) {
  const int perBlock = VECTOR_WARPS / splits * 2;
  const int blocks = divideUp(to.outputs, perBlock);
  if (to.rows == 1) {
    LAUNCH_CHAINED((vectorProduct<W, 1>), blocks, 32 * VECTOR_WARPS, 0, stream, to, lines, x, xStride, inputs, splits);
  } else if (to.rows == 2) {
    LAUNCH_CHAINED((vectorProduct<W, 2>), blocks, 32 * VECTOR_WARPS, 0, stream, to, lines, x, xStride, inputs, splits);
  } else {
    LAUNCH_CHAINED((vectorProduct<W, 4>), blocks, 32 * VECTOR_WARPS, 0, stream, to, lines, x, xStride, inputs, splits);
  }
}

#define VECTOR_OF(W) template void launchLinearVector(const LinearOutput<bf16>&, const LinearLines<W>&, const bf16*, size_t, int, int, cudaStream_t);
VECTOR_OF(bf16)
VECTOR_OF(int8_t)
VECTOR_OF(Float8)
VECTOR_OF(Int4)

}  // namespace pie
