#include "graphs.h"
#include <algorithm>

namespace pie {

namespace {

// Most cached graphs. Eleven buckets of rows, a few buckets of heads and tokens, and two areas make some dozens of graphs. Beyond this limit the
// least recently used graph is evicted.
constexpr size_t MOST = 192;

// Direct launches of a key before it is captured: capturing and instantiating cost as much as several direct launches, so rare keys are not worth it.
constexpr int USES_BEFORE = 2;

// Errors of capturing or of memory for a graph, after which the device is still usable.
bool isRefusal(cudaError_t error) {
  const bool ofCapture = error >= cudaErrorStreamCaptureUnsupported && error <= cudaErrorStreamCaptureWrongThread;
  return ofCapture || error == cudaErrorMemoryAllocation || error == cudaErrorNotSupported;
}
// Errors that programmatic edges may cause, so that a graph without them may work. cudaErrorInvalidValue can only come from these edges, because the
// same direct launches worked.
bool isOfChain(cudaError_t error) { return error == cudaErrorInvalidValue || (isRefusal(error) && error != cudaErrorMemoryAllocation); }

cudaGraphExec_t captured(const Stream& stream, const std::function<void(bool)>& launch, bool chained) {
  cudaGraph_t graph = nullptr;
  // Thread-local mode: other threads query events meanwhile, and only this thread's calls must obey the rules of capturing.
  CUDA_CALL(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  try {
    launch(chained);
  } catch (...) {
    (void)cudaStreamEndCapture(stream, &graph);
    if (graph) (void)cudaGraphDestroy(graph);
    throw;
  }
  CUDA_CALL(cudaStreamEndCapture(stream, &graph));
  cudaGraphExec_t executable = nullptr;
  const cudaError_t error = cudaGraphInstantiate(&executable, graph, 0);
  (void)cudaGraphDestroy(graph);
  checkCuda(error, "cudaGraphInstantiate");
  // Uploading allocates the graph's device memory now: an allocation that fails at the first launch would lose the device.
  const cudaError_t uploaded = cudaGraphUpload(executable, stream);
  if (uploaded != cudaSuccess) (void)cudaGraphExecDestroy(executable);
  checkCuda(uploaded, "cudaGraphUpload");
  return executable;
}

}  // namespace

GraphCache::~GraphCache() {
  for (const Entry& each : entries_)
    if (each.graph) (void)cudaGraphExecDestroy(each.graph);
  for (const Evicted& each : evicted_) (void)cudaGraphExecDestroy(each.graph);
}

void GraphCache::run(const GraphKey& key, const Stream& stream, const std::function<void(bool)>& launch) {
  destroyEnded();
  Entry& found = entry(key, stream);
  if (found.uses++ >= USES_BEFORE && !found.graph && !found.refused) capture(found, stream, launch);
  if (found.graph) CUDA_CALL(cudaGraphLaunch(found.graph, stream));
  else launch(chained_);
}

void GraphCache::capture(Entry& entry, const Stream& stream, const std::function<void(bool)>& launch) {
  try {
    entry.graph = captured(stream, launch, chained_);
    return;
  } catch (const CudaFailure& failure) {
    const bool ofChain = chained_ && isOfChain(failure.error);
    if (!isRefusal(failure.error) && !ofChain) throw;
    (void)cudaGetLastError();
    refused_++;
    why_ = failure.what();
    entry.refused = !ofChain;
    if (entry.refused) return;
    chained_ = false;
  }
  capture(entry, stream, launch);
}

GraphCache::Entry& GraphCache::entry(const GraphKey& key, const Stream& stream) {
  clock_++;
  for (Entry& each : entries_) {
    if (!(each.key == key)) continue;
    each.used = clock_;
    return each;
  }
  if (entries_.size() >= MOST) {
    const auto oldest = std::min_element(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) { return a.used < b.used; });
    if (oldest->graph) evict(oldest->graph, stream);
    *oldest = entries_.back();
    entries_.pop_back();
  }
  entries_.push_back({key, nullptr, false, 0, clock_});
  return entries_.back();
}

void GraphCache::evict(cudaGraphExec_t graph, const Stream& stream) {
  evicted_.push_back({graph, std::make_unique<Event>()});
  evicted_.back().ended->record(stream);
}

void GraphCache::destroyEnded() {
  for (size_t i = 0; i < evicted_.size();) {
    if (!evicted_[i].ended->isReached()) {
      i++;
      continue;
    }
    CUDA_CALL(cudaGraphExecDestroy(evicted_[i].graph));
    evicted_[i] = std::move(evicted_.back());
    evicted_.pop_back();
  }
}

GraphReport GraphCache::report() const {
  const auto captured = std::count_if(entries_.begin(), entries_.end(), [](const Entry& each) { return each.graph != nullptr; });
  return {static_cast<size_t>(captured), refused_, why_};
}

}  // namespace pie
