// Conversions of 8-bit and 16-bit floats against the definitions of the formats.
#include "float8.h"
#include <cmath>
#include <vector>
#include "../testing/device.h"
#include "../testing/test.h"
#include "copy.h"
#include "mma.h"

using testing::DeviceArray;
using testing::Random;

namespace {

// The value of a float16.
double meaning(int bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  if (exponent == 31) return fraction ? NAN : bits & 0x8000 ? -INFINITY : INFINITY;
  const double size = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return bits & 0x8000 ? -size : size;
}

// The value of a float8 code.
double meaning8(int code) {
  const int exponent = code >> 3 & 15, fraction = code & 7;
  if ((code & 0x7f) == 0x7f) return NAN;
  const double size = exponent == 0 ? std::ldexp(fraction, -9) : std::ldexp(8 + fraction, exponent - 10);
  return code & 0x80 ? -size : size;
}

__global__ void widenAll(float* values) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  values[i] = pie::fromHalf(static_cast<uint16_t>(i));
}

__global__ void narrow(uint16_t* one, uint32_t* two, const float* values, int count) {
  for (int i = threadIdx.x; i < count; i += blockDim.x) one[i] = pie::halfOf(values[i]), two[i] = pie::packedHalves(values[i], values[(i + 1) % count]);
}

// Converts the code pairs (i, 255 - i) and (i, i), and multiplies the first pair by `scales`.
__global__ void pairs(uint32_t* low, uint32_t* high, uint32_t* products, uint32_t scales) {
  const uint32_t i = threadIdx.x, codes = i | (255 - i) << 8 | i << 16 | i << 24;
  low[i] = pie::lowHalves(codes);
  high[i] = pie::highHalves(codes);
  products[i] = pie::multiplyHalves(low[i], scales);
}

__global__ void encodePairs(uint32_t* codes, uint8_t* singly, const float* values) {
  codes[threadIdx.x] = pie::float8Pair(values[2 * threadIdx.x], values[2 * threadIdx.x + 1]);
  for (int i = 0; i < 2; i++) singly[2 * threadIdx.x + i] = pie::float8Of(values[2 * threadIdx.x + i]);
}

__global__ void multiply(float* c, const uint16_t* a, const uint16_t* b) {
  const int g = threadIdx.x / 4, t = 2 * (threadIdx.x % 4);
  uint32_t left[4], right[2];
  for (int i = 0; i < 4; i++) {
    const int at = (g + 8 * (i % 2)) * 16 + t + 8 * (i / 2);
    left[i] = a[at] | static_cast<uint32_t>(a[at + 1]) << 16;
  }
  for (int i = 0; i < 2; i++) right[i] = b[(t + 8 * i) * 8 + g] | static_cast<uint32_t>(b[(t + 8 * i + 1) * 8 + g]) << 16;
  float sum[4];
  for (int i = 0; i < 4; i++) sum[i] = c[(g + 8 * (i / 2)) * 8 + t + i % 2];
  pie::multiplyAddHalves(sum, left, right);
  for (int i = 0; i < 4; i++) c[(g + 8 * (i / 2)) * 8 + t + i % 2] = sum[i];
}

__global__ void copyWords(uint32_t* out, const uint32_t* in, int valid) {
  __shared__ uint32_t buffer[32];
  pie::copyAsync4(buffer + threadIdx.x, in + threadIdx.x, static_cast<int>(threadIdx.x) < valid);
  pie::commitCopies();
  pie::waitForCopies<0>();
  __syncthreads();
  out[threadIdx.x] = buffer[31 - threadIdx.x];
}

// The nearest code; ties go to the even code.
int nearest8(double value) {
  const int sign = std::signbit(value) ? 0x80 : 0;
  if (std::isnan(value)) return sign | 0x7f;
  int best = 0;
  for (int code = 1; code < 0x7f; code++) {
    const double closer = std::fabs(meaning8(code) - std::fabs(value)) - std::fabs(meaning8(best) - std::fabs(value));
    if (closer < 0 || (closer == 0 && code % 2 == 0) || std::isinf(value)) best = code;
  }
  return sign | best;
}

