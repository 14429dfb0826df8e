// Marks which launches form a chain (see launch.h). A separate header, so that host files without CUDA code can begin a chain.
#pragma once

namespace pie {

// While an instance with `wanted` lives, the LAUNCH_CHAINED launches of this thread form one chain; otherwise they are ordinary launches. The first
// kernel of a chain is launched as an ordinary kernel, so that the chain begins after all preceding work of its stream.
class LaunchChain {
 public:
  explicit LaunchChain(bool wanted) : outer_(state()) { state() = wanted ? State::First : State::None; }
  ~LaunchChain() { state() = outer_; }
  LaunchChain(const LaunchChain&) = delete;
  LaunchChain& operator=(const LaunchChain&) = delete;
  // Returns whether the next launch may begin early.
  static bool advance() {
    const State before = state();
    if (before == State::First) state() = State::Begun;
    return before == State::Begun;
  }

 private:
  enum class State { None, First, Begun };
  static State& state() {
    static thread_local State state = State::None;
    return state;
  }
  const State outer_;
};

}  // namespace pie
