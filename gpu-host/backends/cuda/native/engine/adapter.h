// Low-rank adapters (Hu et al., LoRA, 2021) on the device: A of projections that share an input under each other, B beside each other where they share
// an output.
#pragma once
#include <memory>
#include <mutex>
#include <vector>
#include "../kernels/linear.h"
#include "engine.h"
#include "memory.h"
#include "streams.h"

namespace pie {

// What is added to a projection's output: low = x · Aᵀ, then y += low · Bᵀ for parts of low and of y.
template <typename T>
struct LowRank {
  struct Up {
    Linear<T> linear;
    int from;  // First value of a row of low.
    int to;    // First value of a row of y.
  };
  Linear<T> down;
  std::vector<Up> ups;
  bool changes() const { return !ups.empty(); }
};

template <typename T>
struct AdapterLayer {
  LowRank<T> qkv, output, gateUp, down;
};

// What the engine must know of adapters that may outlive it.
struct AdapterLedger {
  std::mutex mutex;
  size_t bytes = 0;
  std::vector<uint64_t> gone;  // Ids of those that were destroyed: no graph may be replayed for them.
};

template <typename T>
class DeviceAdapter final : public Adapter {
 public:
  // Throws EngineError "invalid" for matrices that fit no layer, "out-of-memory". `room`: bytes that adapters may still take.
  DeviceAdapter(const std::vector<AdapterMatrices>& matrices, const ModelShape& shape, int maxRows, uint64_t id, std::shared_ptr<AdapterLedger> ledger,
                size_t room, const Stream& stream);
  ~DeviceAdapter() override;
  size_t bytes() const override { return block_.bytes(); }
  uint64_t id() const { return id_; }
  const AdapterLayer<T>& layer(int index) const { return layers_[index]; }
  T* low() const { return low_; }  // maxRows × the widest `down`.
  const AdapterLedger* ledger() const { return ledger_.get(); }

 private:
  uint64_t id_;
  std::shared_ptr<AdapterLedger> ledger_;
  DeviceBlock block_;
  std::vector<AdapterLayer<T>> layers_;
  T* low_ = nullptr;
};

}  // namespace pie
