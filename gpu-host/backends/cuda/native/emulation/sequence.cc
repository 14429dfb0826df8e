#include "sequence.h"
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>
#include "internal.h"

namespace emulation {

namespace {

// Maximum number of kernels of one sequence that run concurrently. Each needs a thread with stacks, and mappings per process are limited.
constexpr size_t MOST_RUNNING = 3;

void perform(const Work& work, GridRun& run) {
  waitWhileHeld();
  if (const int wait = slowness(); wait > 0) std::this_thread::sleep_for(std::chrono::microseconds(wait));
  if (lost() != cudaSuccess) return;
  if (!work.kernel) return work.other();
  countKernel();
  if (!kernelFails() && !runGrid(*work.kernel, run)) lose(cudaErrorLaunchFailure);
}

// Threads for kernels that run concurrently with others. They live as long as the process.
class Threads {
 public:
  static Threads& get() {
    static Threads* one = new Threads;
    return *one;
  }
  void start(std::function<void()> task) {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
    if (tasks_.size() > idle_) std::thread([this] { work(); }).detach();
    wake_.notify_one();
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      idle_++;
      wake_.wait(lock, [&] { return !tasks_.empty(); });
      idle_--;
      const std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
      lock.lock();
    }
  }
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> tasks_;
  size_t idle_ = 0;
};

}  // namespace

void Sequence::run(const Work& work, const Work* next) {
  const bool nextIsEarly = work.kernel && next && next->isEarly();
  if (!work.isEarly()) finish();
  auto run = std::make_shared<GridRun>();
  if (running_.empty() && !nextIsEarly) return perform(work, *run);
  if (running_.size() == MOST_RUNNING) {
    running_.front()->ended.wait();
    running_.pop_front();
  }
  if (!running_.empty()) {
    running_.back()->nextMayBegin.wait();
    run->previous = running_.back();
  }
  running_.push_back(run);
  Threads::get().start([work, run] {
    perform(work, *run);
    run->end();
    run->previous.reset();
  });
  if (!nextIsEarly) finish();
}

void Sequence::finish() {
  for (const auto& run : running_) run->ended.wait();
  running_.clear();
}

}  // namespace emulation
