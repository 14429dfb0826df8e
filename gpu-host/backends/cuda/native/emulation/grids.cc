// Runs grids: several blocks at a time on host threads.
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>
#include "block.h"
#ifdef __linux__
#include <link.h>
#endif

namespace emulation {

namespace {

// Static shared variables are thread-local variables of this program or library. This class sets them to NaN before a grid runs and restores them
// after the grid.
class UnsetStaticShared {
 public:
  explicit UnsetStaticShared(BlockRun& runner) {
#if defined(__linux__) && !defined(EMULATED_SANITIZED)
    dl_iterate_phdr(
        [](dl_phdr_info* info, size_t, void* found) {
          auto& self = *static_cast<UnsetStaticShared*>(found);
          for (int i = 0; i < info->dlpi_phnum; i++) {
            auto* start = static_cast<unsigned char*>(info->dlpi_tls_data);
            const size_t bytes = info->dlpi_phdr[i].p_memsz;
            const auto* mine = reinterpret_cast<unsigned char*>(&current);
            if (info->dlpi_phdr[i].p_type != PT_TLS || !start || mine < start || mine >= start + bytes) continue;
            self.start = start;
            self.bytes = bytes;
            return 1;
          }
          return 0;
        },
        this);
    if (!start) return;
    saved.assign(start, start + bytes);
    std::memset(start, UNSET, bytes);
    current = nullptr;
    runner.staticShared = start;
    runner.staticSharedBytes = bytes;
#else
    (void)runner;
#endif
  }
  ~UnsetStaticShared() {
    if (start) std::memcpy(start, saved.data(), bytes);
  }

 private:
  unsigned char* start = nullptr;
  size_t bytes = 0;
  std::vector<unsigned char> saved;
};

struct Job {
  const Grid* grid;
  GridRun* run;
  uint64_t blocks, seed;
  uint64_t next = 0;      // Next block to take.
  unsigned working = 0;   // Threads that are running blocks of this job.
  bool failed = false;
};

// Helper threads that run blocks of launched grids. They live as long as the process.
class Pool {
 public:
  static Pool& get() {
    static Pool* pool = new Pool;
    return *pool;
  }

  bool run(const Grid& grid, GridRun& run) {
    Job job{&grid, &run, grid.blocks(), 0};
    std::unique_lock lock(mutex);
    job.seed = launches++;
    if (job.blocks > 1) {
      while (helpers + 1 < limit()) helpers++, std::thread([this] { help(); }).detach();
      jobs.push_back(&job);
      wake.notify_all();
    }
    work(job, lock);
    ended.wait(lock, [&] { return job.working == 0; });
    for (size_t i = 0; i < jobs.size(); i++)
      if (jobs[i] == &job) jobs.erase(jobs.begin() + static_cast<long>(i)), i--;
    return !job.failed;
  }

  // Wakes the helpers, because they may now run blocks of a grid that began early.
  void offer() {
    const std::lock_guard lock(mutex);
    wake.notify_all();
  }

 private:
  static unsigned limit() {
    const unsigned cores = std::thread::hardware_concurrency();
    return cores < 2 ? 2 : cores > 8 ? 8 : cores;
  }

  // A grid that has not waited for its predecessor yet runs on one thread only: helpers would block, too.
  static bool isHelped(const GridRun& run) { return !run.previous || run.previousEnded; }

  void help() {
    std::unique_lock lock(mutex);
    for (;;) {
      Job* job = nullptr;
      for (Job* one : jobs)
        if (one->next < one->blocks && isHelped(*one->run)) job = one;
      if (job) work(*job, lock);
      else wake.wait(lock);
    }
  }

  // The caller holds the lock, before and after; `work` releases it while a block runs.
  void work(Job& job, std::unique_lock<std::mutex>& lock) {
    if (job.next >= job.blocks) return;
    job.working++;
    std::unique_ptr<BlockRun> own;
    if (!idle.empty()) own = std::move(idle.back()), idle.pop_back();
    lock.unlock();
    {
      if (!own) own = std::make_unique<BlockRun>();
      BlockRun& runner = *own;
      runner.failed = false;
      runner.start(*job.grid, *job.run);
      UnsetStaticShared unset(runner);
      for (;;) {
        lock.lock();
        const uint64_t block = job.next < job.blocks && !job.failed ? job.next++ : job.blocks;
        lock.unlock();
        if (block == job.blocks) break;
        runner.runBlock(block, job.seed);
        if (runner.failed) {
          lock.lock();
          job.failed = true;
          lock.unlock();
        }
      }
    }
    lock.lock();
    idle.push_back(std::move(own));
    job.next = job.blocks;
    if (--job.working == 0) ended.notify_all();
  }

  std::mutex mutex;
  std::condition_variable wake, ended;
  std::vector<Job*> jobs;
  // Block runners that no thread uses. All threads share them, because threads come and go with their streams and a process may have only a limited
  // number of mappings.
  std::vector<std::unique_ptr<BlockRun>> idle;
  unsigned helpers = 0;
  uint64_t launches = 0;
};

}  // namespace

bool runGrid(const Grid& grid, GridRun& run) { return Pool::get().run(grid, run); }

void awaitPreviousGrid(GridRun& run) {
  run.previous->ended.wait();
  run.previousEnded = true;
  Pool::get().offer();
}

}  // namespace emulation
