// Draws a token in double by the rule of `gpu-host/backends/draw.ts`, as the reference for the device's draws.
#pragma once
#include <cmath>
#include <cstdint>
#include <vector>
#include "../kernels/head/head.h"

namespace pie::harness {

struct Picked {
  uint32_t place;  // Index of the drawn token among the tokens, which are sorted by descending probability.
  // Distance of the draw to another outcome, as a share of all mass: below the rounding error, either outcome is correct.
  double distance;
};

// The finalizer of MurmurHash3 (Appleby).
inline uint32_t mixBits(uint32_t h) {
  h = (h ^ (h >> 16)) * 0x85ebca6bu;
  h = (h ^ (h >> 13)) * 0xc2b2ae35u;
  return h ^ (h >> 16);
}

inline double uniformOf(uint32_t seed, uint32_t position) {
  const uint32_t a = mixBits(mixBits(seed ^ 0x9e3779b9u) ^ position);
  const uint32_t b = mixBits(mixBits(a ^ 0x85ebca6bu) ^ seed);
  return ((a >> 5) * 67108864.0 + (b >> 6)) / 9007199254740992.0;
}

inline Picked pick(const Draw& draw, const float* logProbabilities, int count) {
  if (draw.temperature == 0 || count <= 1) return {0, 1};
  int kept = count;
  while (kept > 1 && std::isinf(logProbabilities[kept - 1])) kept--;
  std::vector<double> weights(kept);
  double sum = 0, nearest = 1;
  for (int i = 0; i < kept; i++) sum += weights[i] = std::exp((static_cast<double>(logProbabilities[i]) - logProbabilities[0]) / draw.temperature);
  const double whole = sum;
  const auto note = [&](double distance) { nearest = std::fmin(nearest, std::fabs(distance) / whole); };
  if (draw.topP < 1) {
    const double target = draw.topP * sum;
    double reached = 0;
    int prefix = 0;
    while (prefix < kept && reached < target) {
      note(reached + weights[prefix] - target);
      reached += weights[prefix++];
    }
    kept = prefix > 1 ? prefix : 1;
    sum = reached;
  }
  if (draw.minP > 0) {
    int prefix = 1;
    sum = weights[0];
    while (prefix < kept && weights[prefix] >= draw.minP) sum += weights[prefix++];
    for (int i = 1; i < kept; i++) note(weights[i] - draw.minP);
    kept = prefix;
  }
  double left = uniformOf(draw.seed, draw.position) * sum;
  for (int i = 0; i < kept; i++) {
    left -= weights[i];
    note(left);
    if (left < 0) return {static_cast<uint32_t>(i), nearest};
  }
  return {static_cast<uint32_t>(kept - 1), nearest};
}

}  // namespace pie::harness
