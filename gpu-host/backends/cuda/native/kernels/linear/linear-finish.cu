#include "linear-finish.h"
#include "../../device/launch.h"

namespace pie {
namespace {

constexpr int THREADS = 128;

// Each thread finishes N adjacent outputs per row.
template <int N, typename S>
__global__ void __launch_bounds__(THREADS) finishSums(LinearOutput<bf16> to, const S* sums, size_t stride) {
  letNextBegin();
  waitForEarlier();
  const int output = (blockIdx.x * THREADS + threadIdx.x) * N;
  if (output >= to.outputs) return;
  for (int row = blockIdx.y; row < to.rows; row += gridDim.y) {
    const S* from = sums + row * stride + output;
    float values[N];
    if constexpr (N == 2) {
      values[0] = widen(from[0]);
      values[1] = output + 1 < to.outputs ? widen(from[1]) : 0.0f;
      finishPair<true>(to, row, output, values);
    } else {
      const Run<S, N> run = *reinterpret_cast<const Run<S, N>*>(from);
#pragma unroll
      for (int i = 0; i < N; i++) values[i] = widen(run.values[i]);
      finishWholeRun<true>(to, row, output, values);
    }
  }
}

template <int N, typename S>
void launch(const LinearOutput<bf16>& to, const S* sums, size_t stride, cudaStream_t stream) {
  const dim3 grid(divideUp(to.outputs, THREADS * N), to.rows < 65535 ? to.rows : 65535);
  LAUNCH_CHAINED((finishSums<N, S>), grid, THREADS, 0, stream, to, sums, stride);
}

}  // namespace

template <typename S>
void launchFinish(const LinearOutput<bf16>& to, const S* sums, size_t stride, cudaStream_t stream) {
  constexpr int N = 16;
  if (to.vectors && to.outputs % N == 0 && stride % 8 == 0 && areAligned(sums)) {
    launch<N>(to, sums, stride, stream);
  } else {
    launch<2>(to, sums, stride, stream);
  }
}

template void launchFinish(const LinearOutput<bf16>&, const float*, size_t, cudaStream_t);
template void launchFinish(const LinearOutput<bf16>&, const bf16*, size_t, cudaStream_t);

}  // namespace pie
