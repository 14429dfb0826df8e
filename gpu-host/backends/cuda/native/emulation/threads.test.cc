// Emulated threads behave as CUDA specifies, and the emulation reports what CUDA forbids.
#include "threads.h"

#include <cmath>
#include <string>
#include <vector>
#include "../device/copy.h"
#include "../device/mma.h"
#include "../testing/device.h"
#include "../testing/test.h"

using testing::DeviceArray;

namespace {

// Runs a launch that is expected to fault, and returns the message.
template <typename Launch>
std::string faultOf(Launch launch) {
  emulation::catchFaults(true);
  launch();
  (void)cudaDeviceSynchronize();
  emulation::catchFaults(false);
  emulation::restoreDevice();
  return emulation::takeFault();
}
bool contains(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

struct Lanes {
  int xor3, up1, down2, lane5, groupLane1, groupUp1;
  unsigned ballot, match;
  int any, all;
  unsigned sum, most, least, both;
  int signedLeast;
};
__global__ void exchange(Lanes* out) {
  const int lane = threadIdx.x % 32, value = 100 + lane;
  Lanes& mine = out[threadIdx.x];
  mine.xor3 = __shfl_xor_sync(~0u, value, 3);
  mine.up1 = __shfl_up_sync(~0u, value, 1);
  mine.down2 = __shfl_down_sync(~0u, value, 2);
  mine.lane5 = __shfl_sync(~0u, value, 5);
  mine.groupLane1 = __shfl_sync(~0u, value, 1, 8);
  mine.groupUp1 = __shfl_up_sync(~0u, value, 1, 8);
  mine.ballot = __ballot_sync(~0u, lane % 3 == 0);
  mine.match = __match_any_sync(~0u, lane % 4);
  mine.any = __any_sync(~0u, lane == 7);
  mine.all = __all_sync(~0u, lane < 31);
  mine.sum = __reduce_add_sync(~0u, static_cast<unsigned>(lane));
  mine.most = __reduce_max_sync(~0u, static_cast<unsigned>(lane));
  mine.least = __reduce_min_sync(~0u, static_cast<unsigned>(value));
  mine.both = __reduce_and_sync(~0u, static_cast<unsigned>(value));
  mine.signedLeast = __reduce_min_sync(~0u, 5 - lane);
}

// Each half of the warp exchanges on its own, the second half twice.
__global__ void halves(int* out) {
  const int lane = threadIdx.x;
  int value = lane;
  if (lane < 16) {
    value = __shfl_xor_sync(0x0000ffffu, value, 1);
  } else {
    value = __shfl_xor_sync(0xffff0000u, value, 2);
    value = __shfl_xor_sync(0xffff0000u, value, 4);
  }
  __syncwarp();
  out[lane] = value;
}

__global__ void readsAbsentLane(int* out) {
  const int lane = threadIdx.x, whole = __shfl_sync(~0u, lane, 20);
  out[lane] = lane < 16 ? __shfl_sync(0x0000ffffu, lane, 20) : whole;
}

__global__ void counts(int* out) {
  const int i = threadIdx.x;
  const int count = __syncthreads_count(i % 3 == 0);
  const int any = __syncthreads_or(i == 50), all = __syncthreads_and(i != 50);
  if (i == 50) out[0] = count, out[1] = any, out[2] = all;
}

// Reports the initial contents of shared memory, and leaves values for the next block to find.
__global__ void findShared(float* found) {
  __shared__ float kept;
  DYNAMIC_SHARED(float, dynamic);
  found[2 * blockIdx.x] = dynamic[3];
  if (blockIdx.x == 0) found[1] = kept;
  kept = 1;
  dynamic[3] = 1;
}

__global__ void sumInOrder(float* sums, const float* values, int perBlock) {
  __shared__ float part[8];
  float sum = 0;
  for (int i = threadIdx.x; i < perBlock; i += blockDim.x) sum += values[blockIdx.x * perBlock + i];
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x == 0) {
    float all = 0;
    for (unsigned i = 0; i < blockDim.x / 32; i++) all += part[i];
    sums[blockIdx.x] = all;
  }
}

// The last block to arrive adds up the parts of all blocks.
__global__ void lastAddsUp(unsigned* total, unsigned* parts, unsigned* arrived) {
  parts[blockIdx.x] = blockIdx.x + 1;
  __threadfence();
  if (atomicAdd(arrived, 1u) != gridDim.x - 1) return;
  __threadfence();
  unsigned sum = 0;
  for (unsigned i = 0; i < gridDim.x; i++) sum += parts[i];
  *total = sum;
}

__global__ void atomics(unsigned* counts, float* sum, int* most, int* least) {
  atomicAdd(counts, 1u);
  atomicInc(counts + 1, 9u);
  atomicAdd(sum, 0.5f);
  atomicMax(most, static_cast<int>(threadIdx.x));
  atomicMin(least, -static_cast<int>(threadIdx.x));
  unsigned seen = counts[2], expected;
  do {
    expected = seen;
    seen = atomicCAS(counts + 2, expected, expected + 2);
  } while (seen != expected);
}

__global__ void divergentBarrier() {
  if (threadIdx.x < 32) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}
__global__ void someEndEarly(int* out) {
  if (threadIdx.x >= 40) return;
  __syncthreads();
  out[threadIdx.x] = 1;
}
__global__ void laneMissing() {
  if (threadIdx.x == 3) __syncthreads();
  (void)__shfl_xor_sync(~0u, 1, 1);
  __syncthreads();
}
__global__ void halvesThenBarrier() {
  (void)__shfl_xor_sync(threadIdx.x < 16 ? 0x0000ffffu : 0xffff0000u, 1, 1);
  if (threadIdx.x < 31) __syncthreads();
  else (void)__shfl_xor_sync(~0u, 1, 1);
}
__global__ void notInMask() { (void)__shfl_sync(0xfffffffeu, 1, 1); }
__global__ void pastShared(int bytes) {
  DYNAMIC_SHARED(unsigned char, memory);
  if (threadIdx.x == 0) memory[bytes] = 1;
}
__global__ void loadsFromGlobal(const float* memory, uint32_t* out) {
  uint32_t one[1];
  pie::loadMatrices(one, memory);
  out[threadIdx.x] = one[0];
}
__global__ void loadsMisaligned(uint32_t* out) {
  DYNAMIC_SHARED(unsigned char, memory);
  uint32_t one[1];
  pie::loadMatrices(one, memory + 8);
  out[threadIdx.x] = one[0];
}

__global__ void reversedWithoutBarrier(int* out) {
  __shared__ int values[64];
  values[threadIdx.x] = threadIdx.x;
  // The missing barrier.
  out[threadIdx.x] = values[63 - threadIdx.x];
}

template <bool WAIT>
__global__ void copyAndRead(float* out, const float* in) {
  __shared__ __align__(16) float buffer[4];
  if (threadIdx.x == 0) {
    pie::copyAsync16(buffer, in);
    pie::commitCopies();
    if (WAIT) pie::waitForCopies<0>();
    out[0] = buffer[0];
  }
}

}  // namespace

