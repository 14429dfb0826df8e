// Which launches are a chain (see launch.h). Apart, so that a file that has nothing of the card in it can begin one.
#pragma once

namespace pie {

// While one lives, what this thread launches with LAUNCH_CHAINED is one chain; without one it is launched as ever. The first kernel has no attribute, so that
// the chain begins after all that its stream waits for.
class LaunchChain {
 public:
  explicit LaunchChain(bool wanted) : outer_(state()) { state() = wanted ? State::First : State::None; }
  ~LaunchChain() { state() = outer_; }
  LaunchChain(const LaunchChain&) = delete;
  LaunchChain& operator=(const LaunchChain&) = delete;
  // Whether the next launch may begin early.
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
