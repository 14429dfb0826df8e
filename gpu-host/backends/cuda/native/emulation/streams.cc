// Streams, events, launches and graphs. A stream is a queue with a thread of its own: work that nothing orders runs at the same time.
#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include "internal.h"
#include "launch.h"
#include "threads.h"

#undef gridDim
#undef blockDim

using emulation::api;
using emulation::Capture;
using emulation::Moment;
using emulation::WorkKind;

struct CUstream_st {
  explicit CUstream_st(unsigned flags) : flags(flags), worker([this] { work(); }) {}

  // A mark only says how far the stream has come: whoever waits for it must find the stream idle.
  void push(std::function<void()> one, bool mark = false) {
    std::lock_guard lock(mutex);
    queue.push_back({std::move(one), mark});
    changed.notify_all();
  }
  bool isIdle() {
    std::lock_guard lock(mutex);
    return queue.empty() && !busy;
  }
  // What was queued still runs.
  void end() {
    {
      std::lock_guard lock(mutex);
      ending = true;
      changed.notify_all();
    }
    worker.join();
  }

  const unsigned flags;
  // Of the capture it is in: the nodes that its next one follows. Guarded by the registry's mutex.
  std::shared_ptr<Capture> capture;
  std::vector<size_t> tail;

 private:
  void work() {
    for (;;) {
      std::function<void()> one;
      {
        std::unique_lock lock(mutex);
        busy = false;
        changed.wait(lock, [&] { return ending || !queue.empty(); });
        if (queue.empty()) return;
        one = std::move(queue.front().run);
        busy = !queue.front().mark;
        queue.pop_front();
      }
      one();
    }
  }

  std::mutex mutex;
  std::condition_variable changed;
  struct Item {
    std::function<void()> run;
    bool mark;
  };
  std::deque<Item> queue;
  bool ending = false, busy = false;
  std::thread worker;
};

struct CUevent_st {
  const unsigned flags;
  std::shared_ptr<Moment> moment;  // Of its last record; null before the first.
  // When it was last recorded in a capture.
  std::shared_ptr<Capture> capture;
  std::vector<size_t> nodes;
};

namespace emulation {

void Moment::reach() {
  std::lock_guard lock(mutex);
  reached = true;
  at = std::chrono::steady_clock::now();
  changed.notify_all();
}
void Moment::wait() {
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return reached; });
}
bool Moment::isReached() {
  std::lock_guard lock(mutex);
  return reached;
}

namespace {

struct Registry {
  std::recursive_mutex mutex;
  std::set<cudaStream_t> streams;
  std::set<cudaEvent_t> events;
  std::set<std::shared_ptr<Capture>> captures;
  cudaStream_t legacy = nullptr;  // The default stream, once it is used.
  std::shared_ptr<Moment> legacyEnd;
  std::map<const void*, int> dynamicShared;  // What kernels were allowed past 48 KB.
};
Registry& registry() {
  static Registry* one = new Registry;
  return *one;
}
using Lock = std::lock_guard<std::recursive_mutex>;

std::shared_ptr<Moment> pushMoment(cudaStream_t stream) {
  auto moment = std::make_shared<Moment>();
  stream->push([moment] { moment->reach(); }, true);
  return moment;
}

// The default stream waits for all others that block, and they for it.
cudaStream_t resolved(cudaStream_t stream) {
  Registry& all = registry();
  if (stream) return stream;
  if (!all.legacy) all.legacy = new CUstream_st(cudaStreamDefault);
  return all.legacy;
}
void order(cudaStream_t stream) {
  Registry& all = registry();
  if (stream == all.legacy) {
    for (const cudaStream_t other : all.streams) {
      if (other->flags & cudaStreamNonBlocking) continue;
      auto moment = pushMoment(other);
      stream->push([moment] { moment->wait(); });
    }
  } else if (!(stream->flags & cudaStreamNonBlocking) && all.legacyEnd && !all.legacyEnd->isReached()) {
    stream->push([moment = all.legacyEnd] { moment->wait(); });
  }
}
void queue(cudaStream_t stream, std::function<void()> work) {
  Registry& all = registry();
  order(stream);
  stream->push(std::move(work));
  if (stream == all.legacy) all.legacyEnd = pushMoment(stream);
}

void perform(WorkKind kind, const std::function<void()>& work) {
  if (const int wait = slowness(); wait > 0) std::this_thread::sleep_for(std::chrono::microseconds(wait));
  if (lost() != cudaSuccess) return;
  if (kind == WorkKind::Kernel) {
    countKernel();
    if (kernelFails()) return;
  }
  work();
}

// One that its dependencies allow, each time another.
void performGraph(CUgraphExec_st& graph, const std::vector<CUgraph_st::Node>& nodes) {
  uint64_t random = ++graph.launches * 0x9E3779B97F4A7C15u;
  std::vector<size_t> missing(nodes.size()), ready;
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
    perform(nodes[node].kind, nodes[node].work);
    for (const size_t follower : followers[node])
      if (--missing[follower] == 0) ready.push_back(follower);
  }
}

