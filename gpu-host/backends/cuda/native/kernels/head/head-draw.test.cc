#include "head-draw.h"
#include <cstring>
#include "../../testing/device.h"
#include "../../testing/test.h"
#include "../../testing/draws.h"

using namespace pie;
using testing::DeviceArray;

namespace {

template <typename To, typename From>
To sameBits(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

__global__ void uniforms(double* values, const fixture::Uniform* cases, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) values[i] = uniformOf(cases[i].seed, cases[i].position);
}

__global__ void exponentials(double* values, const double* of, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) values[i] = exactExp(of[i]);
}

constexpr int MOST = 256;
constexpr int THREADS = 64;

__global__ void draw(uint32_t* places, const fixture::Drawn* cases, const float* logProbabilities) {
  __shared__ double weights[MOST], reached[MOST];
  __shared__ DrawCuts cuts;
  const fixture::Drawn one = cases[blockIdx.x];
  const Draw wanted = {__uint_as_float(one.temperature), __uint_as_float(one.topP), __uint_as_float(one.minP), one.seed, one.position};
  const auto at = [&](int i) { return logProbabilities[one.first + i]; };
  const uint32_t place = drawPlace<THREADS>(wanted, one.count, at, weights, reached, cuts);
  if (threadIdx.x == 0) places[blockIdx.x] = place;
}

}  // namespace

TEST("uniform numbers equal those of the TypeScript sampler, bit for bit") {
  const std::vector<fixture::Uniform> cases(std::begin(fixture::UNIFORMS), std::end(fixture::UNIFORMS));
  const int count = static_cast<int>(cases.size());
  DeviceArray<double> values(count);
  DeviceArray<fixture::Uniform> onDevice(cases);
  LAUNCH(uniforms, divideUp(count, 32), 32, 0, nullptr, values, onDevice, count);
  const auto actual = values.host();
  for (int i = 0; i < count; i++) CHECK_EQUAL(sameBits<uint64_t>(actual[i]), cases[i].value);
}

TEST("exponentials equal V8's, bit for bit") {
  std::vector<double> of;
  for (const auto& one : fixture::EXPONENTIALS) of.push_back(sameBits<double>(one.of));
  const int count = static_cast<int>(of.size());
  DeviceArray<double> values(count), onDevice(of);
  LAUNCH(exponentials, divideUp(count, 32), 32, 0, nullptr, values, onDevice, count);
  const auto actual = values.host();
  for (int i = 0; i < count; i++) CHECK_EQUAL(sameBits<uint64_t>(actual[i]), fixture::EXPONENTIALS[i].value);
}

TEST("drawn places equal those of the TypeScript sampler") {
  const std::vector<fixture::Drawn> cases(std::begin(fixture::DRAWS), std::end(fixture::DRAWS));
  std::vector<float> logProbabilities;
  for (const uint32_t bits : fixture::LOG_PROBABILITIES) logProbabilities.push_back(sameBits<float>(bits));
  const int count = static_cast<int>(cases.size());
  DeviceArray<uint32_t> places(count);
  DeviceArray<fixture::Drawn> onDevice(cases);
  DeviceArray<float> values(logProbabilities);
  LAUNCH(draw, count, THREADS, 0, nullptr, places, onDevice, values);
  const auto actual = places.host();
  int last = 0;
  for (int i = 0; i < count; i++) {
    REQUIRE(cases[i].count <= MOST);
    CHECK_EQUAL(actual[i], cases[i].place);
    last += cases[i].place > 0;
  }
  // A fixture in which every draw takes the first place would test nothing.
  CHECK(last > count / 4);
}