__global__ void encode(uint8_t* codes, const float* values, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) codes[i] = pie::float8Of(values[i]);
}

__global__ void decode(float* values) { values[threadIdx.x] = pie::fromFloat8(static_cast<uint8_t>(threadIdx.x)); }

}  // namespace

TEST("every float8 code decodes to the format's value, and a float rounds to the nearest code") {
  DeviceArray<float> decoded(256);
  LAUNCH(decode, 1, 256, 0, nullptr, decoded);
  const auto meanings = decoded.host();
  for (int code = 0; code < 256; code++) CHECK_CLOSE(meanings[code], meaning8(code), 0);

  Random random(8);
  std::vector<float> values = {0.0f,      -0.0f, 448,    449,      463,        464,     465,            1e30f, -1e30f,
                               INFINITY, -INFINITY, NAN, 1e-30f, 0x1p-10f, 0x1.8p-9f, 0x1p-9f, 0x1.000002p-10f};
  // Midpoints between adjacent codes, and the floats next to them.
  for (int code = 0; code < 0x7e; code++) {
    const float half = static_cast<float>((meaning8(code) + meaning8(code + 1)) / 2);
    for (const float value : {half, -half, std::nextafter(half, 0.0f), std::nextafter(half, 1000.0f)}) values.push_back(value);
  }
  for (int i = 0; i < 500; i++) values.push_back(static_cast<float>(random.normal() * std::exp(random.uniform(-8, 6))));
  const int count = static_cast<int>(values.size());
  DeviceArray<uint8_t> codes(count);
  DeviceArray<float> onDevice(values);
  LAUNCH(encode, (count + 63) / 64, 64, 0, nullptr, codes, onDevice, count);
  const auto actual = codes.host();
  for (int i = 0; i < count; i++) {
    if (std::isnan(values[i]))
      CHECK_EQUAL(actual[i] & 0x7f, 0x7f);
    else
      CHECK_EQUAL(static_cast<int>(actual[i]), nearest8(values[i]));
  }
}

TEST("every float16 decodes to the format's value, and a float rounds to the nearest one") {
  DeviceArray<float> wide(1 << 16);
  LAUNCH(widenAll, 256, 256, 0, 0, wide.get());
  const auto meanings = wide.host();
  for (int bits = 0; bits < 1 << 16; bits++) CHECK_CLOSE(meanings[bits], meaning(bits), 0);

  // Every finite float16, the midpoint between it and its successor, and the two floats next to the midpoint. Every third group is negative.
  std::vector<float> values;
  std::vector<int> expected;
  for (int bits = 0; bits < 0x7c00; bits++) {
    const double half = bits == 0x7bff ? 65520 : (meaning(bits) + meaning(bits + 1)) / 2;
    const float middle = static_cast<float>(half);
    const int even = bits % 2 == 0 ? bits : bits + 1;
    for (const auto& [value, nearest] : std::vector<std::pair<float, int>>{{static_cast<float>(meaning(bits)), bits}, {middle, even},
                                                                           {std::nextafter(middle, 0.0f), bits}, {std::nextafter(middle, 1e9f), bits + 1}}) {
      values.push_back(bits % 3 == 0 ? -value : value);
      expected.push_back(nearest | (bits % 3 == 0 ? 0x8000 : 0));
    }
  }
  const int count = static_cast<int>(values.size());
  DeviceArray<float> from(values);
  DeviceArray<uint16_t> one(count);
  DeviceArray<uint32_t> two(count);
  LAUNCH(narrow, 1, 256, 0, 0, one.get(), two.get(), from.get(), count);
  const auto ones = one.host();
  const auto twos = two.host();
  for (int i = 0; i < count; i++) {
    CHECK_EQUAL(ones[i], expected[i]);
    CHECK_EQUAL(twos[i], static_cast<uint32_t>(expected[i]) | static_cast<uint32_t>(expected[(i + 1) % count]) << 16);
  }
}

