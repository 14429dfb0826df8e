// Work that waits for the device: one thread runs it in order, so that JavaScript's thread never blocks.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include "../engine/engine.h"

namespace pie {

struct WorkEnd {
  uint64_t id;
  std::optional<EngineError> error;
};

class Waiter {
 public:
  // The waiter's thread calls `ended` after each piece of work; `take` then returns the ended work.
  explicit Waiter(std::function<void()> ended);
  // Waits for all work.
  ~Waiter();
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;

  void add(uint64_t id, std::function<void()> work);
  // The ended work that was not taken yet, in order.
  std::deque<WorkEnd> take();
  // Returns when all added work has ended.
  void drain();

 private:
  struct Work {
    uint64_t id;
    std::function<void()> run;
  };
  void run();

  std::function<void()> ended_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Work> waiting_;
  std::deque<WorkEnd> done_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace pie
