// Steps under way, and their results until they are overwritten.
#pragma once
#include <memory>
#include <mutex>
#include <vector>
#include "memory.h"
#include "plan.h"
#include "streams.h"

namespace pie {

// Host memory of one logical step. Two take turns: while one runs, the other is filled.
struct Ticket {
  explicit Ticket(bool timing) : started(timing), done(timing, true) {}

  uint64_t id = 0;      // 0: none, or being filled.
  PinnedBlock upload;   // Of a step that is not split, made at start.
  PinnedBlock results;
  PinnedBlock split;    // Of one that is: blocks of all of its parts. Grows as needed.
  Event started, done;  // `done` is recorded after the last download.
  Results found{};
  bool finished = false;  // What the host has to do after the device is done.

  // Attention received of a sequence that was cut: `from` (of one piece) is added to `to`.
  struct Sum {
    const float* from;
    size_t to, count;
  };
  std::vector<Sum> sums;
  std::vector<float> attention;
};

// What the two are protected by: a ticket is filled by the one thread that submits, after the step that had it before is done; its id is set last, under
// the mutex, and taken away first. Waiters wait for `done` without the mutex, so that a submit is never held up by one, and look at the id again afterwards.
class Tickets {
 public:
  // Who waits for a step spins for `spin`, then sleeps: an interrupt tells the end some ten microseconds late, but spinning for a whole step holds a processor
  // that handlers want.
  Tickets(bool timing, std::chrono::microseconds spin) : timing_(timing), spin_(spin), tickets_{Ticket(timing), Ticket(timing)} {}
  // The ticket of the next step, once the step that had it before is done.
  Ticket& begin();
  uint64_t next() const { return next_; }
  // Now others may wait for it.
  uint64_t commit(Ticket& ticket);
  Results wait(uint64_t id);
  Ticket& at(int index) { return tickets_[index]; }

 private:
  void finish(Ticket& ticket);
  bool timing_;
  std::chrono::microseconds spin_;
  std::mutex mutex_;
  Ticket tickets_[2];
  uint64_t next_ = 1;
};

}  // namespace pie
