// Pages to and from host memory, beside running steps.
#pragma once
#include <mutex>
#include "options.h"
#include "streams.h"

namespace pie {

// A page's bytes on the host: for each layer its slots' keys and values, as they lie in the pool.
class PageMover {
 public:
  PageMover(uint8_t* pool, const StepLimits& limits, int pageSize, size_t valueBytes);
  ~PageMover() { (void)cudaStreamSynchronize(stream_); }
  size_t pageBytes() const { return pieceBytes_ * limits_.shape.layers; }
  // Copies of slots that were queued before a page moves are done before it does; whether a running step touches the page is the caller's to know.
  // Waits. Throws EngineError "invalid" for a page outside the pool.
  void read(const int* pages, int count, uint8_t* into, const Event& copied);
  void write(const int* pages, int count, const uint8_t* from, const Event& copied);
  // For other copies to new memory of the device, beside running steps.
  const Stream& stream() const { return stream_; }

 private:
  template <typename Copy>
  void each(const int* pages, int count, const Event& copied, const Copy& copy);
  uint8_t* pool_;
  StepLimits limits_;
  int pageSize_;
  size_t pieceBytes_;   // Of one page in one layer, which is one piece of memory.
  size_t layerBytes_;
  std::mutex mutex_;
  Stream stream_;
};

}  // namespace pie
