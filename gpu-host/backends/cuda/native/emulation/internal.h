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

// Every API call begins here. Returns the error of a lost device or of a planned failure, or success.
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
void lose(cudaError_t error);
// True if the next kernel must lose the device instead of running.
bool kernelFails();
int slowness();
// Returns when no test holds the device.
void waitWhileHeld();
void countKernel();

enum class Memory { Unknown, Device, Pinned };
// The allocation that contains `pointer`. Sets `whole` if it contains all of [pointer, pointer + bytes).
Memory memoryAt(const void* pointer, size_t bytes, bool* whole);

// A graph under construction from the calls on its streams.
struct Capture {
  cudaStreamCaptureMode mode;
  std::thread::id thread;
  cudaStream_t origin;
  cudaGraph_t graph;
  bool invalid = false;
  std::set<cudaStream_t> streams;
};

// Queues work, or adds it to the capture that the stream is part of.
cudaError_t enqueue(cudaStream_t stream, Work work);
// True for an existing stream; null is the default stream.
bool isStream(cudaStream_t stream);
std::shared_ptr<Capture> captureOf(cudaStream_t stream);
// For calls that some captures forbid: invalidates the open captures that do and returns the error, or returns success.
cudaError_t forbiddenWhileCapturing();
std::shared_ptr<OneShotEvent> eventAfterAll(cudaStream_t stream);
// Discards all open captures.
void endCaptures();
// Waits for all streams.
void finishEverything();

}  // namespace emulation

struct CUgraph_st {
  struct Node {
    emulation::Work work;
    std::vector<size_t> after;
  };
  std::vector<Node> nodes;
};
struct CUgraphExec_st {
  std::vector<CUgraph_st::Node> nodes;
  uint64_t launches = 0;
  std::atomic<int> running{0};  // Launches that have not ended.
};
