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
  // Work queued from here on starts after the last recording of `event`; at once if it was never recorded.
  void wait(cudaEvent_t event) const { CUDA_CALL(cudaStreamWaitEvent(stream_, event, 0)); }

 private:
  cudaStream_t stream_ = nullptr;
};

class Event {
 public:
  // `blocking`: synchronize() sleeps instead of spinning.
  explicit Event(bool timing = false, bool blocking = false) {
    CUDA_CALL(cudaEventCreateWithFlags(&event_, (timing ? cudaEventDefault : cudaEventDisableTiming) | (blocking ? cudaEventBlockingSync : 0)));
  }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event() { (void)cudaEventDestroy(event_); }
  operator cudaEvent_t() const { return event_; }
  void record(const Stream& stream) const { CUDA_CALL(cudaEventRecord(event_, stream)); }
  void synchronize() const { CUDA_CALL(cudaEventSynchronize(event_)); }
  // True when all work before the last recording has ended.
  bool isReached() const {
    const cudaError_t error = cudaEventQuery(event_);
    if (error == cudaSuccess) return true;
    if (error != cudaErrorNotReady) checkCuda(error, "cudaEventQuery");
    // cudaErrorNotReady is kept as the thread's last error; clear it.
    (void)cudaGetLastError();
    return false;
  }
  // Sleeps between queries until `near`, polls until `late` to notice the end without delay, then waits like synchronize(). Returns false if the
  // event had been reached at the first query.
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
