#include "engine.h"
#include <algorithm>
#include <mutex>
#include <type_traits>
#include "../device/capability.h"
#include "memory/budget.h"
#include "memory/pages.h"
#include "step/side.h"
#include "step/steps.h"

namespace pie {

namespace {

constexpr int MOST_PAGES = 1000000;

class Cublas {
 public:
  explicit Cublas(bool wanted) : handle_(wanted ? openCublasLt() : nullptr) {}
  Cublas(const Cublas&) = delete;
  Cublas& operator=(const Cublas&) = delete;
  ~Cublas() {
    if (handle_) closeCublasLt(handle_);
  }
  CublasLt* get() const { return handle_; }

 private:
  CublasLt* handle_;
};

// Device memory: one block each for weights, pool and scratch.
template <typename T>
struct DeviceMemory {
  DeviceBlock weights, pool, scratch;
  size_t total() const { return weights.bytes() + pool.bytes() + scratch.bytes(); }
};

template <typename T>
PlanContext planContext(const EngineOptions& options, int pageCount, int multiprocessors, bool hasCublas) {
  PlanContext context;
  context.limits = stepLimits(options, pageCount);
  context.multiprocessors = multiprocessors;
  context.fastAttention = attentionIsFast<T>(options.shape);
  context.graphs = options.graphs;
  context.sharedPrefixes = options.sharedPrefixes;
  context.widens = hasCublas && options.precision != Precision::Bf16 && options.precision != Precision::Float32;
  return context;
}

// Scratch memory: the steps' scratch and areas, side work, page staging.
template <typename T>
struct ScratchMemory {
  Scratch<T> scratch;
  uint8_t* areas;
  uint8_t* side;
  uint8_t* pages;
  ScratchMemory(Carver& carver, const PlanContext& context, int pageSize)
      : scratch(layScratch<T>(carver, context)), areas(carver.take<uint8_t>(Steps<T>::areaBytes(context))),
        side(carver.take<uint8_t>(SideWork<T>::deviceBytes(context))),
        pages(carver.take<uint8_t>(PageMover::stagingBytes(context.limits, pageSize))) {}
};

template <typename T>
class EngineOf final : public Engine {
 public:
  EngineOf(const EngineOptions& options, const WeightSource& source)
      : options_(options), cublas_(options.cublas && std::is_same_v<T, bf16>), ledger_(std::make_shared<AdapterLedger>()) {
    multiprocessors_ = 0;
    CUDA_CALL(cudaDeviceGetAttribute(&multiprocessors_, cudaDevAttrMultiProcessorCount, options.device));
    budget_ = plan();
    const PlanContext context = planContext<T>(options, budget_.pageCount, multiprocessors_, hasCublas());
    memory_.weights = DeviceBlock(budget_.need.weights, "weights");
    memory_.pool = DeviceBlock(budget_.need.pool, "the pool");
    memory_.scratch = DeviceBlock(budget_.need.scratch, "scratch");
    layOut(context);
    {
      const Stream stream;
      // The pool must hold finite values, because masked keys still enter the product, with weight 0. Counters in the product workspaces start at 0.
      CUDA_CALL(cudaMemsetAsync(memory_.pool.get(), 0, memory_.pool.bytes(), stream));
      CUDA_CALL(cudaMemsetAsync(memory_.scratch.get(), 0, memory_.scratch.bytes(), stream));
      const auto upload = [&](auto* to, const auto& from) {
        if (to) CUDA_CALL(cudaMemcpyAsync(to, from.data(), from.size() * sizeof(from[0]), cudaMemcpyHostToDevice, stream));
      };
      upload(model_.scratch.frequencies, options.frequencies);
      upload(model_.scratch.rotationScales, options.traits.rotationScales);
      upload(model_.scratch.rotationOf, options.traits.rotationOf);
      loadWeights<T>(model_.weights, options, source, model_.scratch.wide, model_.scratch.wideBytes, stream);
      stream.synchronize();
    }
    steps_ = std::make_unique<Steps<T>>(model_, areas_, options);
    side_ = std::make_unique<SideWork<T>>(model_, sideMemory_, steps_->computing(), calls_);
    pages_ = std::make_unique<PageMover>(static_cast<uint8_t*>(memory_.pool.get()), staging_, context.limits, options.pageSize);
  }

  uint64_t submit(const Batch& batch) override {
    const std::lock_guard<std::mutex> lock(calls_);
    return guard(stepName(steps_->next(), "submit"), [&] {
      checkAdapters(batch);
      pages_->order(steps_->computing());
      return steps_->submit(batch);
    });
  }

  Results wait(uint64_t step) override {
    return guard(stepName(step, "wait"), [&] { return steps_->wait(step); });
  }

  void project(const float* states, int count, int topK, uint32_t* tokens, float* logProbabilities) override {
    guard(sideName("project"), [&] { side_->project(states, count, topK, tokens, logProbabilities); });
  }

