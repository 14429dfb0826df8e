#include "waiter.h"
#include <new>
#include <utility>

namespace pie {

Waiter::Waiter(std::function<void()> ended) : ended_(std::move(ended)), thread_([this] { run(); }) {}

Waiter::~Waiter() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Waiter::add(uint64_t id, std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back({id, std::move(work)});
  }
  changed_.notify_all();
}

std::deque<WorkEnd> Waiter::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(done_, {});
}

void Waiter::drain() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return waiting_.empty(); });
}

void Waiter::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    // The work stays in the queue while it runs, because `drain` waits until the queue is empty.
    Work& work = waiting_.front();
    WorkEnd end{work.id, std::nullopt};
    lock.unlock();
    try {
      work.run();
    } catch (const EngineError& error) {
      end.error = error;
    } catch (const std::bad_alloc&) {
      end.error = EngineError("out-of-memory", "the host is out of memory");
    } catch (const std::exception& error) {
      end.error = EngineError("cuda", error.what());
    }
    lock.lock();
    done_.push_back(std::move(end));
    waiting_.pop_front();
    lock.unlock();
    changed_.notify_all();
    ended_();
    lock.lock();
  }
}

}  // namespace pie
