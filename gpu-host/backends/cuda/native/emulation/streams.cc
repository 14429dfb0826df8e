// Streams and events.
#include "stream.h"

namespace emulation {

Registry& registry() {
  static Registry* one = new Registry;
  return *one;
}

namespace {

std::shared_ptr<Moment> pushMoment(cudaStream_t stream) {
  auto moment = std::make_shared<Moment>();
  stream->pushSignal([moment] { moment->reach(); }, true);
  return moment;
}

// The default stream and all blocking streams wait for each other.
void order(cudaStream_t stream) {
  Registry& all = registry();
  if (stream == all.legacy) {
    for (const cudaStream_t other : all.streams) {
      if (other->flags & cudaStreamNonBlocking) continue;
      auto moment = pushMoment(other);
      stream->pushSignal([moment] { moment->wait(); });
    }
  } else if (!(stream->flags & cudaStreamNonBlocking) && all.legacyEnd && !all.legacyEnd->isReached()) {
    stream->pushSignal([moment = all.legacyEnd] { moment->wait(); });
  }
}
template <typename Push>
void ordered(cudaStream_t stream, Push push) {
  order(stream);
  push();
  if (stream == registry().legacy) registry().legacyEnd = pushMoment(stream);
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
    event->moment = std::make_shared<Moment>();
    queueSignal(resolved(stream), [moment = event->moment] { moment->reach(); });
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
    if (!event->moment) return cudaSuccess;
    if (capturing) return capturing->invalid = true, cudaErrorStreamCaptureIsolation;
    queueSignal(resolved(stream), [moment = event->moment] { moment->wait(); });
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
