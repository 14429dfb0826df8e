// Replays one fixture's calls on one engine.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>
#include "../engine/engine.h"
#include "errors.h"
#include "fixture.h"

namespace pie::harness {

class Replay {
 public:
  Replay(const Fixture& fixture, const EngineOptions& options);
  void run();
  ErrorTable errors;

 private:
  void forward(const Operation& operation);
  void project(const Operation& operation);
  void score(const Operation& operation);
  void greedy(const Operation& operation);
  void readPage(const Operation& operation);
  void writePage(const Operation& operation);
  void note(const char* handler, const RelativeError& error);

  const Fixture& fixture;
  std::unique_ptr<Engine> engine;
  std::vector<std::unique_ptr<Adapter>> adapters;
  std::map<int, std::vector<uint8_t>> pages;
  std::string kind;
};

}  // namespace pie::harness
