// Expected durations of steps, from those of earlier steps: a waiter sleeps until shortly before a step should end.
#pragma once
#include <algorithm>
#include <array>
#include <chrono>

namespace pie {

// Times of steps by their padded rows. Steps of the same rows differ in their contexts, which grow slowly.
class StepPace {
 public:
  using Time = std::chrono::duration<double, std::micro>;

  // Zero before the first step of so many rows, and for steps that are not padded (rows = 0).
  Time expected(int rows) const { return rows > 0 ? times_[bucket(rows)] : Time::zero(); }

  // A shorter step counts at once, a longer one in part: sleeping too long delays a result, waking too early costs only processor time.
  void observe(int rows, Time took) {
    if (rows <= 0 || took <= Time::zero()) return;
    Time& time = times_[bucket(rows)];
    time = time == Time::zero() || took < time ? took : time + (took - time) / 4;
  }

 private:
  static size_t bucket(int rows) {
    size_t bits = 0;
    for (; rows > 1; rows /= 2) bits++;
    return std::min(bits, BUCKETS - 1);
  }
  static constexpr size_t BUCKETS = 16;
  std::array<Time, BUCKETS> times_{};
};

}  // namespace pie
