// Decides before any allocation whether weights, pool and scratch fit.
#pragma once
#include <functional>
#include "engine.h"

namespace pie {

struct MemoryNeed {
  size_t weights = 0;
  size_t pool = 0;
  size_t scratch = 0;
  size_t total() const { return weights + pool + scratch; }
};

struct MemoryBudget {
  MemoryNeed need;
  int pageCount;      // The requested number; for 0, all that fit.
  int pagesThatFit;
};

// `needFor` returns the need of a number of pages and must be monotonic. The budget is all `free` bytes except a spare for the driver, which is a
// share of `total`, and at most `asked` bytes unless that is 0; `reserve` bytes of the budget stay unused. Throws EngineError "out-of-memory", whose
// message lists the need and how many pages would fit. Pure.
MemoryBudget planMemory(const std::function<MemoryNeed(int pages)>& needFor, int pageCount, int mostPages, size_t asked, size_t reserve, size_t free,
                        size_t total);

}  // namespace pie
