// Steps in flight: one thread waits for them in order, so that JavaScript's thread never blocks.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include "../engine/engine.h"

namespace pie {

// The outcome of a step.
struct StepEnd {
  uint64_t step;
  Results results;
  std::optional<EngineError> error;
};

class StepWaiter {
 public:
  // The waiter's thread calls `ended` after each step; `take` then returns what has ended.
  StepWaiter(Engine& engine, std::function<void()> ended);
  // Waits for all steps.
  ~StepWaiter();
  StepWaiter(const StepWaiter&) = delete;
  StepWaiter& operator=(const StepWaiter&) = delete;

  void add(uint64_t step);
  // The ended steps that were not taken yet, in order.
  std::deque<StepEnd> take();
  // Returns when all added steps have ended.
  void drain();

 private:
  void run();

  Engine& engine_;
  std::function<void()> ended_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<uint64_t> waited_;
  std::deque<StepEnd> done_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace pie
