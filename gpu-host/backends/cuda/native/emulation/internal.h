// What the files of the emulated runtime share.
#pragma once
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

// Every call begins here: a lost device, or a planned failure, is its answer. Otherwise success.
cudaError_t begin(const char* call);
// Keeps an error for cudaGetLastError of this thread.
cudaError_t noted(cudaError_t error);

template <typename Body>
cudaError_t api(const char* call, Body body) {
  const cudaError_t error = begin(call);
  return noted(error == cudaSuccess ? body() : error);
}

// The error of a lost device, or success.
cudaError_t lost();
void lose(cudaError_t error);
// Whether the kernel that would run now loses the device instead.
bool kernelFails();
int slowness();
void countKernel();

enum class Memory { Unknown, Device, Pinned };
// What [pointer, pointer + bytes) is part of. `whole` tells whether all of it is.
Memory memoryAt(const void* pointer, size_t bytes, bool* whole);

// One graph that is being made of what streams are given.
struct Capture {
  cudaStreamCaptureMode mode;
  std::thread::id thread;
  cudaStream_t origin;
  cudaGraph_t graph;
  bool invalid = false;
  std::set<cudaStream_t> streams;
};

// Queues work, or takes it into the capture that the stream is in.
cudaError_t enqueue(cudaStream_t stream, Work work);
// Of a stream that exists; null is the default one.
bool isStream(cudaStream_t stream);
std::shared_ptr<Capture> captureOf(cudaStream_t stream);
// For calls that no capture allows meanwhile: makes those under way invalid.
cudaError_t forbiddenWhileCapturing();
std::shared_ptr<Moment> momentAfterAll(cudaStream_t stream);
// Ends those under way, as if they had never begun.
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
};
