#include "pages.h"
#include <algorithm>
#include <string>

namespace pie {

namespace {

// Large enough to keep the bus busy between two kernels.
constexpr size_t STAGED_BYTES = size_t{8} << 20;

int pagesAtOnce(size_t pageBytes) { return static_cast<int>(std::clamp<size_t>(STAGED_BYTES / pageBytes, 1, PageMove::MOST)); }

}  // namespace

size_t PageMover::stagingBytes(const StepLimits& limits, int pageSize) {
  const size_t pageBytes = pageSize * limits.slotBytes * limits.shape.layers;
  return 2 * blockBytes(pagesAtOnce(pageBytes) * pageBytes);
}

PageMover::PageMover(uint8_t* pool, uint8_t* staging, const StepLimits& limits, int pageSize)
    : pool_(pool), pageCount_(limits.slots / pageSize), pageBytes_(pageSize * limits.slotBytes * limits.shape.layers), move_{} {
  move_.layers = limits.shape.layers;
  move_.layerBytes = limits.totalSlots() * limits.slotBytes;
  move_.pieceBytes = pageSize * limits.slotBytes;
  atOnce_ = pagesAtOnce(pageBytes_);
  in_.staging = staging;
  out_.staging = staging + blockBytes(atOnce_ * pageBytes_);
}

PageMover::~PageMover() {
  for (const Way* way : {&in_, &out_}) (void)cudaStreamSynchronize(way->stream);
}

template <typename Copy>
void PageMover::move(Way& way, const int* pages, int count, const Event& copied, bool out, const Copy& copy) {
  for (int i = 0; i < count; i++)
    if (pages[i] < 0 || pages[i] >= pageCount_) refuse("There is no page " + std::to_string(pages[i]) + " among " + std::to_string(pageCount_) + ".");
  const std::lock_guard<std::mutex> lock(way.mutex);
  way.stream.wait(copied);
  for (int first = 0; first < count; first += atOnce_) {
    PageMove some = move_;
    some.count = std::min(atOnce_, count - first);
    std::copy_n(pages + first, some.count, some.pages);
    const size_t bytes = some.count * pageBytes_, at = first * pageBytes_;
    if (!out) copy(bytes, at);
    launchMovePages(pool_, way.staging, some, out, way.stream);
    checkLaunches();
    if (out) copy(bytes, at);
  }
  way.stream.synchronize();
}

void PageMover::read(const int* pages, int count, uint8_t* into, const Event& copied) {
  move(out_, pages, count, copied, true, [&](size_t bytes, size_t at) {
    CUDA_CALL(cudaMemcpyAsync(into + at, out_.staging, bytes, cudaMemcpyDeviceToHost, out_.stream));
  });
}

void PageMover::write(const int* pages, int count, const uint8_t* from, const Event& copied) {
  move(in_, pages, count, copied, false, [&](size_t bytes, size_t at) {
    CUDA_CALL(cudaMemcpyAsync(in_.staging, from + at, bytes, cudaMemcpyHostToDevice, in_.stream));
  });
}

}  // namespace pie
