// Work on the device beside steps: projection and scores of states, copies between slots. It is queued on the computing stream, between steps, and works
// in their scratch. Projections and scores are waited for; copies are not: their lists lie in a ring of places in pinned memory, of which each is waited for
// before it is written again.
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
  static constexpr int COPIES = 8;  // Under way at once.
  uint8_t* upload(size_t at, const void* from, size_t bytes);
  void copyRound(const CopyRound& round, bool shifts);
  const uint8_t* download(size_t at, size_t bytes);
  void logitsOf(const float* states, int count);
  int pairsAtOnce() const;

  const DeviceModel<T>& model_;
  uint8_t* memory_;
  const Stream& computing_;
  PinnedBlock host_;
  PinnedBlock lists_;
  Event listsRead_[COPIES];
  int place_ = 0;
  Event copied_;
};

}  // namespace pie
