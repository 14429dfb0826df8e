// Moves pages between the pool and host memory, concurrently with steps.
#pragma once
#include <atomic>
#include <mutex>
#include "memory.h"
#include "options.h"
#include "small.h"
#include "streams.h"

namespace pie {

// A page's bytes on the host: for each layer, its slots' keys and values in the pool's format. In the pool, each layer's part is separate; a kernel
// collects the parts of several pages in a staging buffer, so that one copy transfers them over the bus. The two directions are independent.
class PageMover {
 public:
  // `staging`: stagingBytes() bytes of device memory.
  PageMover(uint8_t* pool, uint8_t* staging, const StepLimits& limits, int pageSize);
  ~PageMover();
  static size_t stagingBytes(const StepLimits& limits, int pageSize);
  size_t pageBytes() const { return pageBytes_; }
  // Waits until done, or with `queue` only queues the move. A page is moved after the slot copies that were queued before (`copied`) and after queued
  // moves; the caller guarantees that no running step touches the page. Throws EngineError "invalid" for a page outside the pool.
  void read(const int* pages, int count, uint8_t* into, const Event& copied, bool queue = false);
  void write(const int* pages, int count, const uint8_t* from, const Event& copied, bool queue = false);
  // Makes later work of a stream wait for the queued moves.
  void order(const Stream& later);
  // Waits for the queued moves.
  void settle();
  // Waits for the moves that were queued before the call. Any thread may call it, also while another one queues moves.
  void wait() const;

 private:
  struct Way {
    std::mutex mutex;
    Stream stream;
    uint8_t* staging = nullptr;
    Event moved{false, true};
    std::atomic<bool> queued{false};  // Moves may be under way that no caller waited for.
  };
  // `copy(bytes, at)` copies the staged bytes over the bus, before or after the kernel.
  template <typename Copy>
  void move(Way& way, Way& other, const int* pages, int count, const Event& copied, bool queue, const Copy& copy);
  static bool isUnderWay(Way& way);

  uint8_t* pool_;
  int pageCount_;
  size_t pageBytes_;
  PageMove move_;
  int atOnce_;
  Way in_, out_;
};

}  // namespace pie
