// Small kernels that only the engine needs.
#pragma once
#include "../kernels/types.h"

namespace pie {

// out[r][i] = silu(gate) * up, where gateUp[r] holds gate and up i at 2i and 2i + 1: what Epilogue::SwiGlu does when nothing has to be added in between.
template <typename T>
void launchGate(T* out, const T* gateUp, size_t values, cudaStream_t stream);

// to[i] = from[pick[i]], rows of `width` values.
template <typename T>
void launchGather(T* to, const T* from, const int* pick, int count, int width, cudaStream_t stream);

// Some pages of all layers between the pool and one piece of memory, where a page's layers follow each other.
struct PageMove {
  static constexpr int MOST = 64;
  int pages[MOST];
  int count;
  int layers;
  size_t layerBytes;  // Of the pool.
  size_t pieceBytes;  // Of a page in one layer; both multiples of 4.
};
void launchMovePages(uint8_t* pool, uint8_t* piece, const PageMove& move, bool out, cudaStream_t stream);

// values[i] *= factor
void launchScale(float* values, float factor, size_t count, cudaStream_t stream);

}  // namespace pie
