#include "tickets.h"
#include <algorithm>
#include <string>

namespace pie {

namespace {

using std::chrono::steady_clock;

// Time before the expected end at which polling begins: 100 µs because timers fire up to 60 µs late, and 2 % because steps of one size differ
// slightly.
steady_clock::duration early(StepPace::Time expected) {
  return std::chrono::duration_cast<steady_clock::duration>(StepPace::Time(100) + expected / 50);
}

}  // namespace

Ticket& Tickets::begin() {
  Ticket& ticket = tickets_[next_ & 1];
  // Waits for the step that used the ticket before. If its submit failed half way, that submit has already waited for the queued work.
  ticket.done.synchronize();
  const std::lock_guard<std::mutex> lock(mutex_);
  ticket.id = 0;
  ticket.rows = 0;
  ticket.finished = false;
  ticket.found = {};
  ticket.sums.clear();
  return ticket;
}

uint64_t Tickets::commit(Ticket& ticket) {
  const std::lock_guard<std::mutex> lock(mutex_);
  ticket.id = next_;
  ticket.submitted = steady_clock::now();
  return next_++;
}

Results Tickets::wait(uint64_t id) {
  Ticket& ticket = tickets_[id & 1];
  const auto check = [&] {
    if (id == 0 || ticket.id != id) refuse("Step " + std::to_string(id) + " was never submitted, or its results are gone.");
  };
  steady_clock::time_point near, late;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    check();
    if (ticket.finished) return ticket.found;
    const StepPace::Time expected = pace_.expected(ticket.rows);
    const auto due = pace_.beginOf(ticket.submitted) + std::chrono::duration_cast<steady_clock::duration>(expected);
    near = due - early(expected);
    late = std::max(steady_clock::now(), due + std::chrono::duration_cast<steady_clock::duration>(expected / 20)) + spin_;
  }
  const bool seen = ticket.done.synchronize(near, late);
  const std::lock_guard<std::mutex> lock(mutex_);
  check();
  if (!ticket.finished) finish(ticket, seen);
  return ticket.found;
}

void Tickets::finish(Ticket& ticket, bool seen) {
  ticket.finished = true;
  pace_.ended(ticket.rows, ticket.submitted, steady_clock::now(), seen);
  for (const Ticket::Sum& sum : ticket.sums)
    for (size_t i = 0; i < sum.count; i++) ticket.attention[sum.to + i] += sum.from[i];
  if (timing_) CUDA_CALL(cudaEventElapsedTime(&ticket.found.deviceMs, ticket.started, ticket.done));
}

}  // namespace pie
