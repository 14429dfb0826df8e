// Fragments and products against plain matrices. Layouts are those of the PTX ISA; on a GPU this file tests them against the hardware.
#include "mma.h"

#include <vector>
#include "../testing/device.h"
#include "../testing/test.h"

using pie::loadMatrices;
using pie::loadMatricesTransposed;
using testing::DeviceArray;
using testing::Random;
using bf16 = __nv_bfloat16;

namespace {

uint32_t __device__ pairOf(const bf16* values, int first, int second) {
  return static_cast<uint32_t>(__bfloat16_as_ushort(values[first])) | static_cast<uint32_t>(__bfloat16_as_ushort(values[second])) << 16;
}

// One product with hand-built fragments: a 16 × 16, b 16 × 8, c 16 × 8, all row by row.
__global__ void productByHand(float* c, const bf16* a, const bf16* b) {
  const int g = threadIdx.x / 4, t = 2 * (threadIdx.x % 4);
  uint32_t left[4], right[2];
  for (int i = 0; i < 4; i++) {
    const int row = g + 8 * (i % 2), column = t + 8 * (i / 2);
    left[i] = pairOf(a, row * 16 + column, row * 16 + column + 1);
  }
  for (int i = 0; i < 2; i++) right[i] = pairOf(b, (t + 8 * i) * 8 + g, (t + 8 * i + 1) * 8 + g);
  float sum[4];
  for (int i = 0; i < 4; i++) sum[i] = c[(g + 8 * (i / 2)) * 8 + t + i % 2];
  pie::multiplyAdd(sum, left, right);
  for (int i = 0; i < 4; i++) c[(g + 8 * (i / 2)) * 8 + t + i % 2] = sum[i];
}

// The same through shared memory: a row by row; b row by row (transposed by the load) or by column.
template <bool BY_COLUMN>
__global__ void productFromShared(float* c, const bf16* a, const bf16* b) {
  __shared__ __align__(16) bf16 left[16 * 16];
  __shared__ __align__(16) bf16 right[16 * 8];
  const int lane = threadIdx.x;
  for (int i = lane; i < 16 * 16; i += 32) left[i] = a[i];
  for (int i = lane; i < 16 * 8; i += 32) right[i] = b[i];
  __syncwarp();
  uint32_t lefts[4], rights[2];
  loadMatrices(lefts, left + (lane % 16) * 16 + (lane / 16) * 8);
  if (BY_COLUMN) loadMatrices(rights, right + (lane % 8) * 16 + (lane / 8 % 2) * 8);
  else loadMatricesTransposed(rights, right + (lane % 16) * 8);
  float sum[4] = {0, 0, 0, 0};
  pie::multiplyAdd(sum, lefts, rights);
  const int g = lane / 4, t = 2 * (lane % 4);
  for (int i = 0; i < 4; i++) c[(g + 8 * (i / 2)) * 8 + t + i % 2] = sum[i];
}

// Stores the elements that each lane receives of four, two or one matrices whose element [m][r][c] is 64 m + 8 r + c.
template <bool TRANSPOSED, int COUNT>
__global__ void loads(uint32_t* out) {
  __shared__ __align__(16) uint16_t matrices[4 * 64];
  for (int i = threadIdx.x; i < 4 * 64; i += 32) matrices[i] = static_cast<uint16_t>(i);
  __syncwarp();
  uint32_t mine[COUNT];
  const uint16_t* row = matrices + threadIdx.x * 8;
  if (TRANSPOSED) loadMatricesTransposed(mine, row);
  else loadMatrices(mine, row);
  for (int i = 0; i < COUNT; i++) out[i * 32 + threadIdx.x] = mine[i];
}

std::vector<double> product(const std::vector<bf16>& a, const std::vector<bf16>& b, const std::vector<float>& c, bool byColumn) {
  std::vector<double> sums(16 * 8);
  for (int row = 0; row < 16; row++) {
    for (int column = 0; column < 8; column++) {
      double sum = c[row * 8 + column];
      for (int k = 0; k < 16; k++) {
        const bf16 right = byColumn ? b[column * 16 + k] : b[k * 8 + column];
        sum += static_cast<double>(static_cast<float>(a[row * 16 + k])) * static_cast<double>(static_cast<float>(right));
      }
      sums[row * 8 + column] = sum;
    }
  }
  return sums;
}

// Sums of 16 products of about 1, in float: the hardware truncates bits below the largest addend's.
constexpr double BOUND = 2e-5;

template <bool TRANSPOSED, int COUNT>
void checkLoads() {
  DeviceArray<uint32_t> out(COUNT * 32);
  LAUNCH((loads<TRANSPOSED, COUNT>), 1, 32, 0, 0, out.get());
  const std::vector<uint32_t> got = out.host();
  for (int m = 0; m < COUNT; m++) {
    for (int lane = 0; lane < 32; lane++) {
      const int g = lane / 4, t = 2 * (lane % 4);
      const int first = 64 * m + (TRANSPOSED ? 8 * t + g : 8 * g + t), second = 64 * m + (TRANSPOSED ? 8 * (t + 1) + g : 8 * g + t + 1);
      CHECK_EQUAL(got[m * 32 + lane], static_cast<uint32_t>(first | second << 16));
    }
  }
}

}  // namespace

