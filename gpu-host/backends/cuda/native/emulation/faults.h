// For tests: how the emulated device is, and how it fails.
#pragma once
#include <cstddef>
#include <string>
#include "runtime.h"

namespace emulation {

struct Device {
  int count = 1;
  size_t memoryBytes = size_t{1} << 30;
  int multiprocessors = 4;
};
// Of all later calls.
void setDevice(const Device& device);
Device device();

// The call of the API with this name ("cudaMalloc"; "launch" for a kernel's start; "any") fails with `error`, after `after` such calls that do not.
// A sticky one is what a lost device gives: every call after it fails alike, until restoreDevice().
void failCall(const char* name, cudaError_t error, int after = 0, bool sticky = true);
// The same when the work is done, not when it is queued: the error comes with a later call, as on the card. Of kernels only.
void failKernel(int after = 0, cudaError_t error = cudaErrorIllegalAddress);
void loseDevice(cudaError_t error = cudaErrorIllegalAddress);
// Well again, with nothing planned to fail and no capture open. Memory and streams are as they were.
void restoreDevice();

// Every piece of work on a stream starts this much later: what is not waited for is then surely not there.
void slowDown(int microseconds);

// What is allocated now.
size_t deviceBytes();
size_t deviceAllocations();
size_t pinnedAllocations();
// What was launched since the start, those of graphs included.
size_t kernelsRun();

// A kernel's fault (divergence, deadlock, a write past the end …) ends the process with a message, or, when faults are caught, loses the device.
void catchFaults(bool caught);
// The message of the last one that was caught; empty when there was none. Forgets it.
std::string takeFault();
void reportFault(const char* message);

// A crash in a kernel says in which, and which thread.
void explainCrashes();
std::string whereInKernel();

}  // namespace emulation