TEST("lanes exchange values as the programming guide specifies") {
  DeviceArray<Lanes> out(64);
  LAUNCH(exchange, 1, 64, 0, 0, out.get());
  const auto got = out.host();
  for (int thread = 0; thread < 64; thread++) {
    const Lanes& mine = got[thread];
    const int lane = thread % 32;
    CHECK_EQUAL(mine.xor3, 100 + (lane ^ 3));
    CHECK_EQUAL(mine.up1, 100 + (lane == 0 ? 0 : lane - 1));
    CHECK_EQUAL(mine.down2, 100 + (lane > 29 ? lane : lane + 2));
    CHECK_EQUAL(mine.lane5, 105);
    CHECK_EQUAL(mine.groupLane1, 100 + lane / 8 * 8 + 1);
    CHECK_EQUAL(mine.groupUp1, 100 + (lane % 8 == 0 ? lane : lane - 1));
    CHECK_EQUAL(mine.ballot, 0x49249249u);
    CHECK_EQUAL(mine.match, 0x11111111u << lane % 4);
    CHECK_EQUAL(mine.any, 1);
    CHECK_EQUAL(mine.all, 0);
    CHECK_EQUAL(mine.sum, 496u);
    CHECK_EQUAL(mine.most, 31u);
    CHECK_EQUAL(mine.least, 100u);
    CHECK_EQUAL(mine.both, 0u);
    CHECK_EQUAL(mine.signedLeast, -26);
  }
}

