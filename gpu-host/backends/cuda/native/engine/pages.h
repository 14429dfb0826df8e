// Pages to and from host memory, beside running steps.
#pragma once
#include <mutex>
#include "memory.h"
#include "options.h"
#include "small.h"
#include "streams.h"

namespace pie {

// A page's bytes on the host: for each layer its slots' keys and values, as they lie in the pool. There they are a piece for each layer; a kernel brings the
// pieces of some pages together, so that one copy carries them over the bus. The two directions do not wait for each other.
class PageMover {
 public:
  // `staging`: of stagingBytes() on the device.
  PageMover(uint8_t* pool, uint8_t* staging, const StepLimits& limits, int pageSize);
  ~PageMover();
  static size_t stagingBytes(const StepLimits& limits, int pageSize);
  size_t pageBytes() const { return pageBytes_; }
  // Copies of slots that were queued before a page moves are done before it does; whether a running step touches the page is the caller's to know.
  // Waits. Throws EngineError "invalid" for a page outside the pool.
  void read(const int* pages, int count, uint8_t* into, const Event& copied);
  void write(const int* pages, int count, const uint8_t* from, const Event& copied);
  // For other copies to new memory of the device, beside running steps.
  const Stream& stream() const { return in_.stream; }

 private:
  struct Way {
    std::mutex mutex;
    Stream stream;
    uint8_t* staging = nullptr;
  };
  // `copy(bytes, at)` brings the staged bytes over the bus, before or after the kernel.
  template <typename Copy>
  void move(Way& way, const int* pages, int count, const Event& copied, bool out, const Copy& copy);

  uint8_t* pool_;
  int pageCount_;
  size_t pageBytes_;
  PageMove move_;
  int atOnce_;
  Way in_, out_;
};

}  // namespace pie
