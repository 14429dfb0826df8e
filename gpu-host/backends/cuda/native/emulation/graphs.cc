// Captures and graphs.
#include <algorithm>
#include "stream.h"

namespace emulation {

namespace {

// An order that the dependencies allow, a different one for each `random`.
std::vector<size_t> orderOf(const std::vector<CUgraph_st::Node>& nodes, uint64_t random) {
  std::vector<size_t> order, missing(nodes.size()), ready;
  std::vector<std::vector<size_t>> followers(nodes.size());
  for (size_t i = 0; i < nodes.size(); i++) {
    missing[i] = nodes[i].after.size();
    for (const size_t before : nodes[i].after) followers[before].push_back(i);
    if (missing[i] == 0) ready.push_back(i);
  }
  while (!ready.empty()) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    const size_t pick = (random >> 33) % ready.size(), node = ready[pick];
    ready.erase(ready.begin() + static_cast<long>(pick));
    order.push_back(node);
    for (const size_t follower : followers[node])
      if (--missing[follower] == 0) ready.push_back(follower);
  }
  return order;
}

// Runs all nodes. A kernel may begin before the preceding node ends only if that node is its one dependency.
void performGraph(CUgraphExec_st& graph) {
  const auto& nodes = graph.nodes;
  const std::vector<size_t> order = orderOf(nodes, ++graph.launches * 0x9E3779B97F4A7C15u);
  Sequence sequence;
  for (size_t i = 0; i < order.size(); i++) {
    const bool follows = i + 1 < order.size() && nodes[order[i + 1]].after == std::vector<size_t>{order[i]};
    sequence.run(nodes[order[i]].work, follows ? &nodes[order[i + 1]].work : nullptr);
  }
}

}  // namespace

size_t addNode(Capture& capture, Work work, std::vector<size_t> after) {
  std::sort(after.begin(), after.end());
  after.erase(std::unique(after.begin(), after.end()), after.end());
  capture.graph->nodes.push_back({std::move(work), std::move(after)});
  return capture.graph->nodes.size() - 1;
}

void drop(const std::shared_ptr<Capture>& capture) {
  Registry& all = registry();
  for (const cudaStream_t stream : capture->streams) stream->capture.reset(), stream->tail.clear();
  all.captures.erase(capture);
}

std::shared_ptr<Capture> captureOf(cudaStream_t stream) {
  Lock lock(registry().mutex);
  return stream ? stream->capture : nullptr;
}

cudaError_t forbiddenWhileCapturing() {
  Lock lock(registry().mutex);
  bool forbidden = false;
  for (const auto& capture : registry().captures) {
    if (capture->mode == cudaStreamCaptureModeRelaxed) continue;
    if (capture->mode == cudaStreamCaptureModeThreadLocal && capture->thread != std::this_thread::get_id()) continue;
    capture->invalid = forbidden = true;
  }
  return forbidden ? cudaErrorStreamCaptureUnsupported : cudaSuccess;
}

void endCaptures() {
  Lock lock(registry().mutex);
  while (!registry().captures.empty()) {
    const auto capture = *registry().captures.begin();
    delete capture->graph;
    drop(capture);
  }
}

}  // namespace emulation

using namespace emulation;

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return api("cudaStreamBeginCapture", [&] {
    Lock lock(registry().mutex);
    if (!stream) return cudaErrorStreamCaptureUnsupported;
    if (!isStream(stream)) return cudaErrorInvalidResourceHandle;
    if (stream->capture) return cudaErrorIllegalState;
    auto capture = std::make_shared<Capture>();
    capture->mode = mode;
    capture->thread = std::this_thread::get_id();
    capture->origin = stream;
    capture->graph = new CUgraph_st;
    capture->streams.insert(stream);
    stream->capture = capture;
    stream->tail.clear();
    registry().captures.insert(capture);
    return cudaSuccess;
  });
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  return api("cudaStreamEndCapture", [&] {
    Lock lock(registry().mutex);
    *graph = nullptr;
    if (!isStream(stream)) return cudaErrorInvalidResourceHandle;
    const auto capture = captureOf(stream);
    if (!capture) return cudaErrorIllegalState;
    if (capture->origin != stream) return capture->invalid = true, cudaErrorStreamCaptureUnmatched;
    if (capture->mode != cudaStreamCaptureModeRelaxed && capture->thread != std::this_thread::get_id()) return cudaErrorStreamCaptureWrongThread;
    // All nodes must be joined to the origin stream.
    const auto& nodes = capture->graph->nodes;
    std::vector<bool> joined(nodes.size());
    std::vector<size_t> left = stream->tail;
    while (!left.empty()) {
      const size_t node = left.back();
      left.pop_back();
      if (joined[node]) continue;
      joined[node] = true;
      left.insert(left.end(), nodes[node].after.begin(), nodes[node].after.end());
    }
    const bool unjoined = std::count(joined.begin(), joined.end(), false) > 0;
    const cudaError_t error = capture->invalid ? cudaErrorStreamCaptureInvalidated : unjoined ? cudaErrorStreamCaptureUnjoined : cudaSuccess;
    if (error == cudaSuccess) *graph = capture->graph;
    else delete capture->graph;
    drop(capture);
    return error;
  });
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  return api("cudaStreamIsCapturing", [&] {
    if (!isStream(stream)) return cudaErrorInvalidResourceHandle;
    const auto capture = captureOf(stream);
    *status = !capture ? cudaStreamCaptureStatusNone : capture->invalid ? cudaStreamCaptureStatusInvalidated : cudaStreamCaptureStatusActive;
    return cudaSuccess;
  });
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  return api("cudaGraphGetNodes", [&] {
    if (nodes) return cudaErrorNotSupported;  // Only the number of nodes is emulated.
    *count = graph->nodes.size();
    return cudaSuccess;
  });
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  return api("cudaGraphInstantiate", [&] {
    if (!graph) return cudaErrorInvalidValue;
    *exec = new CUgraphExec_st;
    (*exec)->nodes = graph->nodes;
    return cudaSuccess;
  });
}
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) {
  return api("cudaGraphUpload", [] { return cudaSuccess; });
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  return api("cudaGraphLaunch", [&] {
    if (!exec) return cudaErrorInvalidValue;
    if (!isStream(stream)) return cudaErrorInvalidResourceHandle;
    if (captureOf(stream)) return cudaErrorStreamCaptureUnsupported;  // Child graphs are not emulated.
    exec->running++;
    return enqueue(stream, {[exec] {
                              performGraph(*exec);
                              exec->running--;
                            },
                            nullptr});
  });
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return api("cudaGraphDestroy", [&] {
    delete graph;
    return cudaSuccess;
  });
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  return api("cudaGraphExecDestroy", [&] {
    // A running graph is destroyed after it has finished.
    if (exec->running > 0) finishEverything();
    delete exec;
    return cudaSuccess;
  });
}
