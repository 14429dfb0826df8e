// For tests of calls that must not wait: a device that stands still until a test lets it go on.
#pragma once

namespace emulation {

// While an instance lives, no piece of work begins on any stream. PIE_EMULATED_HOLD names a file with the same effect while it exists.
class Hold {
 public:
  Hold();
  ~Hold();
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;
};

}  // namespace emulation
