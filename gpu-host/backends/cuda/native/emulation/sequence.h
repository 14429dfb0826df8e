// Pieces of work in the order of one stream or graph.
#pragma once
#include <deque>
#include <functional>
#include <memory>
#include "grids.h"

namespace emulation {

// A kernel, or anything else.
struct Work {
  std::function<void()> other;
  std::shared_ptr<const Grid> kernel;

  bool isEarly() const { return kernel && kernel->early; }
};

// One piece after another; but a kernel that may begin early does, on a thread of its own, once each block of the kernel before has let it: what it touches
// before it waits is touched too soon.
class Sequence {
 public:
  // `next`: what follows, as far as it is known.
  void run(const Work& work, const Work* next);

 private:
  void finish();
  std::deque<std::shared_ptr<GridRun>> running_;
};

}  // namespace emulation