size_t addNode(Capture& capture, WorkKind kind, std::vector<size_t> after, std::function<void()> work) {
  std::sort(after.begin(), after.end());
  after.erase(std::unique(after.begin(), after.end()), after.end());
  capture.graph->nodes.push_back({kind, std::move(work), std::move(after)});
  return capture.graph->nodes.size() - 1;
}

void drop(const std::shared_ptr<Capture>& capture) {
  Registry& all = registry();
  for (const cudaStream_t stream : capture->streams) stream->capture.reset(), stream->tail.clear();
  all.captures.erase(capture);
}

}  // namespace

bool isStream(cudaStream_t stream) {
  Lock lock(registry().mutex);
  return !stream || registry().streams.count(stream) > 0;
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

cudaError_t enqueue(cudaStream_t given, WorkKind kind, std::function<void()> work) {
  Lock lock(registry().mutex);
  if (device().count == 0) return cudaErrorNoDevice;
  if (given && given->capture) {
    Capture& capture = *given->capture;
    if (capture.invalid) return cudaErrorStreamCaptureInvalidated;
    given->tail = {addNode(capture, kind, given->tail, std::move(work))};
    return cudaSuccess;
  }
  const cudaStream_t stream = resolved(given);
  if (stream == registry().legacy) {
    // The default stream would have to wait for streams that are being captured.
    for (const auto& capture : registry().captures)
      for (const cudaStream_t other : capture->streams)
        if (!(other->flags & cudaStreamNonBlocking)) {
          capture->invalid = true;
          return cudaErrorStreamCaptureImplicit;
        }
  }
  queue(stream, [kind, work = std::move(work)] { perform(kind, work); });
  return cudaSuccess;
}

std::shared_ptr<Moment> momentAfterAll(cudaStream_t given) {
  Lock lock(registry().mutex);
  const cudaStream_t stream = resolved(given);
  order(stream);
  return pushMoment(stream);
}

void finishEverything() {
  std::vector<std::shared_ptr<Moment>> moments;
  {
    Lock lock(registry().mutex);
    for (const cudaStream_t stream : registry().streams) moments.push_back(pushMoment(stream));
    if (registry().legacy) moments.push_back(pushMoment(registry().legacy));
  }
  for (const auto& moment : moments) moment->wait();
}

void endCaptures() {
  Lock lock(registry().mutex);
  while (!registry().captures.empty()) {
    const auto capture = *registry().captures.begin();
    delete capture->graph;
    drop(capture);
  }
}

void launch(const void* kernel, const char* name, dim3 grid, dim3 block, size_t shared, cudaStream_t stream, std::function<void()> body) {
  api("launch", [&] {
    if (!isStream(stream)) return cudaErrorInvalidResourceHandle;
    const size_t threads = size_t{block.x} * block.y * block.z;
    if (threads == 0 || threads > 1024 || block.z > 64) return cudaErrorInvalidConfiguration;
    if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535) return cudaErrorInvalidConfiguration;
    if (shared > 48 << 10) {
      Lock lock(registry().mutex);
      const auto allowed = registry().dynamicShared.find(kernel);
      if (allowed == registry().dynamicShared.end() || shared > static_cast<size_t>(allowed->second)) return cudaErrorInvalidValue;
    }
    auto work = std::make_shared<Grid>(Grid{name, grid, block, shared, std::move(body)});
    return enqueue(stream, WorkKind::Kernel, [work] {
      if (!runGrid(*work)) lose(cudaErrorLaunchFailure);
    });
  });
}

}  // namespace emulation