TEST("pairs of float8 codes convert to float16 exactly, also scaled by a power of two; floats convert to pairs") {
  DeviceArray<uint32_t> low(256), high(256), products(256);
  for (const int exponent : {-15, 0, 7}) {
    const uint32_t scale = exponent == -15 ? 0x0200u : static_cast<uint32_t>(exponent + 15) << 10;
    LAUNCH(pairs, 1, 256, 0, 0, low.get(), high.get(), products.get(), scale | scale << 16);
    const auto lows = low.host(), highs = high.host(), multiplied = products.host();
    for (int i = 0; i < 256; i++) {
      const double first = meaning8(i), second = meaning8(255 - i);
      CHECK_CLOSE(meaning(lows[i] & 0xffff), first, 0);
      CHECK_CLOSE(meaning(lows[i] >> 16), second, 0);
      CHECK_EQUAL(highs[i] & 0xffff, lows[i] & 0xffff);
      CHECK_EQUAL(highs[i] >> 16, lows[i] & 0xffff);
      CHECK_CLOSE(meaning(multiplied[i] & 0xffff), std::ldexp(first, exponent), 0);
      CHECK_CLOSE(meaning(multiplied[i] >> 16), std::ldexp(second, exponent), 0);
    }
  }
  Random random(4);
  std::vector<float> values = random.normals(64, 100);
  values[5] = 1e9f, values[6] = -INFINITY, values[9] = 1e-9f;
  DeviceArray<float> from(values);
  DeviceArray<uint32_t> codes(32);
  DeviceArray<uint8_t> singly(64);
  LAUNCH(encodePairs, 1, 32, 0, 0, codes.get(), singly.get(), from.get());
  const auto two = codes.host();
  const auto one = singly.host();
  for (int i = 0; i < 64; i++) CHECK_EQUAL(two[i / 2] >> (i % 2 * 8) & 0xff, static_cast<uint32_t>(one[i]));
}

TEST("a product of float16 fragments is the product of the matrices") {
  Random random(1);
  std::vector<uint16_t> a(16 * 16), b(16 * 8);
  // Magnitudes from 0 to 4 (0x4400), subnormals included. The range is so small that large products do not absorb small ones.
  for (auto* matrix : {&a, &b})
    for (uint16_t& bits : *matrix) bits = static_cast<uint16_t>(random.integer(0, 0x4400) | random.integer(0, 1) << 15);
  const auto c = random.normals(16 * 8);
  DeviceArray<uint16_t> left(a), right(b);
  DeviceArray<float> sums(c);
  LAUNCH(multiply, 1, 32, 0, 0, sums.get(), left.get(), right.get());
  std::vector<double> expected(16 * 8);
  for (int i = 0; i < 16 * 8; i++) {
    expected[i] = c[i];
    for (int k = 0; k < 16; k++) expected[i] += meaning(a[i / 8 * 16 + k]) * meaning(b[k * 8 + i % 8]);
  }
  // Sums of 16 products of at most 4 × 4, in float: the hardware truncates bits below the largest addend's.
  CHECK_ALL_CLOSE(sums.host(), expected, 3e-4);
}

TEST("valid copies of four bytes arrive, invalid ones write zeros") {
  std::vector<uint32_t> values;
  for (uint32_t i = 0; i < 32; i++) values.push_back(1000 + i);
  DeviceArray<uint32_t> in(values), out(32);
  for (const int valid : {0, 3, 32}) {
    LAUNCH(copyWords, 1, 32, 0, 0, out.get(), in.get(), valid);
    const auto got = out.host();
    for (int i = 0; i < 32; i++) CHECK_EQUAL(got[31 - i], i < valid ? 1000u + i : 0u);
  }
}
