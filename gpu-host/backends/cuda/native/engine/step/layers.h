// The launches of one step, in order.
#pragma once
#include <type_traits>
#include "../../kernels/head/head.h"
#include "../memory/adapter.h"
#include "plan.h"
#include "../memory/scratch.h"
#include "../memory/weights.h"

namespace pie {

// A model on the device and its working memory.
template <typename T>
struct DeviceModel {
  PlanContext context;
  float epsilon = 0;
  ModelTraits traits;
  Weights<T> weights;
  Scratch<T> scratch;
  void* pool = nullptr;
  KvPrecision kv = KvPrecision::AsComputed;
  LinearContext linear;
  int attentionBlocks = 0;

  const ModelShape& shape() const { return context.limits.shape; }
  // Calls `use` with the pool as a pointer of its element type.
  template <typename Use>
  void withPool(Use use) const {
    if constexpr (std::is_same_v<T, bf16>)
      if (kv == KvPrecision::Fp8) return use(static_cast<float8*>(pool));
    use(static_cast<T*>(pool));
  }
  // Calls `use` with layer `index` of the pool.
  template <typename Use>
  void withKvLayer(int index, Use use) const {
    withPool([&](auto* base) {
      auto layer = kvLayer(base, shape());
      layer.base += static_cast<size_t>(index) * context.limits.totalSlots() * layer.slotWidth;
      use(layer);
    });
  }
};

// Device addresses of a step.
struct StepMemory {
  const uint8_t* upload;         // The step's upload block.
  int* tables;                   // The slot tables, from which references to slot lists count.
  uint8_t* results;
  uint32_t* picked;              // The picked tokens, one for each row whose tokens are wanted.
  const uint32_t* pickedBefore;  // The picked tokens of the previous step.
};

// Launches a step. The launches of a padded plan depend only on its shape and the addresses, so that they can be captured. `chained`: see
// ../device/launch.h.
template <typename T>
void launchStep(const DeviceModel<T>& model, const StepPlan& plan, const StepMemory& memory, bool chained, cudaStream_t stream);

// Computes into scratch.logits the product of the head and `rows` rows of normalised states.
template <typename T>
void launchLogits(const DeviceModel<T>& model, const T* states, int rows, cudaStream_t stream) {
  const Product<T>& head = model.weights.head;
  launchProduct<T>(head, states, model.scratch.logits(), head.outputs(), rows, Epilogue::Wide, model.linear, stream);
  const ModelTraits& traits = model.traits;
  if (!traits.plainLogits()) launchCap(model.scratch.logits(), traits.logitScale, traits.logitSoftcap, rows, head.outputs(), stream);
}

}  // namespace pie
