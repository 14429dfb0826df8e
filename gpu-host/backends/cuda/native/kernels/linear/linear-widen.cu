#include "linear-widen.h"
#include "../../device/launch.h"
#include "linear-epilogue.h"

namespace pie {
namespace {

constexpr int THREADS = 128;
constexpr int VALUES = 8;  // Of a thread: 16 bytes of bf16.

template <typename W>
__global__ void __launch_bounds__(THREADS) widenLines(bf16* to, LinearLines<W> lines, int first, int inputs) {
  letNextBegin();
  waitForEarlier();
  const int k = (blockIdx.x * THREADS + threadIdx.x) * VALUES, line = first + blockIdx.y;
  if (k >= inputs) return;
  const W* const from = weightsFrom(lines.values, static_cast<size_t>(line) * inputs);
  const float scale = widen(groupScale(lines, line, k));  // A group has at least 32 inputs.
  Run<bf16, VALUES> run;
#pragma unroll
  for (int i = 0; i < VALUES; i++) run.values[i] = narrowed<bf16>(weightAt(from, k + i) * scale);
  *reinterpret_cast<Run<bf16, VALUES>*>(to + static_cast<size_t>(blockIdx.y) * inputs + k) = run;
}

}  // namespace

template <typename W>
void launchWiden(bf16* to, const LinearLines<W>& lines, int first, int count, int inputs, cudaStream_t stream) {
  const dim3 grid(divideUp(inputs, THREADS * VALUES), count);
  LAUNCH_CHAINED(widenLines<W>, grid, THREADS, 0, stream, to, lines, first, inputs);
}

template void launchWiden(bf16*, const LinearLines<int8_t>&, int, int, int, cudaStream_t);
template void launchWiden(bf16*, const LinearLines<Float8>&, int, int, int, cudaStream_t);
template void launchWiden(bf16*, const LinearLines<Int4>&, int, int, int, cudaStream_t);

}  // namespace pie