TEST("the product of fragments equals the product of the matrices") {
  Random random(1);
  const auto a = random.normals<bf16>(16 * 16), b = random.normals<bf16>(16 * 8);
  const auto c = random.normals(16 * 8);
  DeviceArray<bf16> left(a), right(b);
  DeviceArray<float> sums(c);
  LAUNCH(productByHand, 1, 32, 0, 0, sums.get(), left.get(), right.get());
  CHECK_ALL_CLOSE(sums.host(), product(a, b, c, false), BOUND);
}

TEST("matrices loaded from shared memory form a product's fragments, transposed or not") {
  Random random(2);
  const auto a = random.normals<bf16>(16 * 16), b = random.normals<bf16>(16 * 8);
  const std::vector<float> none(16 * 8);
  DeviceArray<bf16> left(a), right(b);
  DeviceArray<float> sums(none);
  LAUNCH(productFromShared<false>, 1, 32, 0, 0, sums.get(), left.get(), right.get());
  CHECK_ALL_CLOSE(sums.host(), product(a, b, none, false), BOUND);
  LAUNCH(productFromShared<true>, 1, 32, 0, 0, sums.get(), left.get(), right.get());
  CHECK_ALL_CLOSE(sums.host(), product(a, b, none, true), BOUND);
}

TEST("each lane receives its elements of one, two and four matrices") {
  checkLoads<false, 1>();
  checkLoads<false, 2>();
  checkLoads<false, 4>();
  checkLoads<true, 1>();
  checkLoads<true, 2>();
  checkLoads<true, 4>();
}

__global__ void pack(uint32_t* out, const float* in, int count) {
  for (int i = threadIdx.x; i < count; i += blockDim.x) out[i] = pie::packed(in[2 * i], in[2 * i + 1]);
}

TEST("bf16 is rounded to nearest, ties to even, and keeps NaN and infinities") {
  struct Example {
    float value;
    uint16_t bits;
  };
  const Example examples[] = {
      {1, 0x3f80},           {-2, 0xc000},          {1.00390625f, 0x3f80},  // A tie, to the even value below.
      {1.01171875f, 0x3f82},                                                 // A tie, to the even value above.
      {1.00390637f, 0x3f81}, {0, 0},                {-0.0f, 0x8000},         {INFINITY, 0x7f80},
      {-INFINITY, 0xff80},   {3.4028235e38f, 0x7f80},                        // Above the largest bf16 by more than half a step.
      {1e-40f, 0x0001},      {NAN, 0x7fff},
  };
  std::vector<float> values;
  for (const Example& example : examples) values.push_back(example.value), values.push_back(1);
  DeviceArray<float> in(values);
  DeviceArray<uint32_t> out(values.size() / 2);
  LAUNCH(pack, 1, 32, 0, 0, out.get(), in.get(), static_cast<int>(out.size()));
  const auto got = out.host();
  for (size_t i = 0; i < got.size(); i++) {
    CHECK_EQUAL(got[i] & 0xffff, examples[i].bits);
    CHECK_EQUAL(got[i] >> 16, 0x3f80u);
  }
}
