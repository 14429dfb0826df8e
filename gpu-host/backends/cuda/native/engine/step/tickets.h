// Steps in flight, and their results until they are overwritten.
#pragma once
#include <memory>
#include <mutex>
#include <vector>
#include "../memory/memory.h"
#include "pace.h"
#include "plan.h"
#include "../streams.h"

namespace pie {

// Host memory of one logical step. Two tickets alternate: while one step runs, the other ticket is filled.
struct Ticket {
  explicit Ticket(bool timing) : started(timing), done(timing, true) {}

  uint64_t id = 0;      // 0: none, or being filled.
  int rows = 0;         // Padded rows of a step whose end can be predicted (StepPace); else 0.
  std::chrono::steady_clock::time_point submitted;
  PinnedBlock upload;   // For a step that is not split; allocated at start.
  PinnedBlock results;
  PinnedBlock split;    // For a split step: the blocks of all its parts. Grows as needed.
  Event started, done;  // `done` is recorded after the last download.
  Results found{};
  bool finished = false;  // The device's work has ended and `finish` has run, so `found` is complete.

  // Attention received of a cut sequence: `from` (of one piece) is added to `to`.
  struct Sum {
    const float* from;
    size_t to, count;
  };
  std::vector<Sum> sums;
  std::vector<float> attention;
};

// Synchronisation: the one submitting thread fills a ticket after the step that used it before is done. It sets the id last and clears it first, both
// under the mutex. Waiters wait for `done` without the mutex, so that they never block a submit, and then check the id again.
class Tickets {
 public:
  // `wait` sleeps until shortly before the expected end, polls until `spin` after it, then waits for an interrupt. An interrupt reports the end some
  // 70 to 100 microseconds late, but polling for a whole step would occupy a processor that the handlers need.
  Tickets(bool timing, std::chrono::microseconds spin) : timing_(timing), spin_(spin), tickets_{Ticket(timing), Ticket(timing)} {}
  // The ticket of the next step; waits until the step that used it before is done.
  Ticket& begin();
  uint64_t next() const { return next_; }
  // Makes the step available to waiters.
  uint64_t commit(Ticket& ticket);
  Results wait(uint64_t id);
  Ticket& at(int index) { return tickets_[index]; }

 private:
  // `seen`: see StepPace.
  void finish(Ticket& ticket, bool seen);
  bool timing_;
  std::chrono::microseconds spin_;
  std::mutex mutex_;
  Ticket tickets_[2];
  uint64_t next_ = 1;
  // Predicts a step's end from the steps that were waited for.
  StepPace pace_;
};

}  // namespace pie