using namespace emulation;

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return api("cudaStreamCreate", [&] {
    if (device().count == 0) return cudaErrorNoDevice;
    *stream = new CUstream_st(flags);
    Lock lock(registry().mutex);
    registry().streams.insert(*stream);
    return cudaSuccess;
  });
}
cudaError_t cudaStreamCreate(cudaStream_t* stream) { return cudaStreamCreateWithFlags(stream, cudaStreamDefault); }
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) { return cudaStreamCreateWithFlags(stream, flags); }

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return api("cudaStreamDestroy", [&] {
    {
      Lock lock(registry().mutex);
      if (!stream || registry().streams.erase(stream) == 0) return cudaErrorInvalidResourceHandle;
      if (const auto capture = stream->capture) {
        capture->invalid = true;
        capture->streams.erase(stream);
        if (capture->origin == stream) delete capture->graph, drop(capture);
      }
    }
    stream->end();
    delete stream;
    return cudaSuccess;
  });
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return api("cudaStreamSynchronize", [&] {
    if (!isStream(stream)) return cudaErrorInvalidResourceHandle;
    if (const auto capture = captureOf(stream)) return capture->invalid = true, cudaErrorStreamCaptureUnsupported;
    momentAfterAll(stream)->wait();
    return lost();
  });
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return api("cudaStreamQuery", [&] {
    if (!isStream(stream)) return cudaErrorInvalidResourceHandle;
    if (const auto capture = captureOf(stream)) return capture->invalid = true, cudaErrorStreamCaptureUnsupported;
    Lock lock(registry().mutex);
    return resolved(stream)->isIdle() ? lost() : cudaErrorNotReady;
  });
}
cudaError_t cudaDeviceSynchronize() {
  return api("cudaDeviceSynchronize", [&] {
    if (const cudaError_t error = forbiddenWhileCapturing(); error != cudaSuccess) return error;
    finishEverything();
    return lost();
  });
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  return api("cudaLaunchHostFunc", [&] {
    if (!isStream(stream)) return cudaErrorInvalidResourceHandle;
    return enqueue(stream, WorkKind::Other, [=] { function(data); });
  });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return api("cudaEventCreate", [&] {
    if (device().count == 0) return cudaErrorNoDevice;
    *event = new CUevent_st{flags, nullptr, nullptr, {}};
    Lock lock(registry().mutex);
    registry().events.insert(*event);
    return cudaSuccess;
  });
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, cudaEventDefault); }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return api("cudaEventDestroy", [&] {
    Lock lock(registry().mutex);
    if (registry().events.erase(event) == 0) return cudaErrorInvalidResourceHandle;
    delete event;
    return cudaSuccess;
  });
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return api("cudaEventRecord", [&] {
    Lock lock(registry().mutex);
    if (!isStream(stream) || registry().events.count(event) == 0) return cudaErrorInvalidResourceHandle;
    if (const auto capture = captureOf(stream)) {
      if (capture->invalid) return cudaErrorStreamCaptureInvalidated;
      event->capture = capture;
      event->nodes = stream->tail;
      return cudaSuccess;
    }
    event->capture.reset();
    event->moment = std::make_shared<Moment>();
    queue(resolved(stream), [moment = event->moment] { moment->reach(); });
    return cudaSuccess;
  });
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  return api("cudaStreamWaitEvent", [&] {
    Lock lock(registry().mutex);
    if (!isStream(stream) || registry().events.count(event) == 0) return cudaErrorInvalidResourceHandle;
    const auto capturing = captureOf(stream);
    if (capturing && capturing->invalid) return cudaErrorStreamCaptureInvalidated;
    if (event->capture) {
      // An event of a capture takes the stream into it.
      if (registry().captures.count(event->capture) == 0 || !stream) return cudaErrorCapturedEvent;
      if (capturing && capturing != event->capture) return capturing->invalid = true, cudaErrorStreamCaptureIsolation;
      stream->capture = event->capture;
      event->capture->streams.insert(stream);
      stream->tail.insert(stream->tail.end(), event->nodes.begin(), event->nodes.end());
      return cudaSuccess;
    }
    if (!event->moment) return cudaSuccess;
    if (capturing) return capturing->invalid = true, cudaErrorStreamCaptureIsolation;
    queue(resolved(stream), [moment = event->moment] { moment->wait(); });
    return cudaSuccess;
  });
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  return api("cudaEventQuery", [&] {
    Lock lock(registry().mutex);
    if (registry().events.count(event) == 0) return cudaErrorInvalidResourceHandle;
    if (event->capture) return cudaErrorCapturedEvent;
    if (!event->moment || event->moment->isReached()) return lost();
    return cudaErrorNotReady;
  });
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return api("cudaEventSynchronize", [&] {
    std::shared_ptr<Moment> moment;
    {
      Lock lock(registry().mutex);
      if (registry().events.count(event) == 0) return cudaErrorInvalidResourceHandle;
      if (event->capture) return cudaErrorCapturedEvent;
      moment = event->moment;
    }
    if (moment) moment->wait();
    return lost();
  });
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  return api("cudaEventElapsedTime", [&] {
    Lock lock(registry().mutex);
    if (registry().events.count(from) == 0 || registry().events.count(to) == 0) return cudaErrorInvalidResourceHandle;
    if (((from->flags | to->flags) & cudaEventDisableTiming) || !from->moment || !to->moment) return cudaErrorInvalidResourceHandle;
    if (!from->moment->isReached() || !to->moment->isReached()) return cudaErrorNotReady;
    *milliseconds = std::chrono::duration<float, std::milli>(to->moment->at - from->moment->at).count();
    return cudaSuccess;
  });
}

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
    // Everything must lead to where the first stream ends.
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
    if (nodes) return cudaErrorNotSupported;  // Only their number.
    *count = graph->nodes.size();
    return cudaSuccess;
  });
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  return api("cudaGraphInstantiate", [&] {
    if (!graph) return cudaErrorInvalidValue;
    *exec = new CUgraphExec_st{graph->nodes};
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
    return enqueue(stream, WorkKind::Other, [exec] { performGraph(*exec, exec->nodes); });
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
    // One that runs is destroyed when it has.
    finishEverything();
    delete exec;
    return cudaSuccess;
  });
}

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  return api("cudaFuncSetAttribute", [&] {
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
    if (value < 0 || value > 227 << 10) return cudaErrorInvalidValue;
    Lock lock(registry().mutex);
    registry().dynamicShared[kernel] = value;
    return cudaSuccess;
  });
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel) {
  return api("cudaFuncGetAttributes", [&] {
    *attributes = {};
    Lock lock(registry().mutex);
    const auto allowed = registry().dynamicShared.find(kernel);
    attributes->maxThreadsPerBlock = 1024;
    attributes->maxDynamicSharedSizeBytes = allowed == registry().dynamicShared.end() ? 48 << 10 : allowed->second;
    return cudaSuccess;
  });
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int threads, size_t dynamicShared) {
  return api("cudaOccupancyMaxActiveBlocksPerMultiprocessor", [&] {
    if (threads < 1 || threads > 1024) return cudaErrorInvalidValue;
    const size_t byShared = (size_t{228} << 10) / (dynamicShared + 1024);
    *blocks = static_cast<int>(std::min({size_t{32}, size_t{2048} / static_cast<size_t>(threads), byShared}));
    return cudaSuccess;
  });
}
