// Conversion of tensor data as stored in files, against the definitions of the types.
#include <cmath>
#include <cstring>
#include "convert.h"
#include "../../testing/engine.h"

using namespace pie;
using testing::Random;

TEST("numbers of every type are converted, at any address") {
  Random random(10);
  std::vector<float> values = random.normals<float>(300, 3);
  for (const float value : {0.0f, -0.0f, 65504.0f, 6e-8f, 1e-30f, 3.3895e38f, INFINITY, -INFINITY, NAN}) values.push_back(value);
  const size_t count = values.size();
  const uint8_t* raw = reinterpret_cast<const uint8_t*>(values.data());
  std::vector<uint8_t> bytes(1);
  bytes.insert(bytes.end(), raw, raw + count * 4);
  std::vector<float> wide(count);
  convertNumbers(wide.data(), HostTensor::Type::F32, bytes.data() + 1, count);
  CHECK(std::memcmp(wide.data(), values.data(), count * 4) == 0);
  std::vector<bf16> narrow(count);
  convertNumbers(narrow.data(), HostTensor::Type::F32, bytes.data() + 1, count);
  for (size_t i = 0; i < count; i++) CHECK_CLOSE(__bfloat162float(narrow[i]), __bfloat162float(__float2bfloat16(values[i])), 0);
  // Conversion from bf16 is exact.
  std::memcpy(bytes.data() + 1, narrow.data(), count * 2);
  convertNumbers(wide.data(), HostTensor::Type::BF16, bytes.data() + 1, count);
  for (size_t i = 0; i < count; i++) CHECK_CLOSE(wide[i], __bfloat162float(narrow[i]), 0);
  // Every float16: sign, exponent and fraction by the definition.
  std::vector<uint16_t> halves(65536);
  for (int i = 0; i < 65536; i++) halves[i] = static_cast<uint16_t>(i);
  wide.resize(65536);
  convertNumbers(wide.data(), HostTensor::Type::F16, halves.data(), 65536);
  size_t wrong = 0;
  for (int i = 0; i < 65536; i++) {
    const int exponent = i >> 10 & 31, fraction = i & 1023;
    double magnitude = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
    if (exponent == 31) magnitude = fraction ? NAN : INFINITY;
    const double expected = i & 0x8000 ? -magnitude : magnitude;
    wrong += !(std::isnan(expected) ? std::isnan(wide[i]) : wide[i] == expected && std::signbit(wide[i]) == std::signbit(expected));
  }
  CHECK_EQUAL(wrong, 0u);
}
