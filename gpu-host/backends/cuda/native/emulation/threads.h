// CUDA threads as fibers: a block runs on one thread of the system, a CUDA thread runs until it waits.
#pragma once
#include <cstdint>
// Before the macros below: it has members of those names.
#include "runtime.h"
#include "vectors.h"

namespace emulation {

struct BlockRun;

// What a kernel knows of where it runs.
struct Thread {
  uint3 threadIdx;
  uint3 blockIdx;
  dim3 blockDim;
  dim3 gridDim;
  unsigned linear;
  BlockRun* block;
  struct AsyncCopies* copies;  // Of ../device/copy.h: under way.
};

extern thread_local Thread* current;

// Where in the source a thread waits.
struct Site {
  const char* what;
  const char* file;
  int line;
};

void syncThreads(const Site& site);

// What lanes of one warp do together: each brings an operand; the last to come completes it for all of them, then all go on. `operands[i]` is null for a
// lane that takes no part (it is not in the mask, or has ended).
using Completion = void (*)(void* const operands[32], unsigned lanes);
void warpCollective(unsigned mask, Completion complete, void* operand, const Site& site);

// Ends the run: the kernel did what the card would not forgive.
[[noreturn]] void kernelFault(const char* message, ...) __attribute__((format(printf, 1, 2)));

// Dynamic shared memory of the block that runs.
unsigned char* dynamicShared();
// Whether static shared memory starts as NaN here, and is told from other memory.
bool sharedIsUnset();
// A fault, unless these bytes are shared memory of the block that runs, at a multiple of 16.
void wantShared(const void* address, size_t bytes, const char* what);

}  // namespace emulation

#define threadIdx (::emulation::current->threadIdx)
#define blockIdx (::emulation::current->blockIdx)
#define blockDim (::emulation::current->blockDim)
#define gridDim (::emulation::current->gridDim)
constexpr int warpSize = 32;
