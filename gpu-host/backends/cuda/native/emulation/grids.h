// Grids: the parameters of a launch, and a running grid.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include "one-shot-event.h"
#include "vectors.h"

namespace emulation {

struct Grid {
  const char* kernel;
  dim3 grid, block;
  size_t shared;
  std::function<void()> body;  // The kernel as run by one CUDA thread.
  bool early = false;          // Programmatic dependent launch: the grid may begin before the previous one ends; each thread waits for that end.

  uint64_t blocks() const { return uint64_t{grid.x} * grid.y * grid.z; }
};

// A running grid, shared with its successor.
struct GridRun {
  std::shared_ptr<GridRun> previous;   // The preceding grid, which may still run. Null if this grid began after the end of all preceding work.
  OneShotEvent nextMayBegin;                 // Reached when every block has let the next grid begin, or has ended.
  OneShotEvent ended;
  std::atomic<uint64_t> released{0};   // Number of blocks that have let the next grid begin or have ended.
  std::atomic<bool> previousEnded{false};  // This grid has waited for the end of `previous`.

  void end() {
    nextMayBegin.reach();
    ended.reach();
  }
};

// Runs all blocks, several at a time, in no particular order. Returns false if the kernel failed and faults are caught (see faults.h).
bool runGrid(const Grid& grid, GridRun& run);
// Returns when the predecessor of a grid that began early has ended.
void awaitPreviousGrid(GridRun& run);
// Implement griddepcontrol.wait and .launch_dependents for the running block. See ../device/launch.h.
void waitForPreviousGrid();
void letNextGridBegin();

}  // namespace emulation
