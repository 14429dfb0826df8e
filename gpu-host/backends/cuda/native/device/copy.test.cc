// Asynchronous copies and loads.
#include "copy.h"

#include <vector>
#include "../testing/device.h"
#include "../testing/test.h"

using testing::DeviceArray;
using testing::Random;

namespace {

constexpr int TILE = 32 * 4;  // Floats: one 16-byte copy per lane.

// Sums `tiles` tiles through a ring of three buffers: two copies are in flight while one tile is summed.
__global__ void sumOfTiles(float* out, const float* in, int tiles) {
  DYNAMIC_SHARED(float, ring);
  auto start = [&](int tile) {
    if (tile < tiles) pie::copyAsync16(ring + tile % 3 * TILE + threadIdx.x * 4, in + tile * TILE + threadIdx.x * 4);
    pie::commitCopies();
  };
  float sum = 0;
  start(0);
  start(1);
  for (int tile = 0; tile < tiles; tile++) {
    pie::waitForCopies<1>();
    __syncthreads();
    start(tile + 2);
    // Reads elements that another thread copied.
    const float* mine = ring + tile % 3 * TILE + (blockDim.x - 1 - threadIdx.x) * 4;
    for (int i = 0; i < 4; i++) sum += mine[i];
  }
  out[threadIdx.x] = sum;
}

__global__ void copyValid(float* out, const float* in, int valid) {
  __shared__ __align__(16) float buffer[TILE];
  const bool mine = static_cast<int>(threadIdx.x) < valid;
  pie::copyAsync16(buffer + threadIdx.x * 4, in + (mine ? threadIdx.x * 4 : 0), mine);
  pie::commitCopies();
  pie::waitForCopies<0>();
  __syncthreads();
  for (int i = 0; i < 4; i++) out[threadIdx.x * 4 + i] = buffer[threadIdx.x * 4 + i];
}

__global__ void loadAll(uint4* out, const uint4* in) {
  const int i = threadIdx.x;
  out[3 * i] = pie::loadOnce16(in + i);
  out[3 * i + 1] = pie::loadKept16(in + i);
  out[3 * i + 2] = pie::loadFresh16(in + i);
  pie::prefetch(in + i);
}

}  // namespace

TEST("tiles that are prefetched arrive complete and in order") {
  Random random(3);
  for (const int tiles : {1, 2, 3, 8}) {
    const auto values = random.normals(tiles * TILE);
    DeviceArray<float> in(values), out(32);
    LAUNCH(sumOfTiles, 1, 32, 3 * TILE * sizeof(float), 0, out.get(), in.get(), tiles);
    const auto got = out.host();
    for (int lane = 0; lane < 32; lane++) {
      double sum = 0;
      for (int tile = 0; tile < tiles; tile++)
        for (int i = 0; i < 4; i++) sum += values[tile * TILE + (31 - lane) * 4 + i];
      CHECK_CLOSE(got[lane], sum, 1e-5);
    }
  }
}

TEST("an invalid copy writes zeros") {
  const std::vector<float> ones(TILE, 1.0f);
  DeviceArray<float> in(ones), out(TILE);
  for (const int valid : {0, 1, 31, 32}) {
    LAUNCH(copyValid, 1, 32, 0, 0, out.get(), in.get(), valid);
    const auto got = out.host();
    for (int i = 0; i < TILE; i++) CHECK_EQUAL(got[i], i / 4 < valid ? 1.0f : 0.0f);
  }
}

TEST("loads with cache hints return the data") {
  Random random(4);
  const auto values = random.normals<__nv_bfloat16>(32 * 8);
  DeviceArray<__nv_bfloat16> in(values);
  DeviceArray<__nv_bfloat16> out(3 * 32 * 8);
  LAUNCH(loadAll, 1, 32, 0, 0, reinterpret_cast<uint4*>(out.get()), reinterpret_cast<const uint4*>(in.get()));
  const auto got = out.host();
  for (int i = 0; i < 32; i++)
    for (int copy = 0; copy < 3; copy++)
      for (int k = 0; k < 8; k++) CHECK_EQUAL(static_cast<float>(got[(3 * i + copy) * 8 + k]), static_cast<float>(values[i * 8 + k]));
}
