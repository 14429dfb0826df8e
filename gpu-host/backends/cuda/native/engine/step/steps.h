// Uploads steps to the device, runs them, downloads their results.
//
// Three streams: uploads, computing, downloads. A step's upload block and results use one of two areas of device memory, alternating between device
// steps:
//
//   upload    waits for the computing that last read this area's block      (event `computed` of the area)
//   computing waits for the upload, and for the download that last read this area's results   (`uploaded`, `downloaded`)
//   download  waits for the computing                                        (`computed`)
//
// So a step's computing overlaps with the next step's upload and the previous step's download. All other memory of steps (weights, pool, scratch,
// adapters, slot tables) belongs to the running step: steps compute one after another, and other work on that memory is queued on the computing
// stream, too. Tickets hold the host memory.
#pragma once
#include <vector>
#include "graphs.h"
#include "layers.h"
#include "tickets.h"

namespace pie {

// Device memory of a step in flight.
struct Area {
  uint8_t* upload = nullptr;
  int uploadWord = 0;          // Words from the slot tables to the upload block.
  uint8_t* results = nullptr;
  uint32_t* picked = nullptr;  // The token that each row picks. The next step may read it, because it uses the other area.
  Event uploaded, computed, downloaded;
};

template <typename T>
class Steps {
 public:
  // `areas`: areaBytes() bytes of device memory.
  Steps(const DeviceModel<T>& model, uint8_t* areas, const EngineOptions& options);
  // Waits for queued work, which must not outlive its memory.
  ~Steps();
  static size_t areaBytes(const PlanContext& context);

  uint64_t next() const { return tickets_.next(); }
  uint64_t submit(const Batch& batch);
  Results wait(uint64_t id) { return tickets_.wait(id); }
  const Stream& computing() const { return computing_; }
  SlotPositions& positions() { return planner_.positions(); }
  GraphCache& graphs() { return graphs_; }
  const GraphCache& graphs() const { return graphs_; }

 private:
  // Records `started`, if given, at the start of computing.
  void enqueue(const StepPlan& plan, const uint8_t* block, const Event* started);
  void checkPicked(const Batch& batch, size_t parts) const;
  // The area that a device step will use if `ahead` other device steps are queued before it.
  const Area& areaAhead(size_t ahead) const { return areas_[(area_ + 1 + ahead) % 2]; }
  void download(void* to, size_t from, size_t bytes);
  void submitWhole(Ticket& ticket, const Batch& batch, const Part& part);
  void submitSplit(Ticket& ticket, const Batch& batch, const std::vector<Part>& parts);

  const DeviceModel<T>& model_;
  Planner planner_;
  bool timing_;
  Stream uploads_, computing_, downloads_;
  int* tables_;  // Slot lists of sequences, kept between steps (Sequence::table).
  Area areas_[2];
  int area_ = 1;  // Area of the last device step.
  int picks_ = 0;  // Number of tokens that the last step picks and the next batch may refer to.
  Tickets tickets_;
  GraphCache graphs_;
};

}  // namespace pie