TEST("halves of a warp exchange independently") {
  DeviceArray<int> out(32);
  LAUNCH(halves, 1, 32, 0, 0, out.get());
  const auto got = out.host();
  for (int lane = 0; lane < 32; lane++) CHECK_EQUAL(got[lane], lane < 16 ? lane ^ 1 : lane ^ 6);
}

TEST("the value of a lane that takes no part has all bits set, also after an exchange in which it took part") {
  DeviceArray<int> out(32);
  LAUNCH(readsAbsentLane, 1, 32, 0, 0, out.get());
  const auto got = out.host();
  for (int lane = 0; lane < 32; lane++) CHECK_EQUAL(got[lane], lane < 16 ? -1 : 20);
}

TEST("barrier reductions cover all threads of a block whose last warp is partial") {
  DeviceArray<int> out(3);
  LAUNCH(counts, 1, 100, 0, 0, out.get());
  const auto got = out.host();
  CHECK_EQUAL(got[0], 34);  // The multiples of 3 below 100.
  CHECK_EQUAL(got[1], 1);
  CHECK_EQUAL(got[2], 0);
}

TEST("every block has its own shared memory, which starts as NaN") {
  DeviceArray<float> found(2 * 16);
  LAUNCH(findShared, 16, 1, 16, 0, found.get());
  const auto got = found.host();
  if (emulation::knowsStaticShared()) CHECK(std::isnan(got[1]));
  for (int block = 0; block < 16; block++) CHECK(std::isnan(got[2 * block]));
}

TEST("blocks sum values with barriers and shared memory") {
  testing::Random random(1);
  const auto values = random.normals(20 * 500);
  DeviceArray<float> in(values), sums(20);
  LAUNCH(sumInOrder, 20, 256, 0, 0, sums.get(), in.get(), 500);
  const auto got = sums.host();
  for (int block = 0; block < 20; block++) {
    double sum = 0;
    for (int i = 0; i < 500; i++) sum += values[block * 500 + i];
    CHECK_CLOSE(got[block], sum, 1e-4);
  }
}

TEST("the last block sees the writes of all others") {
  for (int round = 0; round < 20; round++) {
    DeviceArray<unsigned> total(1), parts(50), arrived(std::vector<unsigned>{0});
    LAUNCH(lastAddsUp, 50, 1, 0, 0, total.get(), parts.get(), arrived.get());
    CHECK_EQUAL(total.host()[0], 50u * 51 / 2);
  }
}

TEST("atomics of many blocks lose no update") {
  DeviceArray<unsigned> counts(std::vector<unsigned>(3));
  DeviceArray<float> sum(std::vector<float>(1));
  DeviceArray<int> most(std::vector<int>{-1}), least(std::vector<int>{1});
  LAUNCH(atomics, 30, 64, 0, 0, counts.get(), sum.get(), most.get(), least.get());
  const auto got = counts.host();
  CHECK_EQUAL(got[0], 30u * 64);
  CHECK_EQUAL(got[1], 30u * 64 % 10);
  CHECK_EQUAL(got[2], 30u * 64 * 2);
  CHECK_EQUAL(sum.host()[0], 30 * 64 * 0.5f);
  CHECK_EQUAL(most.host()[0], 63);
  CHECK_EQUAL(least.host()[0], -63);
}

