// Streams and events.
#include "stream.h"

namespace emulation {

Registry& registry() {
  static Registry* one = new Registry;
  return *one;
}

namespace {

std::shared_ptr<OneShotEvent> pushEvent(cudaStream_t stream) {
  auto signal = std::make_shared<OneShotEvent>();
  stream->pushSignal([signal] { signal->reach(); }, true);
  return signal;
}

// The default stream and all blocking streams wait for each other.
void order(cudaStream_t stream) {
  Registry& all = registry();
  if (stream == all.legacy) {
    for (const cudaStream_t other : all.streams) {
      if (other->flags & cudaStreamNonBlocking) continue;
      auto signal = pushEvent(other);
      stream->pushSignal([signal] { signal->wait(); });
    }
  } else if (!(stream->flags & cudaStreamNonBlocking) && all.legacyEnd && !all.legacyEnd->isReached()) {
    stream->pushSignal([signal = all.legacyEnd] { signal->wait(); });
  }
}
template <typename Push>
void ordered(cudaStream_t stream, Push push) {
  order(stream);
  push();
  if (stream == registry().legacy) registry().legacyEnd = pushEvent(stream);
}

}  // namespace

cudaStream_t resolved(cudaStream_t stream) {
  Registry& all = registry();
  if (stream) return stream;
  if (!all.legacy) all.legacy = new CUstream_st(cudaStreamDefault);
  return all.legacy;
}

void queue(cudaStream_t stream, Work work) {
  ordered(stream, [&] { stream->push(std::move(work)); });
}
void queueSignal(cudaStream_t stream, std::function<void()> signal) {
  ordered(stream, [&] { stream->pushSignal(std::move(signal)); });
}

bool isStream(cudaStream_t stream) {
  Lock lock(registry().mutex);
  return !stream || registry().streams.count(stream) > 0;
}

cudaError_t enqueue(cudaStream_t given, Work work) {
  Lock lock(registry().mutex);
  if (device().count == 0) return cudaErrorNoDevice;
  if (given && given->capture) {
    Capture& capture = *given->capture;
    if (capture.invalid) return cudaErrorStreamCaptureInvalidated;
    given->tail = {addNode(capture, std::move(work), given->tail)};
    return cudaSuccess;
  }
  const cudaStream_t stream = resolved(given);
  if (stream == registry().legacy) {
    // The default stream would have to wait for the streams that are being captured.
    for (const auto& capture : registry().captures)
      for (const cudaStream_t other : capture->streams)
        if (!(other->flags & cudaStreamNonBlocking)) {
          capture->invalid = true;
          return cudaErrorStreamCaptureImplicit;
        }
  }
  queue(stream, std::move(work));
  return cudaSuccess;
}

std::shared_ptr<OneShotEvent> eventAfterAll(cudaStream_t given) {
  Lock lock(registry().mutex);
  const cudaStream_t stream = resolved(given);
  order(stream);
  return pushEvent(stream);
}

void finishEverything() {
  std::vector<std::shared_ptr<OneShotEvent>> events;
  {
    Lock lock(registry().mutex);
    for (const cudaStream_t stream : registry().streams) events.push_back(pushEvent(stream));
    if (registry().legacy) events.push_back(pushEvent(registry().legacy));
  }
  for (const auto& signal : events) signal->wait();
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
    eventAfterAll(stream)->wait();
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
    return enqueue(stream, {[=] { function(data); }, nullptr});
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
    event->recorded = std::make_shared<OneShotEvent>();
    queueSignal(resolved(stream), [signal = event->recorded] { signal->reach(); });
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
      // Waiting for a captured event makes the stream part of that capture.
      if (registry().captures.count(event->capture) == 0 || !stream) return cudaErrorCapturedEvent;
      if (capturing && capturing != event->capture) return capturing->invalid = true, cudaErrorStreamCaptureIsolation;
      stream->capture = event->capture;
      event->capture->streams.insert(stream);
      stream->tail.insert(stream->tail.end(), event->nodes.begin(), event->nodes.end());
      return cudaSuccess;
    }
    if (!event->recorded) return cudaSuccess;
    if (capturing) return capturing->invalid = true, cudaErrorStreamCaptureIsolation;
    queueSignal(resolved(stream), [signal = event->recorded] { signal->wait(); });
    return cudaSuccess;
  });
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  return api("cudaEventQuery", [&] {
    Lock lock(registry().mutex);
    if (registry().events.count(event) == 0) return cudaErrorInvalidResourceHandle;
    if (event->capture) return cudaErrorCapturedEvent;
    if (!event->recorded || event->recorded->isReached()) return lost();
    return cudaErrorNotReady;
  });
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return api("cudaEventSynchronize", [&] {
    std::shared_ptr<OneShotEvent> signal;
    {
      Lock lock(registry().mutex);
      if (registry().events.count(event) == 0) return cudaErrorInvalidResourceHandle;
      if (event->capture) return cudaErrorCapturedEvent;
      signal = event->recorded;
    }
    if (signal) signal->wait();
    return lost();
  });
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  return api("cudaEventElapsedTime", [&] {
    Lock lock(registry().mutex);
    if (registry().events.count(from) == 0 || registry().events.count(to) == 0) return cudaErrorInvalidResourceHandle;
    if (((from->flags | to->flags) & cudaEventDisableTiming) || !from->recorded || !to->recorded) return cudaErrorInvalidResourceHandle;
    if (!from->recorded->isReached() || !to->recorded->isReached()) return cudaErrorNotReady;
    *milliseconds = std::chrono::duration<float, std::milli>(to->recorded->at - from->recorded->at).count();
    return cudaSuccess;
  });
}
