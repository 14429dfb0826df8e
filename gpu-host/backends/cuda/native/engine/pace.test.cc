// The expected end of steps.
#include "../testing/test.h"
#include "options.h"
#include "pace.h"

using pie::StepPace;
using Time = StepPace::Time;

namespace {

// A moment on the test's own clock, in microseconds.
StepPace::Moment at(int64_t us) { return StepPace::Moment(std::chrono::microseconds(us)); }

// One step after another, each submitted at the end of the one before and waited for at once.
struct Steps {
  StepPace pace;
  int64_t now = 1000;
  void run(int rows, int64_t us) {
    pace.ended(rows, at(now), at(now + us), true);
    now += us;
  }
};

}  // namespace

TEST("pace: the expected time is zero for sizes that were not measured, and for steps that are not padded") {
  Steps steps;
  CHECK(steps.pace.expected(32) == Time(0));
  steps.run(0, 900);
  steps.run(64, 0);
  CHECK(steps.pace.expected(0) == Time(0));
  CHECK(steps.pace.expected(64) == Time(0));
}

TEST("pace: each number of rows has its own time; a shorter step counts at once, longer ones in part") {
  Steps steps;
  const StepPace& pace = steps.pace;
  steps.run(32, 1000);
  steps.run(1, 100);
  CHECK(pace.expected(32) == Time(1000));
  CHECK(pace.expected(1) == Time(100));
  CHECK(pace.expected(16) == Time(0));
  steps.run(32, 2000);
  CHECK(pace.expected(32) == Time(1250));
  for (int i = 0; i < 40; i++) steps.run(32, 2000);
  CHECK_CLOSE(pace.expected(32).count(), 2000, 0.1);
  steps.run(32, 1500);
  CHECK(pace.expected(32) == Time(1500));
  steps.run(1 << 30, 7);
  CHECK(pace.expected(1 << 30) == Time(7));
}

TEST("pace: every size that steps are padded to has a time of its own") {
  Steps steps;
  for (const int bucket : pie::GRAPH_BUCKETS) steps.run(bucket, 100 * bucket);
  for (const int bucket : pie::GRAPH_BUCKETS) CHECK(steps.pace.expected(bucket) == Time(100 * bucket));
}

TEST("pace: a step that is submitted while another runs begins at that one's end") {
  StepPace pace;
  pace.ended(32, at(1000), at(6000), true);
  CHECK(pace.beginOf(at(2000)) == at(6000));
  CHECK(pace.beginOf(at(7000)) == at(7000));
  pace.ended(32, at(2000), at(11000), true);
  CHECK(pace.expected(32) == Time(5000));
}

TEST("pace: a step that ends before its waiter comes does not change the expected time") {
  StepPace pace;
  pace.ended(32, at(1000), at(6000), true);
  // Two steps ended long before their waiter came, so their apparent durations (a second and 10 microseconds) do not count.
  pace.ended(32, at(6000), at(1006000), false);
  CHECK(pace.expected(32) == Time(5000));
  pace.ended(32, at(7000), at(1006010), false);
  CHECK(pace.expected(32) == Time(5000));
  // The waiter sees this step run, but not its begin: the step before had ended before its waiter came.
  pace.ended(32, at(8000), at(1007000), true);
  CHECK(pace.expected(32) == Time(5000));
  // From then on all moments are known.
  pace.ended(32, at(9000), at(1011000), true);
  CHECK(pace.expected(32) == Time(4000));
  // The begin of a step is also known if the device was idle when the step was submitted.
  pace.ended(32, at(1011000), at(2000000), false);
  pace.ended(32, at(2000100), at(2003100), true);
  CHECK(pace.expected(32) == Time(3000));
}
