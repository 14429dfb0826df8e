// Every CUDA call is checked; what a failed one means is decided at the engine's edge.
#pragma once
#include <atomic>
#include <mutex>
#include <stdexcept>
#include <string>
#include "../device/device.h"
#include "engine.h"

namespace pie {

// A CUDA call that failed: its name and the driver's words.
struct CudaFailure : std::runtime_error {
  CudaFailure(cudaError_t error, const std::string& call);
  cudaError_t error;
};

void checkCuda(cudaError_t error, const char* call);
#define CUDA_CALL(call) ::pie::checkCuda((call), #call)

// Launches report their errors here, some of them late.
inline void checkLaunches() { CUDA_CALL(cudaGetLastError()); }

// Whether the device still answers. After the first failure nothing that runs on it can be trusted (CUDA's errors are sticky, and a step that stopped half
// way has left the pool in between), so that every later call is refused with the first failure's words.
class Health {
 public:
  // Throws EngineError "cuda" when the device is lost.
  void enter() const;
  bool lost() const { return lost_.load(std::memory_order_acquire); }
  // Runs a call of the engine; a CudaFailure in it loses the device.
  template <typename Work>
  auto guard(const std::string& doing, Work&& work) -> decltype(work()) {
    enter();
    try {
      return work();
    } catch (const CudaFailure& failure) {
      lose(doing, failure);
    }
  }

 private:
  [[noreturn]] void lose(const std::string& doing, const CudaFailure& failure);
  std::atomic<bool> lost_{false};
  mutable std::mutex mutex_;
  std::string message_;
};

[[noreturn]] void refuse(const std::string& message);  // EngineError "invalid".

}  // namespace pie