  void score(const float* states, int count, const uint32_t* tokens, const int* first, float* logProbabilities, float* entropies) override {
    guard(sideName("score"), [&] { side_->score(states, count, tokens, first, logProbabilities, entropies); });
  }

  void copySlots(const uint32_t* sources, const uint32_t* destinations, const int32_t* shifts, int pairs) override {
    const std::lock_guard<std::mutex> lock(calls_);
    guard(after("copySlots"), [&] {
      pages_->order(steps_->computing());
      side_->copySlots(sources, destinations, shifts, pairs);
      steps_->positions().copy(sources, destinations, shifts, pairs);
    });
  }

  size_t pageBytes() const override { return pages_->pageBytes() + steps_->positions().bytes(options_.pageSize); }
  int pageCount() const override { return budget_.pageCount; }
  int tableSlots() const override { return model_.context.limits.tableSlots; }
  void readPage(int page, uint8_t* into) override { readPages(&page, 1, into); }
  void writePage(int page, const uint8_t* from) override { writePages(&page, 1, from); }
  void readPages(const int* pages, int count, uint8_t* into) override {
    guard("readPages", [&] { readEach(pages, count, into, false); });
  }
  void writePages(const int* pages, int count, const uint8_t* from) override {
    guard("writePages", [&] { writeEach(pages, count, from, false); });
  }

  void queueReadPage(int page, uint8_t* into) override {
    guard("queueReadPage", [&] { readEach(&page, 1, into, true); });
  }
  void queueWritePage(int page, const uint8_t* from) override {
    guard("queueWritePage", [&] { writeEach(&page, 1, from, true); });
  }
  void settlePages() override {
    guard("settlePages", [&] { pages_->settle(); });
  }
  void waitForPages() override {
    guard("waitForPages", [&] { pages_->wait(); });
  }

  std::unique_ptr<Adapter> loadAdapter(const std::vector<AdapterMatrices>& matrices) override {
    return guard("loadAdapter", [&] {
      const int rows = model_.context.limits.paddedRows;
      return std::make_unique<DeviceAdapter<T>>(matrices, options_.shape, options_.traits.headOrder, rows, ledger_, adapterRoom(), loading_);
    });
  }

  MemoryReport memory() const override {
    return health_.guard("memory", [&] {
      use();
      size_t free = 0, total = 0;
      CUDA_CALL(cudaMemGetInfo(&free, &total));
      return MemoryReport{memory_.weights.bytes(), memory_.pool.bytes(), memory_.scratch.bytes(), memory_.total(), free, budget_.pagesThatFit};
    });
  }

  GraphReport graphs() const override {
    const std::lock_guard<std::mutex> lock(calls_);
    return steps_->graphs().report();
  }

  bool hasCublas() const override { return cublas_.get() != nullptr; }

 private:
  // The current device is a per-thread setting of CUDA.
  void use() const { CUDA_CALL(cudaSetDevice(options_.device)); }

  template <typename Work>
  auto guard(const std::string& doing, Work&& work) -> decltype(work()) {
    return health_.guard(doing, [&] {
      use();
      return work();
    });
  }

  // Positions lie behind each page's keys and values, so pages that have them are moved one by one. The host keeps positions in the order of the
  // calls, so they are moved at once, also where the keys and values are only queued.
  void readEach(const int* pages, int count, uint8_t* into, bool queue) {
    const SlotPositions& positions = steps_->positions();
    if (positions.bytes(options_.pageSize) == 0) return pages_->read(pages, count, into, side_->copied(), queue);
    for (int i = 0; i < count; i++, into += pageBytes()) {
      pages_->read(pages + i, 1, into, side_->copied(), queue);
      positions.readPage(pages[i], options_.pageSize, into + pages_->pageBytes());
    }
  }
  void writeEach(const int* pages, int count, const uint8_t* from, bool queue) {
    SlotPositions& positions = steps_->positions();
    if (positions.bytes(options_.pageSize) == 0) return pages_->write(pages, count, from, side_->copied(), queue);
    for (int i = 0; i < count; i++, from += pageBytes()) {
      pages_->write(pages + i, 1, from, side_->copied(), queue);
      positions.writePage(pages[i], options_.pageSize, from + pages_->pageBytes());
    }
  }

  static std::string stepName(uint64_t step, const char* call) { return "step " + std::to_string(step) + ", " + call; }
  std::string sideName(const char* call) const {
    const std::lock_guard<std::mutex> lock(calls_);
    return after(call);
  }
  std::string after(const char* call) const { return std::string(call) + " after step " + std::to_string(steps_->next() - 1); }

