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
constexpr unsigned char UNSET = 0xff;  // Floats and bf16 with these bytes are NaN.

enum class State : uint8_t { Ready, AtBarrier, InWarp, AtGrid, Ended };

struct Fiber : Thread {
  Context context;
  State state;
  const Site* site;  // The place where it waits.
  unsigned lanes;  // The lanes it waits for; 0 at a barrier.
  AsyncCopies asyncCopies;
  bool waited;     // For the previous grid.
};

// Lanes that have arrived at one warp collective and wait for the others.
struct Gathering {
  unsigned mask, arrived = 0;
  Completion complete;
  int line;
  void* operands[32];
};

struct Warp {
  unsigned alive = 0;
  std::vector<Gathering> gatherings;
};

// State with which a host thread runs blocks one after another.
struct BlockRun {
  const Grid* grid = nullptr;
  std::vector<Fiber> fibers;
  std::vector<Warp> warps;
  unsigned threads = 0, alive = 0, atBarrier = 0, atGrid = 0;
  const Site* barrier = nullptr;  // Where the threads at the barrier wait.
  int counted = 0, countResult = 0;
  // Ring of runnable fibers.
  std::vector<Fiber*> ready;
  unsigned readyFirst = 0, readyCount = 0;
  bool newestFirst = false;
  uint64_t random = 0;
  Context scheduler;
  unsigned char* stacks = nullptr;
  unsigned stackCount = 0;
  unsigned char* shared = nullptr;     // Dynamic shared memory of the block, at the end of sharedMemory.
  unsigned char* sharedMemory = nullptr;
  const unsigned char* staticShared = nullptr;  // Contains the static shared variables; null: location unknown.
  size_t staticSharedBytes = 0;
  bool failed = false;

  GridRun* run = nullptr;
  bool released = false;  // The block has let the next grid begin.

  BlockRun();
  ~BlockRun();
  void start(const Grid& what, GridRun& run);

  // One of two equally likely values; the same sequence in every run of the program.
  bool coin() {
    random = random * 6364136223846793005u + 1442695040888963407u;
    return random >> 63;
  }

  void runBlock(uint64_t number, uint64_t seed);
  void begin(Fiber& fiber);
  void end(Fiber& fiber);
  void park(Fiber& fiber);
  void checkBarrier();
  void letNextBegin();
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
