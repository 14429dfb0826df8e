// Tests of StepPace: it expects a step to take about as long as earlier steps with the same number of padded rows. Times are in microseconds.
#include "../../testing/test.h"
#include "../options.h"
#include "pace.h"

using pie::StepPace;
using Time = StepPace::Time;

namespace {

// A moment on the test's own clock, in microseconds.
StepPace::Moment at(int64_t us) { return StepPace::Moment(std::chrono::microseconds(us)); }

// Runs steps one after another. Each step is submitted when the step before ends, and a waiter sees it end (`true`). So each duration is known.
struct Steps {
  StepPace pace;
  int64_t now = 1000;
  void run(int rows, int64_t us) {
    pace.ended(rows, at(now), at(now + us), true);
    now += us;
  }
};

}  // namespace

TEST("pace: the expected time is zero for a number of rows that was not measured, and for steps that are not padded") {
  Steps steps;
  CHECK(steps.pace.expected(32) == Time(0));
  // A step that is not padded has 0 rows.
  steps.run(0, 900);
  CHECK(steps.pace.expected(0) == Time(0));
  // A duration of zero is no measurement.
  steps.run(64, 0);
  CHECK(steps.pace.expected(64) == Time(0));
}

TEST("pace: each number of rows has its own time, which falls to a shorter duration at once and rises to longer ones slowly") {
  Steps steps;
  const StepPace& pace = steps.pace;
  steps.run(32, 1000);
  steps.run(1, 100);
  CHECK(pace.expected(32) == Time(1000));
  CHECK(pace.expected(1) == Time(100));
  CHECK(pace.expected(16) == Time(0));
  // A longer step adds a quarter of the difference: 1000 + (2000 - 1000) / 4.
  steps.run(32, 2000);
  CHECK(pace.expected(32) == Time(1250));
  // Many longer steps bring the expected time close to their duration.
  for (int i = 0; i < 40; i++) steps.run(32, 2000);
  CHECK_CLOSE(pace.expected(32).count(), 2000, 0.1);
  // A shorter step counts in full.
  steps.run(32, 1500);
  CHECK(pace.expected(32) == Time(1500));
  // Numbers of rows that are too large for a bucket of their own share the last bucket.
  steps.run(1 << 30, 7);
  CHECK(pace.expected(1 << 30) == Time(7));
}

TEST("pace: every size that steps are padded to has a time of its own") {
  Steps steps;
  for (const int bucket : pie::GRAPH_BUCKETS) steps.run(bucket, 100 * bucket);
  for (const int bucket : pie::GRAPH_BUCKETS) CHECK(steps.pace.expected(bucket) == Time(100 * bucket));
}

TEST("pace: a step that is submitted while another step runs begins when the other step ends") {
  StepPace pace;
  pace.ended(32, at(1000), at(6000), true);
  CHECK(pace.beginOf(at(2000)) == at(6000));
  CHECK(pace.beginOf(at(7000)) == at(7000));
  // The step begins at 6000 and takes 5000. Counted from its submission at 2000, it would take 9000 and raise the expected time.
  pace.ended(32, at(2000), at(11000), true);
  CHECK(pace.expected(32) == Time(5000));
}

TEST("pace: a step that ends before its waiter comes does not change the expected time, as its duration is unknown") {
  StepPace pace;
  pace.ended(32, at(1000), at(6000), true);
  // The waiter came a second after the begin, when the step had ended long before. The apparent duration of a second does not count.
  pace.ended(32, at(6000), at(1006000), false);
  CHECK(pace.expected(32) == Time(5000));
  // The waiter came to the next step 10 microseconds later, and this step had also ended before. These 10 microseconds do not count.
  pace.ended(32, at(7000), at(1006010), false);
  CHECK(pace.expected(32) == Time(5000));
  // The waiter saw the end of this step, but its begin is unknown: it began at the end of the step before, which no waiter saw.
  pace.ended(32, at(8000), at(1007000), true);
  CHECK(pace.expected(32) == Time(5000));
  // This step began at 1007000, an end that a waiter saw. So its duration of 4000 counts.
  pace.ended(32, at(9000), at(1011000), true);
  CHECK(pace.expected(32) == Time(4000));
  // No waiter saw the end of the first of these steps. The second step was submitted later, to an idle device: it began at once and took 3000.
  pace.ended(32, at(1011000), at(2000000), false);
  pace.ended(32, at(2000100), at(2003100), true);
  CHECK(pace.expected(32) == Time(3000));
}
