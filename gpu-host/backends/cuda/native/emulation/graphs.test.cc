// Capture and replay of graphs in the emulated runtime.
#include <set>
#include <vector>
#include "../testing/device.h"
#include "../testing/test.h"

using testing::cudaOk;
using testing::DeviceArray;

namespace {

__global__ void add(int* value, int by) { atomicAdd(value, by); }
__global__ void multiply(int* value, int by) { *value *= by; }
__global__ void note(int* order, int* next, int who) { order[atomicAdd(next, 1)] = who; }

struct Streams {
  cudaStream_t main, side;
  cudaEvent_t forked, joined;
  Streams() {
    cudaOk(cudaStreamCreateWithFlags(&main, cudaStreamNonBlocking));
    cudaOk(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking));
    cudaOk(cudaEventCreateWithFlags(&forked, cudaEventDisableTiming));
    cudaOk(cudaEventCreateWithFlags(&joined, cudaEventDisableTiming));
  }
  ~Streams() {
    (void)cudaEventDestroy(forked);
    (void)cudaEventDestroy(joined);
    (void)cudaStreamDestroy(main);
    (void)cudaStreamDestroy(side);
    (void)cudaGetLastError();
  }
  // fork() adds the side stream to main's capture; join() makes main wait for the side stream.
  void fork() {
    cudaOk(cudaEventRecord(forked, main));
    cudaOk(cudaStreamWaitEvent(side, forked));
  }
  void join() {
    cudaOk(cudaEventRecord(joined, side));
    cudaOk(cudaStreamWaitEvent(main, joined));
  }
};

cudaGraphExec_t instantiate(cudaGraph_t graph) {
  cudaGraphExec_t exec = nullptr;
  cudaOk(cudaGraphInstantiate(&exec, graph, 0));
  cudaOk(cudaGraphDestroy(graph));
  return exec;
}

}  // namespace

TEST("a captured launch runs when its graph is launched, with the arguments that it had at the capture") {
  Streams streams;
  DeviceArray<int> value(std::vector<int>{1});
  int* pinned = nullptr;
  cudaOk(cudaMallocHost(&pinned, sizeof(int)));
  *pinned = 3;
  cudaOk(cudaStreamBeginCapture(streams.main, cudaStreamCaptureModeThreadLocal));
  int by = 5;
  cudaOk(cudaMemcpyAsync(value.get(), pinned, sizeof(int), cudaMemcpyHostToDevice, streams.main));
  LAUNCH(add, 1, 1, 0, streams.main, value.get(), by);
  by = 100;
  LAUNCH(multiply, 1, 1, 0, streams.main, value.get(), 2);
  cudaStreamCaptureStatus status;
  cudaOk(cudaStreamIsCapturing(streams.main, &status));
  CHECK_EQUAL(status, cudaStreamCaptureStatusActive);
  cudaGraph_t graph = nullptr;
  cudaOk(cudaStreamEndCapture(streams.main, &graph));
  size_t nodes = 0;
  cudaOk(cudaGraphGetNodes(graph, nullptr, &nodes));
  CHECK_EQUAL(nodes, size_t{3});
  CHECK_EQUAL(value.host()[0], 1);
  const cudaGraphExec_t exec = instantiate(graph);
  cudaOk(cudaGraphLaunch(exec, streams.main));
  CHECK_EQUAL(value.host()[0], 16);  // (3 + 5) × 2
  // Memory is read when the graph runs.
  *pinned = 10;
  cudaOk(cudaGraphLaunch(exec, streams.main));
  CHECK_EQUAL(value.host()[0], 30);  // (10 + 5) × 2
  cudaOk(cudaGraphExecDestroy(exec));
  cudaOk(cudaFreeHost(pinned));
}

