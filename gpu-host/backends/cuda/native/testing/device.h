// Device memory, streams and graphs for tests.
#pragma once
#include <stdexcept>
#include <string>
#include <vector>
#include "../device/device.h"

namespace testing {

inline void cudaOk(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}

// An array on the device, freed at the end of its scope. Uninitialised unless constructed from values (the emulation fills it with NaN).
template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(size_t count) : count(count) {
    if (count > 0) cudaOk(cudaMalloc(reinterpret_cast<void**>(&data), count * sizeof(T)));
  }
  DeviceArray(const std::vector<T>& values) : DeviceArray(values.size()) { set(values); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  ~DeviceArray() { (void)cudaFree(data); }
  operator T*() const { return data; }
  T* get() const { return data; }
  size_t size() const { return count; }
  void set(const std::vector<T>& values) {
    if (!values.empty()) cudaOk(cudaMemcpy(data, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
    // A copy from pageable memory may return before it has completed, and a test's own streams do not wait for it.
    cudaOk(cudaDeviceSynchronize());
  }
  // Waits for all streams.
  std::vector<T> host() const {
    std::vector<T> values(count);
    cudaOk(cudaDeviceSynchronize());
    if (count > 0) cudaOk(cudaMemcpy(values.data(), data, count * sizeof(T), cudaMemcpyDeviceToHost));
    return values;
  }

 private:
  T* data = nullptr;
  size_t count;
};

class Stream {
 public:
  explicit Stream(unsigned flags = cudaStreamNonBlocking) { cudaOk(cudaStreamCreateWithFlags(&stream, flags)); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() { (void)cudaStreamDestroy(stream); }
  operator cudaStream_t() const { return stream; }

 private:
  cudaStream_t stream = nullptr;
};

// A graph, captured from the work that `queue` adds to a stream.
class Graph {
 public:
  template <typename Queue>
  Graph(cudaStream_t stream, Queue queue) {
    cudaGraph_t captured = nullptr;
    cudaOk(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    queue();
    cudaOk(cudaStreamEndCapture(stream, &captured));
    cudaOk(cudaGraphInstantiate(&exec, captured, 0));
    cudaOk(cudaGraphDestroy(captured));
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  ~Graph() { (void)cudaGraphExecDestroy(exec); }
  void launch(cudaStream_t stream) const { cudaOk(cudaGraphLaunch(exec, stream)); }

 private:
  cudaGraphExec_t exec = nullptr;
};

}  // namespace testing
