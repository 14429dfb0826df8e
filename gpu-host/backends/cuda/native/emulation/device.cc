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

static thread_local int chosen = 0;

cudaError_t cudaGetDevice(int* number) {
  return api("cudaGetDevice", [&] {
    *number = chosen;
    return device().count > 0 ? cudaSuccess : cudaErrorNoDevice;
  });
}
cudaError_t cudaSetDevice(int number) {
  return api("cudaSetDevice", [&] {
    if (device().count == 0) return cudaErrorNoDevice;
    if (number < 0 || number >= device().count) return cudaErrorInvalidDevice;
    chosen = number;
    return cudaSuccess;
  });
}
cudaError_t cudaSetDeviceFlags(unsigned) {
  return api("cudaSetDeviceFlags", [] { return cudaSuccess; });
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int number) {
  return api("cudaGetDeviceProperties", [&] {
    if (number < 0 || number >= device().count) return cudaErrorInvalidDevice;
    *properties = {};
    std::snprintf(properties->name, sizeof properties->name, "Emulated device");
    properties->totalGlobalMem = device().memoryBytes;
    properties->sharedMemPerBlock = 48 << 10;
    properties->sharedMemPerBlockOptin = pie::SHARED_BYTES;
    properties->sharedMemPerMultiprocessor = pie::MULTIPROCESSOR_SHARED_BYTES;
    properties->regsPerBlock = 65536;
    properties->warpSize = 32;
    properties->maxThreadsPerBlock = 1024;
    properties->maxThreadsPerMultiProcessor = 2048;
    properties->major = device().capability / 10;
    properties->minor = device().capability % 10;
    properties->multiProcessorCount = device().multiprocessors;
    properties->l2CacheSize = 50 << 20;
    properties->memoryBusWidth = 5120;
    properties->ECCEnabled = 1;
    return cudaSuccess;
  });
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int number) {
  return api("cudaDeviceGetAttribute", [&] {
    if (number < 0 || number >= device().count) return cudaErrorInvalidDevice;
    switch (attribute) {
      case cudaDevAttrMaxThreadsPerBlock: *value = 1024; return cudaSuccess;
      case cudaDevAttrMaxSharedMemoryPerBlock: *value = 48 << 10; return cudaSuccess;
      case cudaDevAttrClockRate: *value = 1000000; return cudaSuccess;
      case cudaDevAttrMultiProcessorCount: *value = device().multiprocessors; return cudaSuccess;
      case cudaDevAttrMemoryClockRate: *value = 1000000; return cudaSuccess;
      case cudaDevAttrGlobalMemoryBusWidth: *value = 5120; return cudaSuccess;
      case cudaDevAttrL2CacheSize: *value = 50 << 20; return cudaSuccess;
      case cudaDevAttrComputeCapabilityMajor: *value = device().capability / 10; return cudaSuccess;
      case cudaDevAttrComputeCapabilityMinor: *value = device().capability % 10; return cudaSuccess;
      case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = pie::MULTIPROCESSOR_SHARED_BYTES; return cudaSuccess;
      case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = pie::SHARED_BYTES; return cudaSuccess;
    }
    return cudaErrorInvalidValue;
  });
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return api("cudaDeviceGetStreamPriorityRange", [&] {
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
  });
}
cudaError_t cudaDriverGetVersion(int* version) { return *version = 13000, cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int* version) { return *version = 13000, cudaSuccess; }
