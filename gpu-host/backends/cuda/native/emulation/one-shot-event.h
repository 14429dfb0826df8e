// An event that happens once and that threads can wait for.
#pragma once
#include <chrono>
#include <condition_variable>
#include <mutex>

namespace emulation {

struct OneShotEvent {
  std::mutex mutex;
  std::condition_variable changed;
  bool reached = false;
  std::chrono::steady_clock::time_point at;
  void reach() {
    std::lock_guard lock(mutex);
    reached = true;
    at = std::chrono::steady_clock::now();
    changed.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return reached; });
  }
  bool isReached() {
    std::lock_guard lock(mutex);
    return reached;
  }
};

}  // namespace emulation
