// Captured steps: a step of few rows is some hundreds of launches, which cost the host more time than the device; a graph is one launch (CUDA
// graphs).
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>
#include "plan.h"
#include "../streams.h"

namespace pie {

// Everything that determines the launches of a padded step.
struct GraphKey {
  StepShape shape;
  int area = 0;  // Index of the Area whose device addresses the graph contains.
  bool operator==(const GraphKey& o) const { return shape == o.shape && area == o.area; }
};

class GraphCache {
 public:
  // `chained`: launches form a LaunchChain, until the driver refuses a graph because of its chain.
  explicit GraphCache(bool chained) : chained_(chained) {}
  GraphCache(const GraphCache&) = delete;
  GraphCache& operator=(const GraphCache&) = delete;
  ~GraphCache();
  // Runs `launch(chained)` on `stream`: directly for the first uses of a key, and from a graph after that. The direct launches load the kernels,
  // which must not happen during a capture, and rare keys are never captured. A graph that the driver refuses does not count as a failure of the
  // device.
  void run(const GraphKey& key, const Stream& stream, const std::function<void(bool)>& launch);
  // False once the driver has refused a graph because of its chain.
  bool chained() const { return chained_; }
  GraphReport report() const;

 private:
  struct Entry {
    GraphKey key;
    cudaGraphExec_t graph = nullptr;
    bool refused = false;  // Always launch directly.
    int uses = 0;
    uint64_t used = 0;
  };
  // An evicted graph, which may still run, and the end of its last run.
  struct Evicted {
    cudaGraphExec_t graph;
    std::unique_ptr<Event> ended;
  };
  Entry& entry(const GraphKey& key, const Stream& stream);
  void evict(cudaGraphExec_t graph, const Stream& stream);
  // Destroys the evicted graphs that have ended. Never waits: at most as many are left as steps are under way.
  void destroyEnded();
  void capture(Entry& entry, const Stream& stream, const std::function<void(bool)>& launch);
  std::vector<Entry> entries_;
  std::vector<Evicted> evicted_;
  uint64_t clock_ = 0;
  bool chained_;
  size_t refused_ = 0;
  std::string why_;
};

}  // namespace pie
