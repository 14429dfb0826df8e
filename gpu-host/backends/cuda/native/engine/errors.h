// Checks of CUDA calls. Every call is checked; the engine's public functions decide what a failure means.
#pragma once
#include <atomic>
#include <mutex>
#include <stdexcept>
#include <string>
#include "../device/device.h"
#include "engine.h"

namespace pie {

// A failed CUDA call: its name and the driver's error.
struct CudaFailure : std::runtime_error {
  CudaFailure(cudaError_t error, const std::string& call);
  cudaError_t error;
};

void checkCuda(cudaError_t error, const char* call);
#define CUDA_CALL(call) ::pie::checkCuda((call), #call)

// Kernel launches report errors through cudaGetLastError, some of them late.
inline void checkLaunches() { CUDA_CALL(cudaGetLastError()); }

// Tracks whether the device still works. After the first failure no result can be trusted: CUDA's errors are sticky, and an interrupted step leaves
// the pool in an intermediate state. Every later call throws the first failure's message.
class Health {
 public:
  // Throws EngineError "cuda" if the device is lost.
  void enter() const;
  bool lost() const { return lost_.load(std::memory_order_acquire); }
  // Runs a call of the engine; if it throws CudaFailure, the device is lost.
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

[[noreturn]] void refuse(const std::string& message);  // Throws EngineError "invalid".

}  // namespace pie
