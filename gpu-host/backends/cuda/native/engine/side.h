// Work on the device beside steps: projection and scores of states, copies between slots. It is queued on the computing stream, between steps, and works
// in their scratch; its own inputs and results lie in one block on either side, which the next such work waits for.
#pragma once
#include "copies.h"
#include "layers.h"
#include "streams.h"

namespace pie {

template <typename T>
class SideWork {
 public:
  // `memory`: of deviceBytes() on the device.
  SideWork(const DeviceModel<T>& model, uint8_t* memory, const Stream& computing);
  ~SideWork() { (void)cudaStreamSynchronize(computing_); }
  static size_t deviceBytes(const PlanContext& context);

  // Both wait.
  void project(const float* states, int count, int topK, uint32_t* tokens, float* logProbabilities);
  void score(const float* states, int count, const uint32_t* tokens, const int* first, float* logProbabilities, float* entropies);
  // Returns when it is queued; `copied` is recorded behind it.
  void copySlots(const uint32_t* sources, const uint32_t* destinations, const int32_t* shifts, int pairs);
  const Event& copied() const { return copied_; }

 private:
  uint8_t* upload(size_t at, const void* from, size_t bytes);
  const uint8_t* download(size_t at, size_t bytes);
  void logitsOf(const float* states, int count);
  int pairsAtOnce() const;

  const DeviceModel<T>& model_;
  uint8_t* memory_;
  const Stream& computing_;
  PinnedBlock host_;
  Event copied_;
};

}  // namespace pie
