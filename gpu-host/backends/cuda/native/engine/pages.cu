#include "pages.h"
#include <string>

namespace pie {

PageMover::PageMover(uint8_t* pool, const StepLimits& limits, int pageSize, size_t valueBytes)
    : pool_(pool), limits_(limits), pageSize_(pageSize), pieceBytes_(static_cast<size_t>(pageSize) * limits.shape.slotWidth() * valueBytes),
      layerBytes_(static_cast<size_t>(limits.totalSlots()) * limits.shape.slotWidth() * valueBytes) {}

template <typename Copy>
void PageMover::each(const int* pages, int count, const Event& copied, const Copy& copy) {
  const int pageCount = limits_.slots / pageSize_;
  for (int i = 0; i < count; i++)
    if (pages[i] < 0 || pages[i] >= pageCount) refuse("There is no page " + std::to_string(pages[i]) + " among " + std::to_string(pageCount) + ".");
  const std::lock_guard<std::mutex> lock(mutex_);
  stream_.wait(copied);
  size_t onHost = 0;
  for (int i = 0; i < count; i++)
    for (int layer = 0; layer < limits_.shape.layers; layer++, onHost += pieceBytes_)
      copy(pool_ + layer * layerBytes_ + pages[i] * pieceBytes_, onHost);
  stream_.synchronize();
}

void PageMover::read(const int* pages, int count, uint8_t* into, const Event& copied) {
  each(pages, count, copied, [&](uint8_t* piece, size_t at) { CUDA_CALL(cudaMemcpyAsync(into + at, piece, pieceBytes_, cudaMemcpyDeviceToHost, stream_)); });
}

void PageMover::write(const int* pages, int count, const uint8_t* from, const Event& copied) {
  each(pages, count, copied, [&](uint8_t* piece, size_t at) { CUDA_CALL(cudaMemcpyAsync(piece, from + at, pieceBytes_, cudaMemcpyHostToDevice, stream_)); });
}

}  // namespace pie
