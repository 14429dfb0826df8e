// Expected ends of steps, from the durations of earlier steps: a waiter sleeps until shortly before a step should end.
#pragma once
#include <algorithm>
#include <array>
#include <chrono>

namespace pie {

// Times of steps by their padded rows. Steps with the same number of rows also differ in their contexts, which grow slowly. Steps run one after
// another; `ended` expects them in that order.
class StepPace {
 public:
  using Time = std::chrono::duration<double, std::micro>;
  using Moment = std::chrono::steady_clock::time_point;

  // Zero before the first step of so many rows, and for steps that are not padded (rows = 0).
  Time expected(int rows) const { return rows > 0 ? times_[bucket(rows)] : Time::zero(); }
  // A step begins when it is submitted, or at the end of the step before.
  Moment beginOf(Moment submitted) const { return std::max(submitted, lastEnd_); }

  // `seen`: a waiter found the step running, so that `ended` is its end. Otherwise the end is unknown, and with it the duration of the step. If the
  // next step began at this end, its begin and duration are unknown, too.
  void ended(int rows, Moment submitted, Moment ended, bool seen) {
    if (seen && (lastSeen_ || submitted >= lastEnd_)) observe(rows, ended - beginOf(submitted));
    lastEnd_ = ended;
    lastSeen_ = seen;
  }

 private:
  // A shorter step counts at once, a longer one in part: sleeping too long delays a result, waking too early costs only processor time.
  void observe(int rows, Time took) {
    if (rows <= 0 || took <= Time::zero()) return;
    Time& time = times_[bucket(rows)];
    time = time == Time::zero() || took < time ? took : time + (took - time) / 4;
  }
  // One bucket for each power of two, and one for the number half way to the next (GRAPH_BUCKETS of options.h).
  static size_t bucket(int rows) {
    size_t halvings = 0;
    for (; rows > 3; rows /= 2) halvings++;
    return std::min(2 * halvings + rows, BUCKETS) - 1;
  }
  static constexpr size_t BUCKETS = 32;
  std::array<Time, BUCKETS> times_{};
  Moment lastEnd_;
  bool lastSeen_ = true;
};

}  // namespace pie
