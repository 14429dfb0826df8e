// Properties of the cards of one compute capability (CUDA C++ programming guide, "Compute Capabilities"). A build is for one capability: build.ts
// defines PIE_CAPABILITY for host and device code.
#pragma once
#include <cstddef>

// 10 × major + minor.
#ifndef PIE_CAPABILITY
#define PIE_CAPABILITY 90
#endif

namespace pie {

// True if a kernel may begin before the previous one has ended (launch.h).
constexpr bool CHAINS_LAUNCHES = PIE_CAPABILITY >= 90;
// Bytes of shared memory that a block may have.
constexpr int SHARED_BYTES = (PIE_CAPABILITY == 80 ? 163 : PIE_CAPABILITY == 90 || PIE_CAPABILITY / 10 == 10 ? 227 : 99) << 10;
// Bytes that the blocks of a multiprocessor share; each block takes 1 KB more than it asks for.
constexpr int MULTIPROCESSOR_SHARED_BYTES = SHARED_BYTES + 1024;

// The number of blocks that fit on a multiprocessor at the same time: at most `most` and at least one.
constexpr int blocksWithin(int sharedBytes, int most) {
  const int fitting = MULTIPROCESSOR_SHARED_BYTES / (sharedBytes + 1024);
  return fitting < 1 ? 1 : fitting < most ? fitting : most;
}

// True if the kernels of this build run on a card of capability major.minor. It must be the capability of the build or a later one of the same
// generation, and the card must have at least as much shared memory.
constexpr bool builtFor(int major, int minor, size_t sharedBytes) {
  return major == PIE_CAPABILITY / 10 && minor >= PIE_CAPABILITY % 10 && sharedBytes >= SHARED_BYTES;
}

}  // namespace pie
