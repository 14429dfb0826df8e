// The expected end of steps.
#include "../testing/test.h"
#include "pace.h"

using pie::StepPace;
using Time = StepPace::Time;

TEST("pace: nothing is expected of steps that were not seen, and of those that are not padded") {
  StepPace pace;
  CHECK(pace.expected(32) == Time(0));
  pace.observe(0, Time(900));
  pace.observe(64, Time(0));
  CHECK(pace.expected(0) == Time(0));
  CHECK(pace.expected(64) == Time(0));
}

TEST("pace: steps of other rows are apart; a shorter step counts at once, longer ones in part") {
  StepPace pace;
  pace.observe(32, Time(1000));
  pace.observe(1, Time(100));
  CHECK(pace.expected(32) == Time(1000));
  CHECK(pace.expected(1) == Time(100));
  CHECK(pace.expected(16) == Time(0));
  pace.observe(32, Time(2000));
  CHECK(pace.expected(32) == Time(1250));
  for (int i = 0; i < 40; i++) pace.observe(32, Time(2000));
  CHECK_CLOSE(pace.expected(32).count(), 2000, 0.1);
  pace.observe(32, Time(1500));
  CHECK(pace.expected(32) == Time(1500));
  pace.observe(1 << 30, Time(7));
  CHECK(pace.expected(1 << 30) == Time(7));
}
