// Launches, and the shared memory that kernels opt into.
#include "../device/capability.h"
#include "launch.h"
#include "stream.h"

#undef gridDim
#undef blockDim

namespace emulation {

cudaError_t launch(const cudaLaunchConfig_t& config, const void* kernel, const char* name, std::function<void()> body) {
  return api("launch", [&] {
    const dim3 grid = config.gridDim, block = config.blockDim;
    const size_t shared = config.dynamicSmemBytes;
    if (!isStream(config.stream)) return cudaErrorInvalidResourceHandle;
    const size_t threads = size_t{block.x} * block.y * block.z;
    if (threads == 0 || threads > 1024 || block.z > 64) return cudaErrorInvalidConfiguration;
    if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535) return cudaErrorInvalidConfiguration;
    if (shared > 48 << 10) {
      Lock lock(registry().mutex);
      const auto allowed = registry().dynamicShared.find(kernel);
      if (allowed == registry().dynamicShared.end() || shared > static_cast<size_t>(allowed->second)) return cudaErrorInvalidValue;
    }
    bool early = false;
    for (unsigned i = 0; i < config.numAttrs; i++)
      if (config.attrs[i].id == cudaLaunchAttributeProgrammaticStreamSerialization) early = config.attrs[i].val.programmaticStreamSerializationAllowed != 0;
    return enqueue(config.stream, {nullptr, std::make_shared<Grid>(Grid{name, grid, block, shared, std::move(body), early})});
  });
}

}  // namespace emulation

using namespace emulation;

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  return api("cudaFuncSetAttribute", [&] {
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaErrorNotSupported;
    if (value < 0 || value > pie::SHARED_BYTES) return cudaErrorInvalidValue;
    Lock lock(registry().mutex);
    registry().dynamicShared[kernel] = value;
    return cudaSuccess;
  });
}
