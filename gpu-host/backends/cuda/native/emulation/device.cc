// Properties of the emulated device: like an H100 or H200, but small.
#include <cstdio>
#include <cstring>
#include "internal.h"

using emulation::api;
using emulation::device;

cudaError_t cudaGetDeviceCount(int* count) {
  return api("cudaGetDeviceCount", [&] {
    *count = device().count;
    return *count > 0 ? cudaSuccess : cudaErrorNoDevice;
  });
}

cudaError_t cudaSetDevice(int number) {
  return api("cudaSetDevice", [&] {
    if (device().count == 0) return cudaErrorNoDevice;
    return number < 0 || number >= device().count ? cudaErrorInvalidDevice : cudaSuccess;
  });
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int number) {
  return api("cudaGetDeviceProperties", [&] {
    if (number < 0 || number >= device().count) return cudaErrorInvalidDevice;
    *properties = {};
    std::snprintf(properties->name, sizeof properties->name, "Emulated device");
    properties->totalGlobalMem = device().memoryBytes;
    properties->sharedMemPerBlockOptin = pie::SHARED_BYTES;
    properties->major = device().capability / 10;
    properties->minor = device().capability % 10;
    properties->multiProcessorCount = device().multiprocessors;
    return cudaSuccess;
  });
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int number) {
  return api("cudaDeviceGetAttribute", [&] {
    if (number < 0 || number >= device().count) return cudaErrorInvalidDevice;
    switch (attribute) {
      case cudaDevAttrMultiProcessorCount: *value = device().multiprocessors; return cudaSuccess;
      case cudaDevAttrMemoryClockRate: *value = 1000000; return cudaSuccess;
      case cudaDevAttrGlobalMemoryBusWidth: *value = 5120; return cudaSuccess;
      case cudaDevAttrComputeCapabilityMajor: *value = device().capability / 10; return cudaSuccess;
      case cudaDevAttrComputeCapabilityMinor: *value = device().capability % 10; return cudaSuccess;
      case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = pie::SHARED_BYTES; return cudaSuccess;
    }
    return cudaErrorInvalidValue;
  });
}
cudaError_t cudaDriverGetVersion(int* version) { return *version = 13000, cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int* version) { return *version = 13000, cudaSuccess; }
