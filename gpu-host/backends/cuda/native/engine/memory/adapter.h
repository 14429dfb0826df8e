// Low-rank adapters on the device (../../kernels/linear/low-rank.h).
#pragma once
#include <memory>
#include <mutex>
#include <vector>
#include "../../kernels/linear/low-rank.h"
#include "../engine.h"
#include "memory.h"
#include "../streams.h"

namespace pie {

// State that the engine shares with its adapters, because adapters may outlive the engine.
struct AdapterLedger {
  std::mutex mutex;
  size_t bytes = 0;
};

template <typename T>
class DeviceAdapter final : public Adapter {
 public:
  // Throws EngineError "invalid" for matrices that do not fit the model, and "out-of-memory" if the adapter exceeds `room` (the bytes that the engine
  // may still use for adapters) or the device's free memory. A step gives the adapter at most `maxRows` rows.
  DeviceAdapter(const std::vector<AdapterMatrices>& matrices, const ModelShape& shape, const std::vector<int>& headOrder, int maxRows,
                std::shared_ptr<AdapterLedger> ledger,
                size_t room, const Stream& stream);
  ~DeviceAdapter() override;
  size_t bytes() const override { return block_.bytes(); }
  unsigned places() const override { return places_; }
  const void* matrices() const override { return matrices_; }
  const AdapterLedger* ledger() const { return ledger_.get(); }

 private:
  std::shared_ptr<AdapterLedger> ledger_;
  DeviceBlock block_;
  const LowRankMatrices<T>* matrices_ = nullptr;  // By layer and place, on the device.
  unsigned places_ = 0;
};

// The outputs that adapters change at a place of a layer.
LowRankProduct lowRankProduct(int layer, LowRankPlace place, const ModelShape& shape);

}  // namespace pie
