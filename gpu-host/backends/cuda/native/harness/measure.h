// Measures time on the host's and the device's clock, and summarises samples.
#pragma once
#include <algorithm>
#include <chrono>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>
#include "../engine/streams.h"
#include "json.h"

namespace pie::harness {

inline double nowMs() { return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

class Samples {
 public:
  void add(double value) { values.push_back(value); }
  size_t size() const { return values.size(); }
  // Nearest rank; 0.5 is the median.
  double quantile(double share) const {
    if (values.empty()) return NAN;
    std::vector<double> ordered = values;
    std::sort(ordered.begin(), ordered.end());
    return ordered[static_cast<size_t>(share * static_cast<double>(ordered.size() - 1) + 0.5)];
  }
  double median() const { return quantile(0.5); }
  double mean() const {
    double sum = 0;
    for (const double value : values) sum += value;
    return sum / static_cast<double>(values.size());
  }
  Samples times(double factor) const {
    Samples scaled = *this;
    for (double& value : scaled.values) value *= factor;
    return scaled;
  }
  std::string json() const {
    JsonObject object;
    object.set("median", median()).set("mean", mean()).set("p10", quantile(0.1)).set("p90", quantile(0.9));
    return object.set("least", quantile(0)).set("most", quantile(1)).set("count", size()).text();
  }

 private:
  std::vector<double> values;
};

class DeviceBytes {
 public:
  explicit DeviceBytes(size_t bytes) : bytes(bytes) {
    if (cudaMalloc(&data, bytes > 0 ? bytes : 16) != cudaSuccess) {
      cudaGetLastError();
      throw std::runtime_error("cannot allocate " + std::to_string(bytes) + " bytes on the device");
    }
  }
  ~DeviceBytes() { cudaFree(data); }
  DeviceBytes(DeviceBytes&& other) noexcept : bytes(other.bytes), data(std::exchange(other.data, nullptr)) {}
  DeviceBytes& operator=(DeviceBytes&&) = delete;
  template <typename T>
  T* as(size_t offset = 0) const {
    return reinterpret_cast<T*>(static_cast<unsigned char*>(data) + offset);
  }
  const size_t bytes;

 private:
  void* data = nullptr;
};

// Device milliseconds of each call of `work`, which must only launch and not wait.
Samples deviceTimes(int warm, int times, cudaStream_t stream, const std::function<void()>& work);

// Microseconds per launch in a sequence without host interaction: `launch(i)` for i = 0 .. count - 1 is captured into a graph, which is replayed. A
// caller can select buffers by `i`, so that they do not stay in the cache.
Samples launchTimes(int count, int replays, cudaStream_t stream, const std::function<void(int)>& launch);

}  // namespace pie::harness
