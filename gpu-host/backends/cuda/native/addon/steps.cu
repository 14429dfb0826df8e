#include "steps.h"

namespace pie {

StepWaiter::StepWaiter(Engine& engine, std::function<void()> ended) : engine_(engine), ended_(std::move(ended)), thread_([this] { run(); }) {}

StepWaiter::~StepWaiter() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void StepWaiter::add(uint64_t step) {
  {
    const std::lock_guard lock(mutex_);
    waited_.push_back(step);
  }
  changed_.notify_all();
}

std::deque<StepEnd> StepWaiter::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(done_, {});
}

void StepWaiter::drain() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return waited_.empty(); });
}

void StepWaiter::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || !waited_.empty(); });
    if (waited_.empty()) return;
    StepEnd end{waited_.front(), {}, std::nullopt};
    lock.unlock();
    try {
      end.results = engine_.wait(end.step);
    } catch (const EngineError& error) {
      end.error = error;
    } catch (const std::exception& error) {
      end.error = EngineError("cuda", error.what());
    }
    lock.lock();
    done_.push_back(std::move(end));
    waited_.pop_front();
    lock.unlock();
    changed_.notify_all();
    ended_();
    lock.lock();
  }
}

}  // namespace pie
