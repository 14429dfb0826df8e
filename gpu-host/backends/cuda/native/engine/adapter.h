// Low-rank adapters (Hu et al., LoRA, 2021) on the device. The A matrices of projections that share an input are stacked, so that one product
// computes all of them; each projection's B adds to its part of the shared output.
#pragma once
#include <memory>
#include <mutex>
#include <vector>
#include "../kernels/linear.h"
#include "engine.h"
#include "memory.h"
#include "streams.h"

namespace pie {

// The change of a projection's output: low = x · Aᵀ, then y += low · Bᵀ for parts of low and of y.
template <typename T>
struct LowRank {
  struct Up {
    Linear<T> linear;
    int from;  // First column of low.
    int to;    // First column of y.
  };
  Linear<T> down;
  std::vector<Up> ups;
  bool changes() const { return !ups.empty(); }
};

template <typename T>
struct AdapterLayer {
  LowRank<T> qkv, output, gateUp, down;
};

// State that the engine shares with its adapters, because adapters may outlive it.
struct AdapterLedger {
  std::mutex mutex;
  size_t bytes = 0;
  std::vector<uint64_t> gone;  // Ids of destroyed adapters; their graphs must not be replayed.
};

template <typename T>
class DeviceAdapter final : public Adapter {
 public:
  // Throws EngineError "invalid" for matrices that do not fit the model, and "out-of-memory". `room`: bytes that the engine may still use for
  // adapters.
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
