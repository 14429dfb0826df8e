#include "measure.h"
#include <algorithm>
#include <memory>
#include <type_traits>

namespace pie::harness {

Samples deviceTimes(int warm, int times, cudaStream_t stream, const std::function<void()>& work) {
  const Event began(true), ended(true);
  Samples samples;
  for (int i = 0; i < warm + times; i++) {
    checkCuda(cudaEventRecord(began, stream), "cudaEventRecord");
    work();
    checkCuda(cudaGetLastError(), "a launch");
    checkCuda(cudaEventRecord(ended, stream), "cudaEventRecord");
    checkCuda(cudaEventSynchronize(ended), "cudaEventSynchronize");
    float ms = 0;
    checkCuda(cudaEventElapsedTime(&ms, began, ended), "cudaEventElapsedTime");
    if (i >= warm) samples.add(ms);
  }
  return samples;
}

Samples launchTimes(int count, int replays, cudaStream_t stream, const std::function<void(int)>& launch) {
#ifdef PIE_EMULATED
  // Emulated times are meaningless.
  count = std::min(count, 2);
  replays = 1;
#endif
  // Once without a graph: libraries choose and load their kernels at the first launch.
  launch(0);
  checkCuda(cudaGetLastError(), "a launch");
  checkCuda(cudaStreamSynchronize(stream), "a kernel");
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t replay = nullptr;
  checkCuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  for (int i = 0; i < count; i++) launch(i);
  checkCuda(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
  const cudaError_t made = cudaGraphInstantiate(&replay, graph, 0);
  cudaGraphDestroy(graph);
  checkCuda(made, "cudaGraphInstantiate");
  const std::unique_ptr<std::remove_pointer_t<cudaGraphExec_t>, decltype(&cudaGraphExecDestroy)> owner(replay, cudaGraphExecDestroy);
  return deviceTimes(1, replays, stream, [&] { checkCuda(cudaGraphLaunch(replay, stream), "cudaGraphLaunch"); }).times(1e3 / count);
}

}  // namespace pie::harness
