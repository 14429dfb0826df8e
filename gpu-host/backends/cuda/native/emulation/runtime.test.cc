// Memory, streams, events and faults of the emulated runtime.
#include <chrono>
#include <cmath>
#include <future>
#include <string>
#include <thread>
#include <vector>
#include "../device/capability.h"
#include "../testing/device.h"
#include "../testing/test.h"

using testing::cudaOk;
using testing::DeviceArray;
using testing::Stream;

namespace {

__global__ void addOne(int* value) { *value += 1; }
__global__ void multiply(int* value, int by) { *value *= by; }
__global__ void writeAt(unsigned char* memory, long at) { memory[at] = 1; }

// Restores the device's configuration after a test.
struct Restore {
  ~Restore() {
    emulation::slowDown(0);
    emulation::restoreDevice();
    emulation::setDevice({});
    emulation::catchFaults(false);
  }
};

struct Event {
  cudaEvent_t event;
  explicit Event(unsigned flags = cudaEventDisableTiming) { cudaOk(cudaEventCreateWithFlags(&event, flags)); }
  ~Event() { (void)cudaEventDestroy(event); }
  operator cudaEvent_t() const { return event; }
};
struct Pinned {
  int* data;
  explicit Pinned(int value) {
    cudaOk(cudaMallocHost(&data, sizeof(int)));
    *data = value;
  }
  ~Pinned() { (void)cudaFreeHost(data); }
};

// Blocks a stream until it is opened.
class Gate {
 public:
  explicit Gate(cudaStream_t stream) {
    cudaOk(cudaLaunchHostFunc(stream, [](void* gate) { static_cast<Gate*>(gate)->passed.get_future().wait(); }, this));
  }
  void open() { passed.set_value(); }

 private:
  std::promise<void> passed;
};

}  // namespace

TEST("memory starts as NaN, is counted, and is limited to the device's size") {
  const Restore restore;
  const size_t before = emulation::deviceBytes();
  emulation::setDevice({1, before + (1 << 20), 4});
  float* first = nullptr;
  CHECK_EQUAL(cudaMalloc(&first, 512 << 10), cudaSuccess);
  float value = 0;
  cudaOk(cudaMemcpy(&value, first + 1000, sizeof value, cudaMemcpyDeviceToHost));
  CHECK(std::isnan(value));
  size_t free = 0, total = 0;
  cudaOk(cudaMemGetInfo(&free, &total));
  CHECK_EQUAL(free, size_t{512} << 10);
  CHECK_EQUAL(total, before + (1 << 20));
  void* second = nullptr;
  CHECK_EQUAL(cudaMalloc(&second, (512 << 10) + 1), cudaErrorMemoryAllocation);
  CHECK_EQUAL(cudaGetLastError(), cudaErrorMemoryAllocation);
  CHECK_EQUAL(cudaGetLastError(), cudaSuccess);
  CHECK(second == nullptr);
  CHECK_EQUAL(cudaMalloc(&second, 512 << 10), cudaSuccess);
  cudaOk(cudaFree(first));
  cudaOk(cudaFree(second));
  CHECK_EQUAL(emulation::deviceBytes(), before);
  CHECK_EQUAL(cudaFree(&value), cudaErrorInvalidValue);
}

TEST("a write outside of an allocation is detected when the allocation is freed") {
  const Restore restore;
  emulation::catchFaults(true);
  for (const long at : {1000L, -1L}) {
    unsigned char* memory = nullptr;
    cudaOk(cudaMalloc(&memory, 1000));
    LAUNCH(writeAt, 1, 1, 0, 0, memory, at);
    (void)cudaFree(memory);
    const std::string fault = emulation::takeFault();
    CHECK(fault.find(at < 0 ? "before" : "past the end") != std::string::npos);
  }
}

