// Reads fixtures: calls and the float64 reference's results, as written by ../../card/recorder.ts.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>
#include "../engine/engine.h"

namespace pie::harness {

// These numbers must match recorder.ts.
enum class OperationKind : uint32_t { Case = 1, Forward, Copy, ReadPage, WritePage, Project, Score, Greedy };

struct FixtureSequence {
  int adapter = -1;
  uint32_t rows = 0;
  std::vector<uint32_t> tokens;
  std::vector<float> embeds;
  std::vector<uint32_t> positions, context;
  std::vector<uint8_t> mask;
  std::vector<uint32_t> writes;
  uint32_t outputRows = 0, topK = 0;
  bool wantsStates = false, tokensOnly = false, wantsAttention = false, wantsTop = false;
  std::vector<uint32_t> allowed;
  std::vector<Draw> draws;
  // Expected results.
  std::vector<float> states;
  std::vector<float> logProbabilities;  // outputRows × vocabulary, by token.
  std::vector<float> attention;
};

// One call; its kind determines which fields are used. The comment of a field names these kinds.
struct Operation {
  OperationKind kind;
  std::string label;                       // Case
  std::vector<FixtureSequence> sequences;  // Forward
  std::vector<uint32_t> sources, destinations;  // Copy
  std::vector<int32_t> shifts;             // Copy; may be empty
  uint32_t page = 0;                       // ReadPage, WritePage
  int handle = -1;                         // ReadPage, WritePage (-1: zeros)
  uint32_t count = 0, topK = 0;            // Project, Score
  std::vector<float> states;               // Project, Score
  std::vector<float> logProbabilities;     // Project: count × vocabulary, by token. Score: all lists, concatenated.
  std::vector<uint32_t> tokens;            // Score: all lists. Greedy: the expected tokens.
  std::vector<int> first;                  // Score: count + 1
  std::vector<float> entropies;            // Score
  std::vector<uint32_t> prompt;            // Greedy
  std::vector<float> margins;              // Greedy: each token's lead over the next best, in nats.
};

struct FixtureAdapterMatrices {
  int layer;
  std::string projection;
  int rank;
  std::vector<float> a, b;
};

class MappedFile {
 public:
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  const uint8_t* data = nullptr;
  size_t size = 0;
};

struct Fixture {
  std::string label;
  EngineOptions options;  // Shape, flags, frequencies, pool.
  std::vector<std::vector<FixtureAdapterMatrices>> adapters;
  std::vector<Operation> operations;
  WeightSource weights;

  // Throws std::runtime_error if the file is not a fixture, or is truncated.
  static Fixture read(const std::string& path);

 private:
  std::shared_ptr<MappedFile> file;
};

}  // namespace pie::harness
