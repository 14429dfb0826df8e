// Streams and events, and all there are. A stream is a queue with a thread of its own: work that nothing orders runs at the same time.
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
  // What only says or waits how far streams have come, and does so on a lost device too. Whoever waits for a mark must find the stream idle.
  void pushSignal(std::function<void()> signal, bool mark = false) { put({{}, std::move(signal), mark}); }
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
  std::shared_ptr<emulation::Moment> moment;  // Of its last record; null before the first.
  // When it was last recorded in a capture.
  std::shared_ptr<emulation::Capture> capture;
  std::vector<size_t> nodes;
};

namespace emulation {

struct Registry {
  std::recursive_mutex mutex;
  std::set<cudaStream_t> streams;
  std::set<cudaEvent_t> events;
  std::set<std::shared_ptr<Capture>> captures;
  cudaStream_t legacy = nullptr;  // The default stream, once it is used.
  std::shared_ptr<Moment> legacyEnd;
  std::map<const void*, int> dynamicShared;  // What kernels were allowed past 48 KB.
};
Registry& registry();
using Lock = std::lock_guard<std::recursive_mutex>;

// Null is the default stream.
cudaStream_t resolved(cudaStream_t stream);
// Queues work that is part of no capture, in the order that streams of both kinds keep.
void queue(cudaStream_t stream, Work work);
void queueSignal(cudaStream_t stream, std::function<void()> signal);

// Of a capture under way: what comes after `after`.
size_t addNode(Capture& capture, Work work, std::vector<size_t> after);
// Ends it: its streams are as before.
void drop(const std::shared_ptr<Capture>& capture);

}  // namespace emulation
