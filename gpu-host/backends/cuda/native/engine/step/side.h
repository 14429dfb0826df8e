// Device work besides steps: projections and scores of states, copies between slots. This work is queued on the computing stream between steps and
// uses their scratch memory. Projections and scores wait for their results, but hold the lock of the engine's calls only while they queue work, so
// that steps are submitted meanwhile. Copies do not wait: their slot lists take turns in pinned buffers, and a buffer is reused once its earlier
// lists are uploaded.
#pragma once
#include <mutex>
#include "../memory/copies.h"
#include "layers.h"
#include "../streams.h"

namespace pie {

template <typename T>
class SideWork {
 public:
  // `memory`: deviceBytes() bytes of device memory. `calls`: held by every call that queues work on `computing`.
  SideWork(const DeviceModel<T>& model, uint8_t* memory, const Stream& computing, std::mutex& calls);
  ~SideWork() { (void)cudaStreamSynchronize(computing_); }
  static size_t deviceBytes(const PlanContext& context);

  // project and score wait for their results and lock `calls` themselves. State i scores the tokens from first[i] to first[i + 1], exclusive.
  void project(const float* states, int count, int topK, uint32_t* tokens, float* logProbabilities);
  void score(const float* states, int count, const uint32_t* tokens, const int* first, float* logProbabilities, float* entropies);
  // Returns once the copies are queued, and records `copied` after them. The caller holds `calls`.
  void copySlots(const uint32_t* sources, const uint32_t* destinations, const int32_t* shifts, int pairs);
  const Event& copied() const { return copied_; }

 private:
  static constexpr int COPIES = 8;  // Number of pinned buffers for slot lists.
  // Queues work and waits for it. The steps that are submitted meanwhile overwrite the scratch memory, so each round is complete in itself.
  template <typename Queue>
  void round(const Queue& queue);
  uint8_t* upload(size_t at, const void* from, size_t bytes);
  void copyRound(const CopyRound& round, bool shifts);
  const uint8_t* download(size_t at, size_t bytes);
  void logitsOf(const float* states, int count);
  int pairsAtOnce() const;

  const DeviceModel<T>& model_;
  uint8_t* memory_;
  const Stream& computing_;
  std::mutex& calls_;
  std::mutex waiting_;  // Held by the one projection or scoring that uses `host_`.
  Event ended_{false, true};
  PinnedBlock host_;
  PinnedBlock lists_;
  Event listsRead_[COPIES];
  int place_ = 0;  // The next buffer in `lists_`.
  Event copied_;
};

}  // namespace pie
