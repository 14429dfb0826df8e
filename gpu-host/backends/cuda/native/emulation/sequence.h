// Executes work in the order of one stream or graph.
#pragma once
#include <deque>
#include <functional>
#include <memory>
#include "grids.h"

namespace emulation {

// A kernel, or any other work.
struct Work {
  std::function<void()> other;
  std::shared_ptr<const Grid> kernel;

  bool isEarly() const { return kernel && kernel->early; }
};

// Runs pieces of work one after another. A kernel that may begin early runs on its own thread as soon as every block of the previous kernel permits
// it, so that a missing wait leads to accesses that really come too early.
class Sequence {
 public:
  // `next`: the following work, if known.
  void run(const Work& work, const Work* next);

 private:
  void finish();
  std::deque<std::shared_ptr<GridRun>> running_;
};

}  // namespace emulation
