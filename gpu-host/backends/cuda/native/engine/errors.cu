#include "errors.h"

namespace pie {

namespace {
// Reports "cudaMalloc(&p, n)" as "cudaMalloc".
std::string nameOf(const std::string& call) { return call.substr(0, call.find('(')); }
}  // namespace

CudaFailure::CudaFailure(cudaError_t error, const std::string& call)
    : std::runtime_error(nameOf(call) + ": " + cudaGetErrorString(error) + " (" + std::to_string(static_cast<int>(error)) + ")"), error(error) {}

void checkCuda(cudaError_t error, const char* call) {
  if (error != cudaSuccess) throw CudaFailure(error, call);
}

void Health::enter() const {
  if (!lost()) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  throw EngineError("cuda", message_);
}

void Health::lose(const std::string& doing, const CudaFailure& failure) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (message_.empty()) message_ = doing + ": " + failure.what();
  lost_.store(true, std::memory_order_release);
  throw EngineError("cuda", message_);
}

void refuse(const std::string& message) { throw EngineError("invalid", message); }

}  // namespace pie
