// Whether weights, pool and scratch fit, decided before anything is allocated.
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
  int pageCount;      // As asked for; all that fit for 0.
  int pagesThatFit;
};

// `needFor` gives what so many pages need and grows with them. `asked`: of the options, 0 for all that is `free` but a little for the driver, a part of `total`;
// `reserve` of it is left alone.
// Throws EngineError "out-of-memory", which says what is needed for what and how many pages would fit. Pure.
MemoryBudget planMemory(const std::function<MemoryNeed(int pages)>& needFor, int pageCount, int mostPages, size_t asked, size_t reserve, size_t free,
                        size_t total);

}  // namespace pie
