// Shared by the files of the emulated runtime.
#pragma once
#include "../device/capability.h"
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>
#include "faults.h"
#include "runtime.h"
#include "sequence.h"

namespace emulation {

// Every API call calls this first. Returns the error of a lost device or of a planned failure, or success.
cudaError_t begin(const char* call);
// Stores an error for this thread's cudaGetLastError.
cudaError_t noted(cudaError_t error);

template <typename Body>
cudaError_t api(const char* call, Body body) {
  const cudaError_t error = begin(call);
  return noted(error == cudaSuccess ? body() : error);
}

// The error of a lost device, or success.
cudaError_t lost();
// Makes the device lost with this error, unless it is lost already.
void lose(cudaError_t error);
// Counts a kernel towards the failure that a test has planned (`failKernel`). When the failure is due, loses the device
// and returns true: the caller must not run the kernel.
bool kernelFails();
// Microseconds by which each piece of work must be delayed (`slowDown`); 0 for none.
int slowness();
// Blocks while a test holds the device (`Hold`).
void waitWhileHeld();
// Counts a kernel for `kernelsRun`.
void countKernel();

enum class Memory { Unknown, Device, Pinned };
// Kind of the allocation that contains `pointer`. Sets `whole` to true if the allocation contains all of [pointer, pointer + bytes).
Memory memoryAt(const void* pointer, size_t bytes, bool* whole);

// A graph under construction: each call on one of `streams` becomes a node of `graph` and does not run.
struct Capture {
  cudaStreamCaptureMode mode;
  std::thread::id thread;  // The thread that began the capture.
  cudaStream_t origin;     // The stream on which the capture began.
  cudaGraph_t graph;
  bool invalid = false;
  std::set<cudaStream_t> streams;
};

// Queues work, or adds it to the capture that the stream is part of.
cudaError_t enqueue(cudaStream_t stream, Work work);
// True for an existing stream; null is the default stream.
bool isStream(cudaStream_t stream);
// The capture that the stream is part of, or null.
std::shared_ptr<Capture> captureOf(cudaStream_t stream);
// For API calls that must not happen during a capture. Invalidates each open capture whose mode forbids such calls on
// this thread. Returns an error if it has invalidated one, else success.
cudaError_t forbiddenWhileCapturing();
// An event that follows all work that is on the stream now.
std::shared_ptr<OneShotEvent> eventAfterAll(cudaStream_t stream);
// Discards all open captures.
void endCaptures();
// Waits for all streams.
void finishEverything();

}  // namespace emulation

struct CUgraph_st {
  struct Node {
    emulation::Work work;
    std::vector<size_t> after;  // Indices of the nodes on which this node depends.
  };
  std::vector<Node> nodes;
};
struct CUgraphExec_st {
  std::vector<CUgraph_st::Node> nodes;
  uint64_t launches = 0;
  std::atomic<int> running{0};  // Launches that have not ended.
};
