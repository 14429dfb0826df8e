// An engine with random weights at a real model's shape, and the times of whole steps.
#pragma once
#include <memory>
#include <vector>
#include "json.h"
#include "measure.h"
#include "shapes.h"

namespace pie::harness {

struct SessionOptions {
  bool graphs = true, cublas = true;
  bool dependent = true;  // See EngineOptions::dependentLaunch.
  int spinUs = 100;
  std::string precision = "bf16";  // Precision of the weights: bf16, int8, fp8 or int4.
  bool narrowKv = false;  // Keys and values in float8.
  bool sharedPrefixes = true;  // See EngineOptions::sharedPrefixes.
  int adapters = 0;     // Number of adapters, each of all projections; the sequences of a decode step use them in turn.
  int rank = 16;
  int prefix = 0;       // Tokens at the beginning of every context whose slots all sequences share; whole pages.
  int sequences = 128;  // Maximum sequences per step.
  int context = 1024;
  int room = 128;       // Tokens by which each sequence may grow.
  int rows = 8192;      // Maximum inputs per step. The pool has room for a prefill of as many.
};

class Session {
 public:
  Session(const NamedShape& named, const SessionOptions& options);

  // Decodes `batch` sequences whose contexts grow in `steps` steps; `context` is the length half way. Each step's tokens are the next step's inputs.
  // The device draws each token among the `candidates` most probable ones; with one candidate, decoding is greedy.
  JsonObject decode(int batch, int context, int steps, int candidates);
  // Prefills one prompt from an empty cache and requests the last row's most probable token.
  JsonObject prefill(int tokens, int times);
  // Moves a context of `tokens` tokens out of the pool into pinned host memory and back, alone and during a step. For comparison it also prefills as
  // many tokens.
  JsonObject swap(int tokens, int times);
  JsonObject describe() const;

 private:
  struct Inputs;
  // The caller must submit the batch, because `known` already counts its slots.
  Batch batchOf(Inputs& inputs, int batch, int context, int candidates = 1);
  // Slots of a sequence; its pages are scattered.
  std::vector<uint32_t> slotsOf(int sequence, int tokens) const;
  void fillPool();
  void loadAdapters();

  const NamedShape named;
  const SessionOptions options;
  double loadMs = 0;
  std::unique_ptr<Engine> engine;
  std::vector<std::unique_ptr<Adapter>> adapters;
  std::vector<int> pageOrder;
  int prefixPages = 0, pagesPerSequence = 0;  // `pagesPerSequence` excludes the prefix.
  std::vector<int> known;  // By sequence: the slots that its table has (Sequence::known).
};

}  // namespace pie::harness
