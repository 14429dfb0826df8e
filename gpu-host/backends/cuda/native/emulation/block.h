// One block: the host thread that runs it, and the fibers that are its CUDA threads.
#pragma once
#include <cstdint>
#include <string>
#include <vector>
#include "copies.h"
#include "grids.h"
#include "switch.h"
#include "threads.h"

#undef threadIdx
#undef blockIdx
#undef blockDim
#undef gridDim

namespace emulation {

constexpr unsigned MAX_THREADS = 1024;
// Shared memory starts with these bytes, which floats, fp16 and bf16 read as NaN. So a kernel that reads what it has not written shows it in its
// results.
constexpr unsigned char UNSET = 0xff;

enum class State : uint8_t {
  Ready,      // Runs, or waits for its turn.
  AtBarrier,  // Waits for the block's other threads.
  InWarp,     // Waits for other lanes at a warp collective.
  AtGrid,     // Waits for the end of the previous grid.
  Ended,
};

struct Fiber : Thread {
  Context context;
  State state;
  const Site* site;  // The barrier or collective at which it waits or last waited.
  unsigned lanes;    // The lanes of that collective; 0 for a barrier.
  AsyncCopies asyncCopies;
  bool waited;       // The thread has waited for the previous grid.
};

// Lanes that have arrived at one warp collective and wait for the others. Masks have a bit for each lane.
struct Gathering {
  unsigned mask, arrived = 0;
  Completion complete;
  int line;  // Source line of the collective.
  void* operands[32];
};

struct Warp {
  unsigned alive = 0;  // Mask of the lanes that have not ended.
  std::vector<Gathering> gatherings;
};

// State with which a host thread runs blocks one after another.
struct BlockRun {
  const Grid* grid = nullptr;
  std::vector<Fiber> fibers;
  std::vector<Warp> warps;
  // Numbers of threads: all, those that have not ended, those that wait at a barrier, and those that wait for the previous grid.
  unsigned threads = 0, alive = 0, atBarrier = 0, atGrid = 0;
  const Site* barrier = nullptr;  // The barrier at which threads wait.
  // For __syncthreads_count and its like: the number of threads that came to the current barrier with a true predicate, and the same number at the
  // last completed barrier, which the threads of that barrier read when they go on.
  int truePredicates = 0, truePredicatesAtLastBarrier = 0;
  // Ring of runnable fibers.
  std::vector<Fiber*> ready;
  unsigned readyFirst = 0, readyCount = 0;
  bool newestFirst = false;  // The fiber that became ready last runs first.
  uint64_t random = 0;       // State of `coin`.
  Context scheduler;         // The host thread's own stack, which runs no fiber.
  unsigned char* stacks = nullptr;  // Stacks of the fibers, each above an inaccessible page.
  unsigned stackCount = 0;
  unsigned char* shared = nullptr;  // Dynamic shared memory of the block, at the end of sharedMemory.
  unsigned char* sharedMemory = nullptr;
  const unsigned char* staticShared = nullptr;  // Contains the static shared variables; null: location unknown.
  size_t staticSharedBytes = 0;
  bool failed = false;  // The kernel had a fault that a test catches.

  GridRun* run = nullptr;
  bool released = false;  // The block has let the next grid begin.

  BlockRun();
  ~BlockRun();
  // Prepares for blocks of a grid.
  void start(const Grid& what, GridRun& run);

  // One of two equally likely values; the same sequence in every run of the program.
  bool coin() {
    random = random * 6364136223846793005u + 1442695040888963407u;
    return random >> 63;
  }

  // Runs block `number` of the grid. `seed` and `number` determine the order of its threads.
  void runBlock(uint64_t number, uint64_t seed);
  void begin(Fiber& fiber);
  void end(Fiber& fiber);
  void park(Fiber& fiber);
  // Makes the threads at the barrier ready if all living threads have come to it.
  void checkBarrier();
  // Notes that the next grid no longer has to wait for this block.
  void letNextBegin();
  // Makes the fibers in the state `waiting` ready, in a random order.
  void makeAllReady(State waiting);
  void checkWarp(unsigned warp, Gathering& gathering);
  std::string describeWaiting() const;
  [[noreturn]] void reportDeadlock();

  void makeReady(Fiber& fiber) {
    fiber.state = State::Ready;
    ready[(readyFirst + readyCount++) % MAX_THREADS] = &fiber;
  }
  Fiber* takeReady() {
    if (readyCount == 0) return nullptr;
    if (newestFirst) return ready[(readyFirst + --readyCount) % MAX_THREADS];
    Fiber* fiber = ready[readyFirst];
    readyFirst = (readyFirst + 1) % MAX_THREADS;
    readyCount--;
    return fiber;
  }
  // Null if no fiber can run.
  Fiber* takeNext() {
    Fiber* next = takeReady();
    if (next || atGrid == 0) return next;
    // All remaining fibers wait for the previous grid.
    awaitPreviousGrid(*run);
    atGrid = 0;
    makeAllReady(State::AtGrid);
    return takeReady();
  }
  Fiber& self() { return *static_cast<Fiber*>(current); }
};

}  // namespace emulation