TEST("a divergent barrier is a fault that names the kernel, the block and both places") {
  const std::string fault = faultOf([] { LAUNCH(divergentBarrier, 2, 64, 0, 0); });
  CHECK(contains(fault, "kernel divergentBarrier"));
  CHECK(contains(fault, "barrier divergence"));
  CHECK(contains(fault, "block ("));
  CHECK(fault.find("threads.test.cc") != std::string::npos && fault.find("threads.test.cc") != fault.rfind("threads.test.cc"));
}

TEST("a barrier does not wait for threads that have ended") {
  DeviceArray<int> out(std::vector<int>(64));
  LAUNCH(someEndEarly, 1, 64, 0, 0, out.get());
  const auto got = out.host();
  for (int i = 0; i < 64; i++) CHECK_EQUAL(got[i], i < 40);
}

TEST("a deadlock is a fault that names the waiting threads and their places") {
  const std::string fault = faultOf([] { LAUNCH(laneMissing, 1, 32, 0, 0); });
  CHECK(contains(fault, "deadlock"));
  CHECK(contains(fault, "laneMissing"));
  CHECK(contains(fault, "31 from thread"));
  CHECK(contains(fault, "1 from thread 3 on at __syncthreads"));
}

TEST("a deadlock lists threads at one barrier together, whatever lanes they waited for before") {
  CHECK(contains(faultOf([] { LAUNCH(halvesThenBarrier, 1, 32, 0, 0); }), " 31 from thread 0 on at __syncthreads"));
}

TEST("a lane outside its own mask is a fault") {
  CHECK(contains(faultOf([] { LAUNCH(notInMask, 1, 32, 0, 0); }), "not in its mask"));
}

TEST("a write past dynamic shared memory is a fault") {
  CHECK(contains(faultOf([] { LAUNCH(pastShared, 1, 32, 100, 0, 100); }), "past its 100 bytes"));
  CHECK_EQUAL(faultOf([] { LAUNCH(pastShared, 1, 32, 100, 0, 99); }), "");
}

TEST("matrices are loaded only from shared memory at multiples of 16") {
  DeviceArray<float> memory(64);
  DeviceArray<uint32_t> out(32);
  if (emulation::knowsStaticShared()) CHECK(contains(faultOf([&] { LAUNCH(loadsFromGlobal, 1, 32, 64, 0, memory.get(), out.get()); }), "no shared memory"));
  CHECK(contains(faultOf([&] { LAUNCH(loadsMisaligned, 1, 32, 64, 0, out.get()); }), "no multiple of 16"));
}

TEST("a missing barrier gives wrong results, because threads run in both orders") {
  if (!emulation::knowsStaticShared()) SKIP("this build does not reset static shared memory");
  bool lowWrong = false, highWrong = false;
  for (int round = 0; round < 20; round++) {
    DeviceArray<int> out(64);
    LAUNCH(reversedWithoutBarrier, 1, 64, 0, 0, out.get());
    const auto got = out.host();
    for (int i = 0; i < 64; i++) (i < 32 ? lowWrong : highWrong) |= got[i] != 63 - i;
  }
  CHECK(lowWrong);
  CHECK(highWrong);
}

TEST("the destination of an asynchronous copy is NaN until its thread has waited") {
  DeviceArray<float> in(std::vector<float>{1, 2, 3, 4}), out(1);
  LAUNCH(copyAndRead<false>, 1, 32, 0, 0, out.get(), in.get());
  CHECK(std::isnan(out.host()[0]));
  LAUNCH(copyAndRead<true>, 1, 32, 0, 0, out.get(), in.get());
  CHECK_EQUAL(out.host()[0], 1.0f);
}
