// CUDA threads as fibers: a block runs on one host thread, and a CUDA thread runs until it waits.
#pragma once
#include <cstdint>
// Included before the macros below, because some members in runtime.h have the macros' names.
#include "runtime.h"
#include "vectors.h"

namespace emulation {

struct BlockRun;

// A CUDA thread's built-in variables.
struct Thread {
  uint3 threadIdx;
  uint3 blockIdx;
  dim3 blockDim;
  dim3 gridDim;
  unsigned linear;
  BlockRun* block;
  struct AsyncCopies* copies;  // Copies of ../device/copy.h in flight.
};

// `__thread`, because each access to a `thread_local` variable of another file first calls a function that looks for an initialisation.
extern __thread Thread* current;

// Place in the source where a thread waits.
struct Site {
  const char* what;
  const char* file;
  int line;
};

void syncThreads(const Site& site);

// A warp collective: each lane brings an operand; the last lane to arrive completes the operation for all of them, then all continue. `operands[i]`
// is null for a lane that does not take part (not in the mask, or ended).
using Completion = void (*)(void* const operands[32], unsigned lanes);
void warpCollective(unsigned mask, Completion complete, void* operand, const Site& site);

// Ends the run: the kernel did something that is an error on hardware.
[[noreturn]] void kernelFault(const char* message, ...) __attribute__((format(printf, 1, 2)));

// Dynamic shared memory of the running block.
unsigned char* dynamicShared();
// True if static shared memory starts as NaN in this build and can be distinguished from other memory.
bool knowsStaticShared();
// Reports a fault unless the address is a multiple of `bytes` and the range lies in the block's shared memory, as far as its location is known.
void wantShared(const void* address, size_t bytes, const char* what);

}  // namespace emulation

#define threadIdx (::emulation::current->threadIdx)
#define blockIdx (::emulation::current->blockIdx)
#define blockDim (::emulation::current->blockDim)
#define gridDim (::emulation::current->gridDim)
constexpr int warpSize = 32;
