#include "../device/capability.h"
#include "engine.h"
#include "errors.h"

namespace pie {

// Without a driver or a device the list is empty; that is not an error.
std::vector<DeviceInfo> devices() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    (void)cudaGetLastError();
    return {};
  }
  int driver = 0, runtime = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess) driver = 0;
  if (cudaRuntimeGetVersion(&runtime) != cudaSuccess) runtime = 0;
  std::vector<DeviceInfo> found;
  for (int i = 0; i < count; i++) {
    cudaDeviceProp properties;
    if (cudaGetDeviceProperties(&properties, i) != cudaSuccess) continue;
    found.push_back({properties.name, properties.totalGlobalMem, properties.multiProcessorCount, properties.major, properties.minor,
                     builtFor(properties.major, properties.minor, properties.sharedMemPerBlockOptin), driver, runtime});
  }
  (void)cudaGetLastError();
  return found;
}

void* allocatePinned(size_t bytes) {
  void* data = nullptr;
  if (cudaHostAlloc(&data, bytes, cudaHostAllocPortable) == cudaSuccess) return data;
  (void)cudaGetLastError();
  return nullptr;
}

void freePinned(void* data) {
  if (data) (void)cudaFreeHost(data);
}

}  // namespace pie
