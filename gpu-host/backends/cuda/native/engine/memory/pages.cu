#include "pages.h"
#include <algorithm>
#include <string>

namespace pie {

namespace {

// Bytes that one copy transfers: large enough to keep the bus busy between two kernels.
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
void PageMover::move(Way& way, Way& other, const int* pages, int count, const Event& copied, bool queue, const Copy& copy) {
  for (int i = 0; i < count; i++)
    if (pages[i] < 0 || pages[i] >= pageCount_) refuse("There is no page " + std::to_string(pages[i]) + " among " + std::to_string(pageCount_) + ".");
  const std::lock_guard<std::mutex> lock(way.mutex);
  const bool out = &way == &out_;
  way.stream.wait(copied);
  // A queued move in the other direction may use the same page or host memory. Moves that callers wait for do not depend on each other.
  if (isUnderWay(other)) way.stream.wait(other.moved);
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
  if (!queue) return way.stream.synchronize();
  way.moved.record(way.stream);
  way.queued = true;
}

bool PageMover::isUnderWay(Way& way) {
  if (way.queued && way.moved.isReached()) way.queued = false;
  return way.queued;
}

void PageMover::order(const Stream& later) {
  for (Way* way : {&in_, &out_})
    if (isUnderWay(*way)) later.wait(way->moved);
}

void PageMover::settle() {
  for (Way* way : {&in_, &out_}) {
    if (way->queued) way->moved.synchronize();
    way->queued = false;
  }
}

void PageMover::wait() const {
  for (const Way* way : {&in_, &out_})
    if (way->queued) way->moved.synchronize();
}

void PageMover::read(const int* pages, int count, uint8_t* into, const Event& copied, bool queue) {
  move(out_, in_, pages, count, copied, queue, [&](size_t bytes, size_t at) {
    CUDA_CALL(cudaMemcpyAsync(into + at, out_.staging, bytes, cudaMemcpyDeviceToHost, out_.stream));
  });
}

void PageMover::write(const int* pages, int count, const uint8_t* from, const Event& copied, bool queue) {
  move(in_, out_, pages, count, copied, queue, [&](size_t bytes, size_t at) {
    CUDA_CALL(cudaMemcpyAsync(in_.staging, from + at, bytes, cudaMemcpyHostToDevice, in_.stream));
  });
}

}  // namespace pie
