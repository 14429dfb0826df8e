// Streams, events and their registry. A stream is a queue with its own thread, so unordered work runs concurrently.
#pragma once
#include <deque>
#include <map>
#include <optional>
#include <set>
#include "internal.h"
#include "sequence.h"

struct CUstream_st {
  explicit CUstream_st(unsigned flags) : flags(flags), worker([this] { work(); }) {}

  void push(emulation::Work work) { put({std::move(work), nullptr, false}); }
  // Queues a signal, which only reports or awaits the progress of streams and therefore also runs on a lost device. A signal that is a `mark` does
  // not make the stream busy: a thread that has waited for it finds the stream idle.
  void pushSignal(std::function<void()> signal, bool mark = false) { put({{}, std::move(signal), mark}); }
  bool isIdle() {
    std::lock_guard lock(mutex);
    return queue.empty() && !busy;
  }
  // Ends the thread after the queued work has run.
  void end() {
    {
      std::lock_guard lock(mutex);
      ending = true;
      changed.notify_all();
    }
    worker.join();
  }

  const unsigned flags;
  // The capture that the stream is part of, and the nodes on which its next node depends. Guarded by the registry's mutex.
  std::shared_ptr<emulation::Capture> capture;
  std::vector<size_t> tail;

 private:
  struct Item {
    emulation::Work work;
    std::function<void()> signal;
    bool mark;
  };
  void put(Item item) {
    std::lock_guard lock(mutex);
    queue.push_back(std::move(item));
    changed.notify_all();
  }
  void work() {
    emulation::Sequence sequence;
    for (;;) {
      std::optional<Item> item;
      emulation::Work next;
      {
        std::unique_lock lock(mutex);
        busy = false;
        changed.wait(lock, [&] { return ending || !queue.empty(); });
        if (queue.empty()) return;
        item = std::move(queue.front());
        busy = !item->mark;
        queue.pop_front();
        if (!queue.empty()) next = queue.front().work;
      }
      if (item->signal) item->signal();
      else sequence.run(item->work, &next);
    }
  }

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Item> queue;
  bool ending = false, busy = false;
  std::thread worker;
};

struct CUevent_st {
  const unsigned flags;
  std::shared_ptr<emulation::OneShotEvent> recorded;  // Happens when the stream reaches the last record; null before the first record.
  // If the last record was part of a capture: the capture, and the nodes that precede the event.
  std::shared_ptr<emulation::Capture> capture;
  std::vector<size_t> nodes;
};

namespace emulation {

struct Registry {
  std::recursive_mutex mutex;
  std::set<cudaStream_t> streams;
  std::set<cudaEvent_t> events;
  std::set<std::shared_ptr<Capture>> captures;
  cudaStream_t legacy = nullptr;  // The default stream; created at its first use.
  std::shared_ptr<OneShotEvent> legacyEnd;  // Follows the newest work of the default stream.
  std::map<const void*, int> dynamicShared;  // Dynamic shared memory above 48 KB that kernels opted into.
};
Registry& registry();
using Lock = std::lock_guard<std::recursive_mutex>;

// Maps null to the default stream.
cudaStream_t resolved(cudaStream_t stream);
// Queues work outside of captures, with the ordering of the default and blocking streams.
void queue(cudaStream_t stream, Work work);
void queueSignal(cudaStream_t stream, std::function<void()> signal);

// Adds a node, which depends on the nodes `after`, to an open capture.
size_t addNode(Capture& capture, Work work, std::vector<size_t> after);
// Ends a capture; its streams return to normal operation.
void drop(const std::shared_ptr<Capture>& capture);

}  // namespace emulation
