// Stops the device until a test releases it. Tests use it to show that a call does not wait for the device.
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
