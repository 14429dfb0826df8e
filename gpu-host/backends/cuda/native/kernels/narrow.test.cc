#include "narrow.h"
#include <algorithm>
#include <cfloat>
#include "../testing/device.h"
#include "../testing/test.h"

using namespace pie;
using testing::DeviceArray;
using testing::Random;

namespace {

// What a code means, from the format's definition.
double meaning(int code) {
  const int exponent = code >> 3 & 15, fraction = code & 7;
  if ((code & 0x7f) == 0x7f) return NAN;
  const double size = exponent == 0 ? std::ldexp(fraction / 8.0, -6) : std::ldexp(1 + fraction / 8.0, exponent - 7);
  return code & 0x80 ? -size : size;
}

// The code nearest to a value; between two, the even one.
int nearest(double value) {
  const int sign = std::signbit(value) ? 0x80 : 0;
  if (std::isnan(value)) return sign | 0x7f;
  int best = 0;
  for (int code = 1; code < 0x7f; code++) {
    const double closer = std::fabs(meaning(code) - std::fabs(value)) - std::fabs(meaning(best) - std::fabs(value));
    if (closer < 0 || (closer == 0 && code % 2 == 0) || std::isinf(value)) best = code;
  }
  return sign | best;
}

__global__ void encode(uint8_t* codes, const float* values, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) codes[i] = float8Of(values[i]);
}

__global__ void decode(float* values) { values[threadIdx.x] = fromFloat8(static_cast<uint8_t>(threadIdx.x)); }

template <typename T>
void testRows(int rows, int width) {
  Random random(rows * 31 + width);
  auto values = random.normals<T>(rows * width);
  for (int i = 0; i < width; i++) {
    if (rows > 0) values[i] = T(static_cast<float>(values[i]) * 1e30f);
    if (rows > 1) values[width + i] = T(0.0f);
    if (rows > 2) values[2 * width + i] = T(static_cast<float>(values[2 * width + i]) * 1e-20f);
  }
  DeviceArray<uint8_t> codes(std::vector<uint8_t>(rows * width + 1, 0xab));
  DeviceArray<float> scales(std::vector<float>(rows + 1, 7));
  DeviceArray<T> from(values), back(std::vector<T>(rows * width + 1, T(7.0f)));
  launchToFloat8<T>(codes, scales, from, rows, width, nullptr);
  launchFromFloat8<T>(back, codes, scales, rows, width, nullptr);
  const auto c = codes.host();
  const auto s = scales.host();
  const auto b = back.host();
  CHECK_EQUAL(c.back(), 0xab);
  CHECK_EQUAL(s.back(), 7.0f);
  CHECK_EQUAL(static_cast<float>(b.back()), 7.0f);
  for (int r = 0; r < rows; r++) {
    double most = 0;
    for (int i = 0; i < width; i++) most = std::max(most, std::fabs(static_cast<double>(static_cast<float>(values[r * width + i]))));
    CHECK_CLOSE(s[r], std::max(most / 448, static_cast<double>(FLT_MIN)), most * 1e-9);
    for (int i = r * width; i < (r + 1) * width; i++) {
      const double value = static_cast<float>(values[i]);
      // Half a step of the code, and what a bf16 rounds.
      const double bound = std::max(std::fabs(value) / 16, s[r] * 0x1p-10) * (1 + 1e-6) + (sizeof(T) == 2 ? std::fabs(value) * 0x1p-8 : 0);
      CHECK_CLOSE(static_cast<float>(b[i]), value, bound);
      CHECK_CLOSE(meaning(c[i]) * s[r], value, bound);
    }
  }
}

}  // namespace

TEST("a float8 code means what the format says, and a float gets the nearest one") {
  DeviceArray<float> decoded(256);
  LAUNCH(decode, 1, 256, 0, nullptr, decoded);
  const auto meanings = decoded.host();
  for (int code = 0; code < 256; code++) CHECK_CLOSE(meanings[code], meaning(code), 0);

  Random random(8);
  std::vector<float> values = {0.0f,      -0.0f, 448,    449,      463,        464,     465,            1e30f, -1e30f,
                               INFINITY, -INFINITY, NAN, 1e-30f, 0x1p-10f, 0x1.8p-9f, 0x1p-9f, 0x1.000002p-10f};
  // Halfway between neighbours, and beside it.
  for (int code = 0; code < 0x7e; code++) {
    const float half = static_cast<float>((meaning(code) + meaning(code + 1)) / 2);
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
      CHECK_EQUAL(static_cast<int>(actual[i]), nearest(values[i]));
  }
}

TEST("rows in float8 are close to what they were") {
  for (const int width : {1, 7, 64, 100, 2056}) {
    testRows<bf16>(3, width);
    testRows<float>(3, width);
  }
  testRows<bf16>(1, 128);
  testRows<bf16>(19, 128);
  testRows<float>(2, 2049);
  testRows<float>(0, 64);
}
