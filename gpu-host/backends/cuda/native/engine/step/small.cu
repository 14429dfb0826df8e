#include "small.h"
#include <algorithm>
#include "../../device/launch.h"

namespace pie {

namespace {

constexpr int THREADS = 256;
unsigned blocksFor(size_t count) { return static_cast<unsigned>(std::min<size_t>((count + THREADS - 1) / THREADS, 65535)); }

template <typename T>
__global__ void gatherKernel(T* to, const T* from, const int* pick, int width) {
  letNextBegin();
  waitForEarlier();
  const T* row = from + static_cast<size_t>(pick[blockIdx.x]) * width;
  for (int i = threadIdx.x; i < width; i += blockDim.x) to[static_cast<size_t>(blockIdx.x) * width + i] = row[i];
}

template <typename Word>
__global__ void movePages(uint8_t* pool, uint8_t* buffer, PageMove move, bool out) {
  Word* inPool = reinterpret_cast<Word*>(pool + blockIdx.x * move.layerBytes + move.pages[blockIdx.y] * move.pieceBytes);
  Word* inBuffer = reinterpret_cast<Word*>(buffer + (static_cast<size_t>(blockIdx.y) * move.layers + blockIdx.x) * move.pieceBytes);
  Word* to = out ? inBuffer : inPool;
  const Word* from = out ? inPool : inBuffer;
  for (size_t i = threadIdx.x; i < move.pieceBytes / sizeof(Word); i += blockDim.x) to[i] = from[i];
}

__global__ void scaleKernel(float* values, float factor, size_t count) {
  const size_t step = static_cast<size_t>(gridDim.x) * blockDim.x;
  for (size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) values[i] *= factor;
}

}  // namespace

template <typename T>
void launchGather(T* to, const T* from, const int* pick, int count, int width, cudaStream_t stream) {
  if (count > 0) LAUNCH_CHAINED(gatherKernel<T>, static_cast<unsigned>(count), THREADS, 0, stream, to, from, pick, width);
}

void launchMovePages(uint8_t* pool, uint8_t* buffer, const PageMove& move, bool out, cudaStream_t stream) {
  if (move.count == 0) return;
  const dim3 blocks(move.layers, move.count);
  const bool wide = move.layerBytes % sizeof(uint4) == 0 && move.pieceBytes % sizeof(uint4) == 0;
  if (wide) LAUNCH(movePages<uint4>, blocks, THREADS, 0, stream, pool, buffer, move, out);
  else LAUNCH(movePages<uint32_t>, blocks, THREADS, 0, stream, pool, buffer, move, out);
}

void launchScale(float* values, float factor, size_t count, cudaStream_t stream) {
  if (count > 0) LAUNCH(scaleKernel, blocksFor(count), THREADS, 0, stream, values, factor, count);
}

template void launchGather<bf16>(bf16*, const bf16*, const int*, int, int, cudaStream_t);
template void launchGather<float>(float*, const float*, const int*, int, int, cudaStream_t);

}  // namespace pie
