// Copies with cp.async that are under way: each thread's own.
#pragma once
#include <cstddef>
#include <vector>

namespace emulation {

struct AsyncCopy {
  void* to;
  const void* from;
  unsigned bytes;  // That are read; the rest becomes zero.
  unsigned size;
};

struct AsyncCopies {
  std::vector<AsyncCopy> copies;   // Oldest first.
  std::vector<size_t> groups;      // Committed: how many copies each has, oldest first. Those past the last group are not committed.
  void clear() { copies.clear(), groups.clear(); }
};

}  // namespace emulation
