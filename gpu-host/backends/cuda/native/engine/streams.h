// CUDA's streams and events, which free themselves.
#pragma once
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
  // What is queued from here on starts after `event`, as it was recorded last; at once if it never was.
  void wait(cudaEvent_t event) const { CUDA_CALL(cudaStreamWaitEvent(stream_, event, 0)); }

 private:
  cudaStream_t stream_ = nullptr;
};

class Event {
 public:
  explicit Event(bool timing = false) { CUDA_CALL(cudaEventCreateWithFlags(&event_, timing ? cudaEventDefault : cudaEventDisableTiming)); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event() { (void)cudaEventDestroy(event_); }
  operator cudaEvent_t() const { return event_; }
  void record(const Stream& stream) const { CUDA_CALL(cudaEventRecord(event_, stream)); }
  void synchronize() const { CUDA_CALL(cudaEventSynchronize(event_)); }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace pie
