// Decides before any allocation whether weights, pool and scratch fit.
#pragma once
#include <functional>
#include "../engine.h"

namespace pie {

struct MemoryNeed {
  size_t weights = 0;
  size_t pool = 0;
  size_t scratch = 0;
  size_t total() const { return weights + pool + scratch; }
};

struct MemoryBudget {
  MemoryNeed need;
  int pageCount;      // The requested number of pages; if that is 0, all that fit.
  int pagesThatFit;
};

// `needFor` returns the need of a number of pages and must be monotonic. The budget is the `free` bytes less a spare for the driver, which is a share
// of `total`. If `asked` is not 0, the budget is at most `asked` bytes. `reserve` bytes of the budget stay unused. Throws EngineError
// "out-of-memory", whose message lists the need and how many pages would fit. Pure.
MemoryBudget planMemory(const std::function<MemoryNeed(int pages)>& needFor, int pageCount, int mostPages, size_t asked, size_t reserve, size_t free,
                        size_t total);

}  // namespace pie
