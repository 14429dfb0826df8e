#include "measure.h"
#include <memory>
#include <type_traits>

namespace pie::harness {

namespace {

struct Event {
  Event() { require(cudaEventCreate(&event), "cudaEventCreate"); }
  ~Event() { cudaEventDestroy(event); }
  cudaEvent_t event = nullptr;
};

}  // namespace

Samples deviceTimes(int warm, int times, cudaStream_t stream, const std::function<void()>& work) {
  const Event began, ended;
  Samples samples;
  for (int i = 0; i < warm + times; i++) {
    require(cudaEventRecord(began.event, stream), "cudaEventRecord");
    work();
    require(cudaGetLastError(), "a launch");
    require(cudaEventRecord(ended.event, stream), "cudaEventRecord");
    require(cudaEventSynchronize(ended.event), "cudaEventSynchronize");
    float ms = 0;
    require(cudaEventElapsedTime(&ms, began.event, ended.event), "cudaEventElapsedTime");
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
  require(cudaGetLastError(), "a launch");
  require(cudaStreamSynchronize(stream), "a kernel");
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t replay = nullptr;
  require(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  for (int i = 0; i < count; i++) launch(i);
  require(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
  const cudaError_t made = cudaGraphInstantiate(&replay, graph, 0);
  cudaGraphDestroy(graph);
  require(made, "cudaGraphInstantiate");
  const std::unique_ptr<std::remove_pointer_t<cudaGraphExec_t>, decltype(&cudaGraphExecDestroy)> owner(replay, cudaGraphExecDestroy);
  return deviceTimes(1, replays, stream, [&] { require(cudaGraphLaunch(replay, stream), "cudaGraphLaunch"); }).times(1e3 / count);
}

}  // namespace pie::harness
