#include "memory.h"
#include <string>
#include "../errors.h"

namespace pie {

DeviceBlock::DeviceBlock(size_t bytes, const char* what) : bytes_(blockBytes(bytes)) {
  bytes = bytes_;
  if (bytes == 0) return;
  const cudaError_t error = cudaMalloc(&data_, bytes);
  if (error == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();  // Clears the error, so that the next launch does not report it again.
    size_t free = 0, total = 0;
    CUDA_CALL(cudaMemGetInfo(&free, &total));
    throw EngineError("out-of-memory", std::string("The device cannot allocate ") + std::to_string(bytes) + " bytes for " + what + " (" +
                                          std::to_string(free) + " are free).");
  }
  checkCuda(error, "cudaMalloc");
}

// cudaFree may fail on a lost device; its memory is freed with the process.
DeviceBlock::~DeviceBlock() {
  if (data_) (void)cudaFree(data_);
}

PinnedBlock::PinnedBlock(size_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  data_ = allocatePinned(bytes);
  if (!data_) throw EngineError("out-of-memory", "The host cannot allocate " + std::to_string(bytes) + " bytes of pinned memory.");
}

PinnedBlock::~PinnedBlock() { freePinned(data_); }

}  // namespace pie
