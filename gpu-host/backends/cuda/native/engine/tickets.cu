#include "tickets.h"
#include <string>

namespace pie {

Ticket& Tickets::begin() {
  Ticket& ticket = tickets_[next_ & 1];
  // If this ticket's last submit failed half way, submit has already waited for the queued work.
  ticket.done.synchronize();
  const std::lock_guard<std::mutex> lock(mutex_);
  ticket.id = 0;
  ticket.finished = false;
  ticket.found = {};
  ticket.sums.clear();
  return ticket;
}

uint64_t Tickets::commit(Ticket& ticket) {
  const std::lock_guard<std::mutex> lock(mutex_);
  ticket.id = next_;
  return next_++;
}

Results Tickets::wait(uint64_t id) {
  Ticket& ticket = tickets_[id & 1];
  const auto check = [&] {
    if (id == 0 || ticket.id != id) refuse("Step " + std::to_string(id) + " was never submitted, or its results are gone.");
  };
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    check();
    if (ticket.finished) return ticket.found;
  }
  ticket.done.synchronize(spin_);
  const std::lock_guard<std::mutex> lock(mutex_);
  check();
  if (!ticket.finished) finish(ticket);
  return ticket.found;
}

void Tickets::finish(Ticket& ticket) {
  ticket.finished = true;
  for (const Ticket::Sum& sum : ticket.sums)
    for (size_t i = 0; i < sum.count; i++) ticket.attention[sum.to + i] += sum.from[i];
  if (timing_) CUDA_CALL(cudaEventElapsedTime(&ticket.found.deviceMs, ticket.started, ticket.done));
}

}  // namespace pie
