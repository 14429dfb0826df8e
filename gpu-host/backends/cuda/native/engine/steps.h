// Brings steps to the device, runs them, brings results back.
//
// Three streams: uploads, computing, downloads. Device memory of a step's block and results is one of two areas, which device steps take in turn:
//
//   upload    after the computing that last read this area's block      (event `computed` of the area)
//   computing after the upload, and after the download that last read this area's results   (`uploaded`, `downloaded`)
//   download  after the computing                                        (`computed`)
//
// so that the next step's upload, and this one's download, go beside computing. All else that steps touch (weights, pool, scratch, adapters) is theirs
// while they compute, which they do one after another; whatever else works on it is queued on the computing stream, too. Host memory: see Tickets.
#pragma once
#include <vector>
#include "graphs.h"
#include "layers.h"
#include "tickets.h"

namespace pie {

// Device memory of a step on its way.
struct Area {
  uint8_t* upload = nullptr;
  uint8_t* results = nullptr;
  uint32_t* picked = nullptr;  // The token that each row of the step picks, which the next step may read: it has the other area.
  Event uploaded, computed, downloaded;
};

template <typename T>
class Steps {
 public:
  // `areas`: of areaBytes() on the device.
  Steps(const DeviceModel<T>& model, uint8_t* areas, const EngineOptions& options);
  // Queued work must not outlive the memory that it uses.
  ~Steps();
  static size_t areaBytes(const PlanContext& context);

  uint64_t next() const { return tickets_.next(); }
  uint64_t submit(const Batch& batch, const DeviceAdapter<T>* adapter);
  Results wait(uint64_t id) { return tickets_.wait(id); }
  const Stream& computing() const { return computing_; }
  GraphCache& graphs() { return graphs_; }
  const GraphCache& graphs() const { return graphs_; }

 private:
  // `started`, when it is given, is recorded where computing starts.
  void enqueue(const StepPlan& plan, const uint8_t* block, const DeviceAdapter<T>* adapter, const Event* started);
  void checkPicked(const Batch& batch, size_t parts) const;
  void download(void* to, size_t from, size_t bytes);
  void submitWhole(Ticket& ticket, const Batch& batch, const Part& part, const DeviceAdapter<T>* adapter);
  void submitSplit(Ticket& ticket, const Batch& batch, const std::vector<Part>& parts, const DeviceAdapter<T>* adapter);

  const DeviceModel<T>& model_;
  Planner planner_;
  bool timing_;
  Stream uploads_, computing_, downloads_;
  Area areas_[2];
  int area_ = 1;  // Of the last device step.
  int picks_ = 0;  // Tokens that it picks, as far as the next batch may name them.
  Tickets tickets_;
  GraphCache graphs_;
};

}  // namespace pie