TEST("streams that are forked and joined form one graph; unordered work runs in any order") {
  Streams streams;
  DeviceArray<int> order(4), next(std::vector<int>{0});
  cudaOk(cudaStreamBeginCapture(streams.main, cudaStreamCaptureModeThreadLocal));
  LAUNCH(note, 1, 1, 0, streams.main, order.get(), next.get(), 1);
  streams.fork();
  LAUNCH(note, 1, 1, 0, streams.side, order.get(), next.get(), 2);
  LAUNCH(note, 1, 1, 0, streams.main, order.get(), next.get(), 3);
  streams.join();
  LAUNCH(note, 1, 1, 0, streams.main, order.get(), next.get(), 4);
  cudaGraph_t graph = nullptr;
  cudaOk(cudaStreamEndCapture(streams.main, &graph));
  const cudaGraphExec_t exec = instantiate(graph);
  std::set<std::vector<int>> seen;
  for (int round = 0; round < 20; round++) {
    next.set({0});
    cudaOk(cudaGraphLaunch(exec, streams.main));
    seen.insert(order.host());
  }
  CHECK(seen == std::set<std::vector<int>>({{1, 2, 3, 4}, {1, 3, 2, 4}}));
  cudaOk(cudaGraphExecDestroy(exec));
}

TEST("a forbidden call invalidates the capture") {
  Streams streams;
  DeviceArray<int> value(std::vector<int>{1});
  const auto failure = [&](auto body) {
    cudaOk(cudaStreamBeginCapture(streams.main, cudaStreamCaptureModeThreadLocal));
    LAUNCH(add, 1, 1, 0, streams.main, value.get(), 1);
    body();
    cudaGraph_t graph = nullptr;
    const cudaError_t error = cudaStreamEndCapture(streams.main, &graph);
    CHECK(graph == nullptr);
    (void)cudaGetLastError();
    return error;
  };
  CHECK_EQUAL(failure([&] {
                void* memory = nullptr;
                CHECK_EQUAL(cudaMalloc(&memory, 16), cudaErrorStreamCaptureUnsupported);
              }),
              cudaErrorStreamCaptureInvalidated);
  CHECK_EQUAL(failure([&] { CHECK_EQUAL(cudaStreamSynchronize(streams.main), cudaErrorStreamCaptureUnsupported); }), cudaErrorStreamCaptureInvalidated);
  CHECK_EQUAL(failure([&] {
                streams.fork();
                LAUNCH(add, 1, 1, 0, streams.side, value.get(), 1);
              }),
              cudaErrorStreamCaptureUnjoined);
  CHECK_EQUAL(failure([&] {
                // An event of a stream that is not part of the capture.
                cudaOk(cudaEventRecord(streams.joined, streams.side));
                CHECK_EQUAL(cudaStreamWaitEvent(streams.main, streams.joined), cudaErrorStreamCaptureIsolation);
              }),
              cudaErrorStreamCaptureInvalidated);
  CHECK_EQUAL(value.host()[0], 1);
}

TEST("a capture refuses copies of pageable memory") {
  Streams streams;
  DeviceArray<int> value(std::vector<int>{1});
  int host = 0;
  cudaOk(cudaStreamBeginCapture(streams.main, cudaStreamCaptureModeThreadLocal));
  CHECK_EQUAL(cudaMemcpyAsync(value.get(), &host, sizeof host, cudaMemcpyHostToDevice, streams.main), cudaErrorStreamCaptureUnsupported);
  cudaGraph_t graph = nullptr;
  cudaOk(cudaStreamEndCapture(streams.main, &graph));
  cudaOk(cudaGraphDestroy(graph));
}

TEST("a kernel that fails within a graph loses the device") {
  Streams streams;
  DeviceArray<int> value(std::vector<int>{1});
  cudaOk(cudaStreamBeginCapture(streams.main, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < 3; i++) LAUNCH(add, 1, 1, 0, streams.main, value.get(), 1);
  cudaGraph_t graph = nullptr;
  cudaOk(cudaStreamEndCapture(streams.main, &graph));
  const cudaGraphExec_t exec = instantiate(graph);
  emulation::failKernel(1, cudaErrorLaunchFailure);
  cudaOk(cudaGraphLaunch(exec, streams.main));
  CHECK_EQUAL(cudaStreamSynchronize(streams.main), cudaErrorLaunchFailure);
  emulation::restoreDevice();
  CHECK_EQUAL(value.host()[0], 2);
  cudaOk(cudaGraphExecDestroy(exec));
}