  MemoryBudget plan() const {
    size_t free = 0, total = 0;
    CUDA_CALL(cudaMemGetInfo(&free, &total));
    Carver weights;
    layWeights<T>(weights, options_);
    const auto needFor = [&](int pages) {
      const PlanContext context = planContext<T>(options_, pages, multiprocessors_, hasCublas());
      Carver scratch;
      ScratchMemory<T>(scratch, context, options_.pageSize);
      return MemoryNeed{blockBytes(weights.bytes()), blockBytes(context.limits.poolBytes()), blockBytes(scratch.bytes())};
    };
    const int64_t spare = std::max(options_.scratchSlots, options_.maxRows) + 1;
    const int mostPages = static_cast<int>(std::min<int64_t>(MOST_PAGES, std::max<int64_t>(0, MOST_SLOTS - spare) / options_.pageSize));
    return planMemory(needFor, options_.pageCount, mostPages, options_.memoryBytes, options_.reserveBytes, free, total);
  }

  void layOut(const PlanContext& context) {
    model_.context = context;
    model_.epsilon = options_.shape.rmsEpsilon;
    model_.traits = options_.traits;
    Carver weights(memory_.weights.get()), scratch(memory_.scratch.get());
    model_.weights = layWeights<T>(weights, options_);
    const ScratchMemory<T> laid(scratch, context, options_.pageSize);
    model_.scratch = laid.scratch;
    areas_ = laid.areas;
    sideMemory_ = laid.side;
    staging_ = laid.pages;
    model_.pool = memory_.pool.get();
    model_.kv = options_.kv;
    model_.linear.workspace = model_.scratch.workspaceBytes > 0 ? model_.scratch.workspace : nullptr;
    model_.linear.workspaceBytes = model_.scratch.workspaceBytes;
    model_.linear.multiprocessors = multiprocessors_;
    model_.linear.memoryRate = deviceMemoryRate(options_.device);
    model_.linear.cublas = cublas_.get();
    model_.attentionBlocks = attentionBlocks(options_.shape, multiprocessors_, context.fastAttention);
  }

  void checkAdapters(const Batch& batch) const {
    for (int i = 0; i < batch.count; i++) {
      const Adapter* const given = batch.sequences[i].adapter;
      if (!given) continue;
      const auto* adapter = dynamic_cast<const DeviceAdapter<T>*>(given);
      if (!adapter || adapter->ledger() != ledger_.get()) refuse("Sequence " + std::to_string(i) + " has an adapter of another engine.");
    }
  }

  // Bytes that adapters may still use within memoryBytes.
  size_t adapterRoom() const {
    if (options_.memoryBytes == 0) return SIZE_MAX;
    const std::lock_guard<std::mutex> lock(ledger_->mutex);
    const size_t taken = memory_.total() + ledger_->bytes;
    return options_.memoryBytes - std::min(options_.memoryBytes, taken);
  }

  const EngineOptions options_;
  int multiprocessors_;
  mutable Health health_;
  mutable std::mutex calls_;  // Held while a call queues work on the computing stream.
  Cublas cublas_;
  MemoryBudget budget_{};
  // Declared before the owners of streams (below), so that the memory is freed after their work has ended.
  DeviceMemory<T> memory_;
  DeviceModel<T> model_;
  uint8_t* areas_ = nullptr;
  uint8_t* sideMemory_ = nullptr;
  uint8_t* staging_ = nullptr;
  std::shared_ptr<AdapterLedger> ledger_;
  Stream loading_;  // Loads adapters. Created with the engine: later there may be no memory left for a stream.
  std::unique_ptr<Steps<T>> steps_;
  std::unique_ptr<SideWork<T>> side_;
  std::unique_ptr<PageMover> pages_;
};

void checkDevice(int device) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) {
    (void)cudaGetLastError();
    throw EngineError("no-device", std::string("There is no CUDA device: ") + cudaGetErrorString(error) + ".");
  }
  if (device < 0 || device >= count)
    throw EngineError("no-device", "There is no CUDA device " + std::to_string(device) + " among " + std::to_string(count) + ".");
  int major = 0, minor = 0;
  CUDA_CALL(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  CUDA_CALL(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
  int shared = 0;
  CUDA_CALL(cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  if (builtFor(major, minor, shared)) return;
  const auto version = [](int major, int minor) { return std::to_string(major) + "." + std::to_string(minor); };
  throw EngineError("no-device", "CUDA device " + std::to_string(device) + " has compute capability " + version(major, minor) +
                                     "; kernels are built for " + version(PIE_CAPABILITY / 10, PIE_CAPABILITY % 10) +
                                     ". Build them for this card: npm run build:cuda -- --help lists the architectures.");
}

}  // namespace

std::unique_ptr<Engine> Engine::create(const EngineOptions& options, const WeightSource& weights) {
  checkOptions(options);
  Health health;
  return health.guard("start", [&]() -> std::unique_ptr<Engine> {
    checkDevice(options.device);
    CUDA_CALL(cudaSetDevice(options.device));
    if (options.precision == Precision::Float32) return std::make_unique<EngineOf<float>>(options, weights);
    return std::make_unique<EngineOf<bf16>>(options, weights);
  });
}

}  // namespace pie
