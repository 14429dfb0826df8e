// Moves pages between the pool and host memory, concurrently with steps.
#pragma once
#include <atomic>
#include <mutex>
#include "memory.h"
#include "../options.h"
#include "../step/small.h"
#include "../streams.h"

namespace pie {

// A page's bytes on the host: layer by layer, the keys and values of its slots in the pool's format. In the pool, a page has a separate piece in each
// layer. A kernel collects the pieces of several pages in a staging buffer, so that one copy transfers them over the bus. Each direction has its own
// stream and buffer.
class PageMover {
 public:
  // `staging`: stagingBytes() bytes of device memory.
  PageMover(uint8_t* pool, uint8_t* staging, const StepLimits& limits, int pageSize);
  ~PageMover();
  static size_t stagingBytes(const StepLimits& limits, int pageSize);
  size_t pageBytes() const { return pageBytes_; }
  // read and write return when the pages are moved, or with `queue` as soon as the move is queued. A move starts after the slot copies that `copied`
  // marks and after earlier queued moves. The caller guarantees that no running step touches the pages. A page outside the pool throws EngineError
  // "invalid".
  void read(const int* pages, int count, uint8_t* into, const Event& copied, bool queue = false);
  void write(const int* pages, int count, const uint8_t* from, const Event& copied, bool queue = false);
  // Makes later work of a stream wait for the queued moves.
  void order(const Stream& later);
  // Waits for the queued moves.
  void settle();
  // Waits for the moves that were queued before the call. Any thread may call it, also while another one queues moves.
  void wait() const;

 private:
  // One direction of moves.
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
