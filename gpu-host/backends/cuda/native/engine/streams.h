// Owning wrappers of CUDA streams and events.
#pragma once
#include <algorithm>
#include <chrono>
#include <thread>
#include "errors.h"

namespace pie {

class Stream {
 public:
  Stream() { CUDA_CALL(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() { (void)cudaStreamDestroy(stream_); }
  operator cudaStream_t() const { return stream_; }
  void synchronize() const { CUDA_CALL(cudaStreamSynchronize(stream_)); }
  // Makes later work of this stream wait for the work that precedes the last record() of `event`. Does nothing if `event` was never recorded. The
  // calling thread does not wait.
  void wait(cudaEvent_t event) const { CUDA_CALL(cudaStreamWaitEvent(stream_, event, 0)); }

 private:
  cudaStream_t stream_ = nullptr;
};

class Event {
 public:
  // `timing`: the event records its time, for cudaEventElapsedTime.
  // `blocking`: in synchronize() without arguments, the thread sleeps instead of polling.
  explicit Event(bool timing = false, bool blocking = false) {
    CUDA_CALL(cudaEventCreateWithFlags(&event_, (timing ? cudaEventDefault : cudaEventDisableTiming) | (blocking ? cudaEventBlockingSync : 0)));
  }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event() { (void)cudaEventDestroy(event_); }
  operator cudaEvent_t() const { return event_; }
  void record(const Stream& stream) const { CUDA_CALL(cudaEventRecord(event_, stream)); }
  void synchronize() const { CUDA_CALL(cudaEventSynchronize(event_)); }
  // True when all work that precedes the last record() has ended, or when the event was never recorded.
  bool isReached() const {
    const cudaError_t error = cudaEventQuery(event_);
    if (error == cudaSuccess) return true;
    if (error != cudaErrorNotReady) checkCuda(error, "cudaEventQuery");
    // CUDA keeps cudaErrorNotReady as the thread's last error. Clear it, so that no later check reports it.
    (void)cudaGetLastError();
    return false;
  }
  // Waits for the event in three phases. Until `near`, the thread sleeps between queries. Until `late`, it queries without a pause, to notice the
  // event without delay. After `late`, it waits as in synchronize(). Returns false if the event was already reached at the first query.
  bool synchronize(std::chrono::steady_clock::time_point near, std::chrono::steady_clock::time_point late) const {
    constexpr std::chrono::microseconds NAP(250);
    for (bool running = false;; running = true) {
      if (isReached()) return running;
      const auto now = std::chrono::steady_clock::now();
      if (now >= late) break;
      if (now < near) std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(NAP, near - now));
    }
    synchronize();
    return true;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace pie
