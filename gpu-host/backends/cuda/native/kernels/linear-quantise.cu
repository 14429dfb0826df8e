#include "linear-int8.h"
#include "linear-epilogue.h"
#include "linear-weights.h"

namespace pie {
namespace {

constexpr int THREADS = 256;

// A block takes one line.
__global__ void __launch_bounds__(THREADS) quantise(int8_t* weight, float* scales, const bf16* from, int inputs) {
  __shared__ float largest[THREADS / 32];
  const size_t line = static_cast<size_t>(blockIdx.x) * inputs;
  float most = 0;
  bool finite = true;
  for (int k = threadIdx.x; k < inputs; k += THREADS) {
    const float value = fabsf(widen(from[line + k]));
    finite = finite && value <= 3.4e38f;
    most = fmaxf(most, value);
  }
  if (!finite) most = INFINITY;
#pragma unroll
  for (int bit = 16; bit > 0; bit /= 2) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, bit));
  if (threadIdx.x % 32 == 0) largest[threadIdx.x / 32] = most;
  __syncthreads();
  for (int i = 0; i < THREADS / 32; i++) most = fmaxf(most, largest[i]);
  const bool usable = most <= 3.4e38f;
  const float scale = usable ? most / 127 : NAN;
  for (int k = threadIdx.x; k < inputs; k += THREADS)
    weight[line + int8Place(k)] = usable && most > 0 ? static_cast<int8_t>(rintf(fminf(fmaxf(widen(from[line + k]) / scale, -127.0f), 127.0f))) : int8_t{0};
  if (threadIdx.x == 0) scales[blockIdx.x] = scale;
}

}  // namespace

void launchQuantise(int8_t* weight, float* scales, const bf16* from, int outputs, int inputs, cudaStream_t stream) {
  if (outputs > 0) LAUNCH(quantise, outputs, THREADS, 0, stream, weight, scales, from, inputs);
}

}  // namespace pie
