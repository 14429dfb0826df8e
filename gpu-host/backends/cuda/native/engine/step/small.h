// Small kernels that only the engine needs.
#pragma once
#include "../../kernels/types.h"

namespace pie {

// to[i] = from[pick[i]], rows of `width` values.
template <typename T>
void launchGather(T* to, const T* from, const int* pick, int count, int width, cudaStream_t stream);

// Pages to move, with all layers, between the pool and a contiguous buffer. In the buffer, the layers of a page are adjacent.
struct PageMove {
  static constexpr int MOST = 64;
  int pages[MOST];
  int count;
  int layers;
  size_t layerBytes;  // Size of one layer of the pool; a multiple of 4.
  size_t pieceBytes;  // Size of a page in one layer; a multiple of 4.
};
// `out`: from the pool to the buffer; otherwise back.
void launchMovePages(uint8_t* pool, uint8_t* buffer, const PageMove& move, bool out, cudaStream_t stream);

// values[i] *= factor
void launchScale(float* values, float factor, size_t count, cudaStream_t stream);

}  // namespace pie
