// An engine of random weights at a true shape, and the times of whole steps.
#pragma once
#include <memory>
#include <vector>
#include "json.h"
#include "measure.h"
#include "shapes.h"

namespace pie::harness {

struct SessionOptions {
  bool graphs = true, cublas = true;
  bool dependent = true;  // Launches: see EngineOptions::dependentLaunch.
  bool fuseNorm = true;   // See EngineOptions::fuseNorm.
  int spinUs = 100;
  std::string precision = "bf16";  // Of weights; or int8, fp8, int4.
  bool narrowKv = false;  // Keys and values in float8.
  int sequences = 128;  // Most of one step.
  int context = 1024;
  int room = 128;       // Tokens that each sequence may grow.
  int rows = 8192;      // Most inputs of one step, and of a prefill.
};

class Session {
 public:
  Session(const NamedShape& named, const SessionOptions& options);

  // Greedy decoding of `batch` sequences whose contexts grow around `context`: what a step says goes into the next one.
  JsonObject decode(int batch, int context, int steps);
  // One prompt from an empty cache; its last row's most probable token.
  JsonObject prefill(int tokens, int times);
  // `tokens` of a context from pinned host memory into the pool and out, alone and while a step runs, and the same tokens prefilled again.
  JsonObject swap(int tokens, int times);
  JsonObject describe() const;

 private:
  struct Inputs;
  Batch batchOf(Inputs& inputs, int batch, int context) const;
  // Slots of a sequence; pages lie in no order.
  std::vector<uint32_t> slotsOf(int sequence, int tokens) const;
  void fillPool();

  const NamedShape named;
  const SessionOptions options;
  double loadMs = 0;
  std::unique_ptr<Engine> engine;
  std::vector<int> pageOrder;
  int pagesPerSequence = 0;
};

}  // namespace pie::harness
