// cp.async copies in flight, per thread.
#pragma once
#include <cstddef>
#include <vector>

namespace emulation {

struct AsyncCopy {
  void* to;
  const void* from;
  unsigned bytes;  // Bytes to read; the rest of `size` is zero-filled.
  unsigned size;
};

struct AsyncCopies {
  std::vector<AsyncCopy> copies;   // Oldest first.
  std::vector<size_t> groups;      // Sizes of the committed groups, oldest first. Copies beyond the last group are not committed.
  void clear() { copies.clear(), groups.clear(); }
};

}  // namespace emulation
