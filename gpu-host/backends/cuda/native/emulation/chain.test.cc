// Kernels that begin before the previous kernel has ended.
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>
#include "../device/launch.h"
#include "../testing/device.h"
#include "../testing/test.h"

using pie::LaunchChain;
using testing::cudaOk;
using testing::DeviceArray;
using testing::Stream;

namespace {

// Returns whether `flag` is set within the limit.
bool comes(const std::atomic<bool>& flag, std::chrono::milliseconds limit = std::chrono::seconds(5)) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!flag && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  return flag;
}

std::atomic<bool> secondIsThere, held;

__global__ void holdUntilSecond(int* seen) {
  pie::letNextBegin();
  pie::waitForEarlier();
  if (threadIdx.x == 0) *seen = comes(secondIsThere);
}
__global__ void sayHere(int* seen, int* copy) {
  if (threadIdx.x == 0) secondIsThere = true;
  pie::waitForEarlier();
  if (threadIdx.x == 0) *copy = *seen + 10;
}
__global__ void increment(int* values) {
  pie::letNextBegin();
  pie::waitForEarlier();
  values[blockIdx.x * blockDim.x + threadIdx.x]++;
}
__global__ void readsTooSoon(int* to, const int* from) {
  const int value = from[threadIdx.x];
  if (threadIdx.x == 0) held = true;
  pie::waitForEarlier();
  to[threadIdx.x] = value;
}
__global__ void writesLate(int* to) {
  pie::letNextBegin();
  pie::waitForEarlier();
  if (threadIdx.x == 0) (void)comes(held);
  to[threadIdx.x] = 1;
}
__global__ void writesUnlessRead(int* to) {
  pie::letNextBegin();
  pie::waitForEarlier();
  if (threadIdx.x == 0) (void)comes(held, std::chrono::milliseconds(20));
  to[threadIdx.x] = 1;
}
__global__ void waitsInSome(int* values) {
  if (threadIdx.x % 2 == 0) pie::waitForEarlier();
  values[threadIdx.x] = 1;
}
__global__ void nothing() { pie::waitForEarlier(); }

// Delays the stream while launches are queued, as preceding work would.
void hold(cudaStream_t stream) {
  cudaOk(cudaLaunchHostFunc(stream, [](void*) { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }, nullptr));
}

// Runs the launches of `launches`, directly or from a graph.
template <typename Launches>
void run(bool graph, const Stream& stream, Launches launches) {
  if (graph) {
    testing::Graph(stream, launches).launch(stream);
  } else {
    hold(stream);
    launches();
  }
  cudaOk(cudaStreamSynchronize(stream));
  cudaOk(cudaGetLastError());
}

}  // namespace

TEST("a chained kernel begins while its predecessor runs, and sees the predecessor's writes after the wait") {
  for (const bool graph : {false, true}) {
    const Stream stream;
    DeviceArray<int> seen(std::vector<int>{0}), copy(std::vector<int>{0});
    secondIsThere = false;
    run(graph, stream, [&] {
      const LaunchChain chain(true);
      LAUNCH_CHAINED(holdUntilSecond, 1, 64, 0, stream, seen.get());
      LAUNCH_CHAINED(sayHere, 3, 64, 0, stream, seen.get(), copy.get());
    });
    CHECK_EQUAL(seen.host()[0], 1);
    CHECK_EQUAL(copy.host()[0], 11);
  }
}

TEST("without a chain, no kernel begins early") {
  const Stream stream;
  DeviceArray<int> value(std::vector<int>{0}), copy(std::vector<int>{-1});
  held = false;
  run(false, stream, [&] {
    LAUNCH_CHAINED(nothing, 1, 1, 0, stream);
    LAUNCH_CHAINED(writesUnlessRead, 1, 1, 0, stream, value.get());
    LAUNCH_CHAINED(readsTooSoon, 1, 1, 0, stream, copy.get(), value.get());
  });
  CHECK_EQUAL(copy.host()[0], 1);
}

TEST("a chained kernel that follows work other than a kernel does not begin early") {
  const Stream stream;
  DeviceArray<int> value(std::vector<int>{0}), copy(std::vector<int>{-1});
  run(false, stream, [&] {
    const LaunchChain chain(true);
    LAUNCH_CHAINED(nothing, 1, 1, 0, stream);
    cudaOk(cudaMemsetAsync(value.get(), 1, 4, stream));
    LAUNCH_CHAINED(readsTooSoon, 1, 1, 0, stream, copy.get(), value.get());
  });
  CHECK_EQUAL(copy.host()[0], 0x01010101);
}

TEST("a long chain over many blocks keeps its order") {
  for (const bool graph : {false, true}) {
    const Stream stream;
    DeviceArray<int> values(std::vector<int>(7 * 64, 0));
    run(graph, stream, [&] {
      const LaunchChain chain(true);
      for (int i = 0; i < 40; i++) LAUNCH_CHAINED(increment, 7, 64, 0, stream, values.get());
    });
    CHECK(values.host() == std::vector<int>(7 * 64, 40));
  }
}

TEST("a read before the wait returns the old value") {
  const Stream stream;
  DeviceArray<int> from(std::vector<int>(32, 0)), to(std::vector<int>(32, -1));
  held = false;
  run(true, stream, [&] {
    const LaunchChain chain(true);
    LAUNCH_CHAINED(nothing, 1, 32, 0, stream);
    LAUNCH_CHAINED(writesLate, 1, 32, 0, stream, from.get());
    LAUNCH_CHAINED(readsTooSoon, 1, 32, 0, stream, to.get(), from.get());
  });
  CHECK(from.host() == std::vector<int>(32, 1));
  CHECK_EQUAL(to.host()[0], 0);
}

TEST("a chained kernel with a thread that has not waited is a fault, even if the kernel began after all other work had ended") {
  const Stream stream;
  DeviceArray<int> values(std::vector<int>(32, 0));
  emulation::catchFaults(true);
  {
    const LaunchChain chain(true);
    LAUNCH_CHAINED(nothing, 1, 32, 0, stream);
    cudaOk(cudaStreamSynchronize(stream));
    LAUNCH_CHAINED(waitsInSome, 1, 32, 0, stream, values.get());
  }
  CHECK_EQUAL(static_cast<int>(cudaStreamSynchronize(stream)), static_cast<int>(cudaErrorLaunchFailure));
  const std::string fault = emulation::takeFault();
  CHECK(fault.find("waitsInSome") != std::string::npos);
  CHECK(fault.find("without having waited") != std::string::npos);
  emulation::restoreDevice();
  emulation::catchFaults(false);
  (void)cudaGetLastError();
}

TEST("a failing kernel ends the kernels that wait for it") {
  const Stream stream;
  DeviceArray<int> values(std::vector<int>(64, 0));
  hold(stream);
  {
    const LaunchChain chain(true);
    emulation::failKernel(1);
    for (int i = 0; i < 4; i++) LAUNCH_CHAINED(increment, 1, 64, 0, stream, values.get());
  }
  CHECK_EQUAL(static_cast<int>(cudaStreamSynchronize(stream)), static_cast<int>(cudaErrorIllegalAddress));
  emulation::restoreDevice();
  (void)cudaGetLastError();
}
