// Captured steps: a step of few rows is some hundreds of launches, which cost the host more than the device; a graph is one (CUDA graphs).
#pragma once
#include <cstdint>
#include <functional>
#include <vector>
#include "plan.h"
#include "streams.h"

namespace pie {

// What launches of a padded step follow from.
struct GraphKey {
  StepShape shape;
  int area = 0;          // Whose addresses were captured.
  uint64_t adapter = 0;  // 0: none.
  bool operator==(const GraphKey& o) const { return shape == o.shape && area == o.area && adapter == o.adapter; }
};

class GraphCache {
 public:
  // `chained`: whether launches are a LaunchChain, to begin with.
  explicit GraphCache(bool chained) : chained_(chained) {}
  GraphCache(const GraphCache&) = delete;
  GraphCache& operator=(const GraphCache&) = delete;
  ~GraphCache();
  // Does what `launch(chained)` launches on `stream`: directly the first times that a key is seen (which also loads the kernels, which must not happen while
  // capturing, and keeps what comes rarely from being captured), from a graph after that. A graph that the driver refuses is no failure of the device.
  void run(const GraphKey& key, const Stream& stream, const std::function<void(bool)>& launch);
  // Not any more, once the driver has refused a graph for it.
  bool chained() const { return chained_; }
  // Graphs of an adapter that is no more.
  void forget(uint64_t adapter);
  GraphReport report() const;

 private:
  struct Entry {
    GraphKey key;
    cudaGraphExec_t graph = nullptr;
    bool refused = false;  // Launched directly for good.
    int uses = 0;
    uint64_t used = 0;
  };
  Entry& entry(const GraphKey& key, const Stream& stream);
  void capture(Entry& entry, const Stream& stream, const std::function<void(bool)>& launch);
  std::vector<Entry> entries_;
  uint64_t clock_ = 0;
  bool chained_;
  size_t refused_ = 0;
  std::string why_;
};

}  // namespace pie
