#include "ceilings.h"
#include <memory>
#include "../kernels/linear/linear.h"
#include "random_weights.h"

namespace pie::harness {

JsonObject measureCopy(size_t bytes, int times) {
  const DeviceBytes from(bytes), to(bytes);
  fillRandom(from, 1, 1);
  const Stream stream;
  const Samples ms = deviceTimes(2, times, stream, [&] {
    checkCuda(cudaMemcpyAsync(to.as<void>(), from.as<void>(), bytes, cudaMemcpyDeviceToDevice, stream), "cudaMemcpyAsync");
  });
  return JsonObject().set("bytes", bytes).raw("ms", ms.json()).set("bytesPerSecond", 2.0 * static_cast<double>(bytes) / (1e-3 * ms.median()));
}

JsonObject measureMatmul(int size, int times) {
  const size_t values = static_cast<size_t>(size) * size;
  const DeviceBytes weight(2 * values), x(2 * values), y(2 * values);
  fillRandom(weight, 1, 1);
  fillRandom(x, 1, 2);
  const Stream stream;
  const std::unique_ptr<CublasLt, decltype(&closeCublasLt)> library(openCublasLt(), closeCublasLt);
  int multiprocessors = 0;
  checkCuda(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0), "cudaDeviceGetAttribute");
  const DeviceBytes workspace(linearWorkspaceBytes(size, size, multiprocessors));
  checkCuda(cudaMemset(workspace.as<void>(), 0, workspace.bytes), "cudaMemset");
  LinearContext context;
  context.workspace = workspace.as<float>();
  context.workspaceBytes = workspace.bytes;
  context.multiprocessors = multiprocessors;
  const Linear<bf16> linear{weight.as<bf16>(), nullptr, size, size};
  JsonObject result;
  result.set("size", size).set("cublas", library != nullptr);
  const auto measure = [&](const char* name, LinearKernel kernel) {
    context.cublas = library.get();
    context.tuning.kernel = kernel;
    const Samples ms = deviceTimes(3, times, stream, [&] {
      launchLinear<bf16>(linear, x.as<bf16>(), size, y.as<void>(), size, size, Epilogue::Store, context, stream);
    });
    result.raw(std::string(name) + "Ms", ms.json());
    result.set(std::string(name) + "FlopsPerSecond", 2.0 * static_cast<double>(values) * size / (1e-3 * ms.median()));
  };
  if (library != nullptr) measure("cublas", LinearKernel::Cublas);
  measure("tiles", LinearKernel::Tiles);
  return result;
}

}  // namespace pie::harness
