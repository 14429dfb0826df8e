// For tests: the properties of the emulated device, and its failures.
#pragma once
#include <cstddef>
#include <string>
#include "../device/capability.h"
#include "runtime.h"

namespace emulation {

struct Device {
  int count = 1;
  size_t memoryBytes = size_t{1} << 30;
  int multiprocessors = 4;
  int capability = PIE_CAPABILITY;
};
// Takes effect for all later calls.
void setDevice(const Device& device);
Device device();

// Makes the API call with this name ("cudaMalloc"; "launch" for a kernel launch; "any" for any call) fail with `error` after `after` successful
// calls. A sticky failure behaves like a lost device: every later call fails the same way until restoreDevice().
void failCall(const char* name, cudaError_t error, int after = 0, bool sticky = true);
// The same for the execution of a kernel, not its launch: as on a GPU, a later call returns the error.
void failKernel(int after = 0, cudaError_t error = cudaErrorIllegalAddress);
// Resets planned failures and the lost state, and ends open captures. Memory and streams are unchanged.
void restoreDevice();

// Delays the start of every piece of work on a stream by this time, so that a missing wait reliably shows.
void slowDown(int microseconds);

// Current allocations.
size_t deviceBytes();
size_t deviceAllocations();
size_t pinnedAllocations();
// Kernels run since the start, including those of graphs.
size_t kernelsRun();

// A kernel's fault (divergence, deadlock, a write past the end …) ends the process with a message, or, if faults are caught, loses the device.
void catchFaults(bool caught);
// Returns and clears the message of the last caught fault; empty if there was none.
std::string takeFault();
void reportFault(const char* message);

// A crash in a kernel prints the kernel, block and thread.
void explainCrashes();
std::string whereInKernel();

}  // namespace emulation
