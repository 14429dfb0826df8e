#include "budget.h"
#include <algorithm>
#include <cstdio>
#include <string>

namespace pie {

namespace {

std::string sizeText(size_t bytes) {
  const char* units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  for (; value >= 1024 && unit < 4; unit++) value /= 1024;
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.2f %s", value, units[unit]);
  return text;
}

// The largest number of pages whose need is within the budget, or 0 (binary search).
int mostThatFit(const std::function<MemoryNeed(int)>& needFor, int mostPages, size_t budget) {
  int fits = 0, tooMany = mostPages + 1;
  while (tooMany - fits > 1) {
    const int middle = fits + (tooMany - fits) / 2;
    (needFor(middle).total() <= budget ? fits : tooMany) = middle;
  }
  return fits;
}

}  // namespace

MemoryBudget planMemory(const std::function<MemoryNeed(int)>& needFor, int pageCount, int mostPages, size_t asked, size_t reserve, size_t free,
                        size_t total) {
  // The driver allocates memory for graphs and modules when they are loaded; if none is free, a launch fails and the device is lost. The spare is a
  // share of the total memory, not of the free memory: memory that another model's engine has left free serves the driver for both models.
  const size_t spare = std::min<size_t>(total / 32, size_t{1} << 30), open = free - std::min(free, spare);
  const size_t most = asked > 0 ? std::min(asked, open) : open, budget = most - std::min(most, reserve);
  MemoryBudget plan{};
  plan.pagesThatFit = mostThatFit(needFor, mostPages, budget);
  plan.pageCount = pageCount > 0 ? pageCount : plan.pagesThatFit;
  if (plan.pageCount > 0 && plan.pageCount <= plan.pagesThatFit) {
    plan.need = needFor(plan.pageCount);
    return plan;
  }
  const int wanted = std::max(plan.pageCount, 1);
  std::string message;
  if (wanted > mostPages) {
    message = std::to_string(wanted) + " pages exceed the maximum of the engine";
  } else {
    const MemoryNeed need = needFor(wanted);
    message = "The model needs " + sizeText(need.weights) + " for weights, " + sizeText(need.pool) + " for a pool of " + std::to_string(wanted) +
              " pages and " + sizeText(need.scratch) + " for scratch: " + sizeText(need.total()) + " of " + sizeText(budget) +
              (asked > 0 && asked <= open ? " that the engine may take" : " that are free") + (reserve > 0 ? ", less the reserve for adapters" : "");
  }
  throw EngineError("out-of-memory", message + "; " + std::to_string(plan.pagesThatFit) + " pages would fit");
}

}  // namespace pie
