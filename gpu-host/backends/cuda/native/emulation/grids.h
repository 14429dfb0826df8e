// Grids: what a launch asks for, and one that is under way.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include "moment.h"
#include "vectors.h"

namespace emulation {

struct Grid {
  const char* kernel;
  dim3 grid, block;
  size_t shared;
  std::function<void()> body;  // One thread of it.
  bool early = false;          // May begin before the kernel before it has ended, for whose end each of its threads waits (programmatic dependent launch).

  uint64_t blocks() const { return uint64_t{grid.x} * grid.y * grid.z; }
};

// A grid under way, for itself and for the one after it.
struct GridRun {
  std::shared_ptr<GridRun> before;     // That it began before the end of; null where it began after all else.
  Moment nextMayBegin;                 // Every block has let the next grid begin, or has ended.
  Moment ended;
  std::atomic<uint64_t> letting{0};    // Blocks that have.
  std::atomic<bool> hasWaited{false};  // For `before`.

  void end() {
    nextMayBegin.reach();
    ended.reach();
  }
};

// Runs all blocks, several at a time, in no particular order. False: the kernel failed, and faults are caught (see faults.h).
bool runGrid(const Grid& grid, GridRun& run);
// Returns when the grid that it began before the end of has ended.
void awaitGridBefore(GridRun& run);
// What griddepcontrol.wait and .launch_dependents do, of the block that runs. See ../device/launch.h.
void waitForGridBefore();
void letNextGridBegin();

}  // namespace emulation