TEST("copies must stay within allocations and match their direction") {
  DeviceArray<int> memory(4);
  std::vector<int> host(8);
  CHECK_EQUAL(cudaMemcpy(memory.get(), host.data(), 5 * sizeof(int), cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  CHECK_EQUAL(cudaMemcpy(memory.get(), host.data(), 4 * sizeof(int), cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
  CHECK_EQUAL(cudaMemcpy(host.data(), host.data() + 4, sizeof(int), cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
  CHECK_EQUAL(cudaMemcpy(memory.get(), host.data(), 4 * sizeof(int), cudaMemcpyDefault), cudaSuccess);
  CHECK_EQUAL(cudaMemset(host.data(), 0, 4), cudaErrorInvalidValue);
  (void)cudaGetLastError();
}

TEST("two-dimensional copies do not touch the gaps between rows") {
  DeviceArray<int> memory(std::vector<int>(12));
  const std::vector<int> rows = {1, 2, 3, 4, 5, 6};
  cudaOk(cudaMemcpy2D(memory.get(), 16, rows.data(), 8, 8, 3, cudaMemcpyHostToDevice));
  const std::vector<int> expected = {1, 2, 0, 0, 3, 4, 0, 0, 5, 6, 0, 0};
  CHECK(memory.host() == expected);
}

TEST("work is asynchronous and follows the stream's order") {
  const Stream stream;
  DeviceArray<int> value(std::vector<int>{1});
  const Pinned seen(-1);
  Gate gate(stream);
  LAUNCH(addOne, 1, 1, 0, stream, value.get());
  LAUNCH(multiply, 1, 1, 0, stream, value.get(), 10);
  cudaOk(cudaMemcpyAsync(seen.data, value.get(), sizeof(int), cudaMemcpyDeviceToHost, stream));
  CHECK_EQUAL(cudaStreamQuery(stream), cudaErrorNotReady);
  CHECK_EQUAL(*seen.data, -1);
  gate.open();
  cudaOk(cudaStreamSynchronize(stream));
  CHECK_EQUAL(*seen.data, 20);
  CHECK_EQUAL(cudaStreamQuery(stream), cudaSuccess);
}

TEST("only events order the work of several streams") {
  const Stream first, second;
  const Event done, other;
  DeviceArray<int> value(std::vector<int>{1});
  const Pinned seen(-1);
  Gate gate(first);
  LAUNCH(addOne, 1, 1, 0, first, value.get());
  cudaOk(cudaMemcpyAsync(seen.data, value.get(), sizeof(int), cudaMemcpyDeviceToHost, second));
  cudaOk(cudaStreamSynchronize(second));
  CHECK_EQUAL(*seen.data, 1);
  cudaOk(cudaEventRecord(done, first));
  cudaOk(cudaStreamWaitEvent(second, done));
  cudaOk(cudaMemcpyAsync(seen.data, value.get(), sizeof(int), cudaMemcpyDeviceToHost, second));
  CHECK_EQUAL(cudaEventQuery(done), cudaErrorNotReady);
  CHECK_EQUAL(cudaStreamQuery(second), cudaErrorNotReady);
  CHECK_EQUAL(cudaEventQuery(other), cudaSuccess);
  gate.open();
  cudaOk(cudaStreamSynchronize(second));
  CHECK_EQUAL(*seen.data, 2);
  CHECK_EQUAL(cudaEventQuery(done), cudaSuccess);
  CHECK_EQUAL(cudaGetLastError(), cudaSuccess);
}

TEST("pageable memory is read and written before a copy returns") {
  const Restore restore;
  const Stream stream;
  DeviceArray<int> value(std::vector<int>{1});
  emulation::slowDown(500);
  int host = 7;
  cudaOk(cudaMemcpyAsync(value.get(), &host, sizeof host, cudaMemcpyHostToDevice, stream));
  host = 8;
  int back = 0;
  cudaOk(cudaMemcpyAsync(&back, value.get(), sizeof back, cudaMemcpyDeviceToHost, stream));
  CHECK_EQUAL(back, 7);
}

TEST("the default stream and blocking streams wait for each other") {
  const Restore restore;
  const Stream blocking(cudaStreamDefault);
  DeviceArray<int> value(std::vector<int>{1});
  emulation::slowDown(1000);
  LAUNCH(addOne, 1, 1, 0, blocking, value.get());
  LAUNCH(multiply, 1, 1, 0, 0, value.get(), 10);
  LAUNCH(addOne, 1, 1, 0, blocking, value.get());
  int seen = 0;
  cudaOk(cudaMemcpy(&seen, value.get(), sizeof seen, cudaMemcpyDeviceToHost));
  CHECK_EQUAL(seen, 21);
}

TEST("events measure the time between them") {
  const Restore restore;
  const Stream stream;
  const Event from(cudaEventDefault), to(cudaEventDefault), none;
  cudaOk(cudaEventRecord(from, stream));
  cudaOk(cudaLaunchHostFunc(stream, [](void*) { std::this_thread::sleep_for(std::chrono::milliseconds(5)); }, nullptr));
  cudaOk(cudaEventRecord(to, stream));
  cudaOk(cudaEventSynchronize(to));
  float milliseconds = 0;
  cudaOk(cudaEventElapsedTime(&milliseconds, from, to));
  CHECK(milliseconds >= 4.9f);
  CHECK_EQUAL(cudaEventElapsedTime(&milliseconds, from, none), cudaErrorInvalidResourceHandle);
  (void)cudaGetLastError();
}

TEST("the emulation refuses launches that a GPU refuses") {
  DeviceArray<int> value(std::vector<int>{1});
  LAUNCH(addOne, 1, 1025, 0, 0, value.get());
  CHECK_EQUAL(cudaGetLastError(), cudaErrorInvalidConfiguration);
  LAUNCH(addOne, 0, 1, 0, 0, value.get());
  CHECK_EQUAL(cudaGetLastError(), cudaErrorInvalidConfiguration);
  LAUNCH(addOne, 1, 1, 50 << 10, 0, value.get());
  CHECK_EQUAL(cudaGetLastError(), cudaErrorInvalidValue);
  cudaOk(cudaFuncSetAttribute(addOne, cudaFuncAttributeMaxDynamicSharedMemorySize, 50 << 10));
  LAUNCH(addOne, 1, 1, 50 << 10, 0, value.get());
  CHECK_EQUAL(cudaGetLastError(), cudaSuccess);
  CHECK_EQUAL(cudaFuncSetAttribute(addOne, cudaFuncAttributeMaxDynamicSharedMemorySize, pie::SHARED_BYTES + 1024), cudaErrorInvalidValue);
  CHECK_EQUAL(cudaGetLastError(), cudaErrorInvalidValue);
  CHECK_EQUAL(value.host()[0], 2);
}

TEST("a planned failure occurs at the planned call; a sticky failure repeats until the device is restored") {
  const Restore restore;
  void* memory = nullptr;
  emulation::failCall("cudaMalloc", cudaErrorMemoryAllocation, 1, false);
  CHECK_EQUAL(cudaMalloc(&memory, 100), cudaSuccess);
  cudaOk(cudaFree(memory));
  CHECK_EQUAL(cudaMalloc(&memory, 100), cudaErrorMemoryAllocation);
  CHECK_EQUAL(cudaMalloc(&memory, 100), cudaSuccess);
  emulation::failCall("any", cudaErrorIllegalAddress);
  CHECK_EQUAL(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
  CHECK_EQUAL(cudaFree(memory), cudaErrorIllegalAddress);
  CHECK_EQUAL(cudaGetLastError(), cudaErrorIllegalAddress);
  CHECK_EQUAL(cudaGetLastError(), cudaErrorIllegalAddress);
  emulation::restoreDevice();
  CHECK_EQUAL(cudaFree(memory), cudaSuccess);
}

TEST("a kernel that loses the device is reported to the call that waits for it; later work is skipped") {
  const Restore restore;
  const Stream stream;
  DeviceArray<int> value(std::vector<int>{1});
  Gate gate(stream);
  emulation::failKernel(1);
  LAUNCH(addOne, 1, 1, 0, stream, value.get());
  LAUNCH(addOne, 1, 1, 0, stream, value.get());
  LAUNCH(addOne, 1, 1, 0, stream, value.get());
  CHECK_EQUAL(cudaGetLastError(), cudaSuccess);
  gate.open();
  CHECK_EQUAL(cudaStreamSynchronize(stream), cudaErrorIllegalAddress);
  CHECK_EQUAL(cudaGetLastError(), cudaErrorIllegalAddress);
  emulation::restoreDevice();
  CHECK_EQUAL(value.host()[0], 2);
}

TEST("without a device every call fails with a clear error") {
  const Restore restore;
  emulation::setDevice({0, 1 << 20, 4});
  int count = -1;
  void* memory = nullptr;
  cudaStream_t stream;
  CHECK_EQUAL(cudaGetDeviceCount(&count), cudaErrorNoDevice);
  CHECK_EQUAL(count, 0);
  CHECK_EQUAL(cudaMalloc(&memory, 100), cudaErrorNoDevice);
  CHECK_EQUAL(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaErrorNoDevice);
  CHECK_EQUAL(std::string(cudaGetErrorString(cudaErrorNoDevice)), "no CUDA-capable device is detected");
  CHECK_EQUAL(std::string(cudaGetErrorName(cudaErrorNoDevice)), "cudaErrorNoDevice");
}
