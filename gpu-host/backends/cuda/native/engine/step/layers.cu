#include "layers.h"
#include <algorithm>
#include "../../device/chain.h"
#include "../../kernels/rows/rows.h"
#include "small.h"

namespace pie {

namespace {

template <typename T>
class StepLaunch {
 public:
  StepLaunch(const DeviceModel<T>& model, const StepPlan& plan, const StepMemory& memory, cudaStream_t stream)
      : model_(model), shape_(model.shape()), traits_(model.traits), plainNorms_(model.traits.plainNorms(model.shape().normOffset)), at_(model.scratch), plan_(plan), memory_(memory), rows_(plan.shape.rows), residual_(at_.residual),
        attended_(at_.attended), stream_(stream) {
    // UploadLayout::counts says which count is where. Lists other than those of slots are counted from the
    // block's start, so their tables have the offset 0.
    tables_.slots = memory.tables;
    tables_.mask = tables_.tileWords = table<uint32_t>(0);
    tables_.members = table<AttentionMember>(0);
    tables_.partials = at_.partials;
    tables_.counters = at_.counters;
    tables_.statistics = plan.received.empty() ? nullptr : at_.statistics;
    const UploadLayout& from = plan.upload;
    adapted_ = {table<int>(from.counts) + 3, table<LowRankTask>(from.lowRankTasks), table<int>(from.lowRankRows)};
  }

  void run() {
    const UploadLayout& from = plan_.upload;
    clearReceived();
    launchEmbed<T>(residual_, model_.weights.embeddings, {table<int>(from.tokens), memory_.pickedBefore, table<float>(0), table<int>(from.embedRows), traits_.embeddingScale},
                   {table<int>(from.counts) + 1, table<int>(0), memory_.tables}, rows_, shape_.hidden, stream_);
    launchRotation(at_.rotation, table<int>(from.positions), {at_.frequencies, at_.rotationScales, traits_.rotations}, rows_, shape_.headDim, stream_);
    const bool wanted = plan_.shape.heads > 0 || plan_.shape.states > 0 || !plan_.received.empty();
    for (int i = 0; i < shape_.layers; i++) {
      const LayerWeights<T>& layer = model_.weights.layers[i];
      store(layer, i);
      // If only keys and values are wanted, the last layer ends here.
      if (!wanted && i == shape_.layers - 1) return;
      attend(i);
      if (i == shape_.layers - 1 && plan_.shape.last > 0) keepWanted();
      combine(layer, i);
      feedForward(layer, i);
    }
    states();
    heads();
    scaleReceived();
  }

 private:
  template <typename V>
  const V* table(size_t offset) const {
    return reinterpret_cast<const V*>(memory_.upload + offset);
  }
  template <typename V>
  V* result(size_t offset) const {
    return reinterpret_cast<V*>(memory_.results + offset);
  }

  bool changes(LowRankPlace place) const { return (plan_.shape.places >> place & 1) != 0; }

  // One launch for all rows, then the changes by the rows' adapters. `gated`: output for the combined gate and up; null for other matrices.
  void product(const Product<T>& matrix, const T* x, T* y, int yWidth, Epilogue epilogue, int layer, LowRankPlace place, T* gated = nullptr) {
    launchProduct<T>(matrix, x, y, yWidth, rows_, epilogue, model_.linear, stream_);
    if (!changes(place)) return;
    const LowRankProduct change = lowRankProduct(layer, place, shape_);
    launchLowRank<T>(change, adapted_, x, change.inputs, y, yWidth, gated, rows_, stream_);
  }

  // y = matrix · norm(residual + delta), where the sum becomes the new residual. `delta` may be null. `outputNorm`: of delta, or null.
  void normedProduct(const Product<T>& matrix, const T* delta, const T* outputNorm, const T* norm, T* y, int yWidth, Epilogue epilogue, int layer,
                     LowRankPlace place, T* gated = nullptr) {
    if (plainNorms_) launchAddNorm<T>(at_.normed, residual_, delta, norm, rows_, shape_.hidden, model_.epsilon, stream_);
    else blockNorm(delta, outputNorm, norm, nullptr, at_.normed, nullptr, rows_);
    product(matrix, at_.normed, y, yWidth, epilogue, layer, place, gated);
  }

  void blockNorm(const T* delta, const T* outputNorm, const T* norm, float* states, T* out, const int* pick, int rows) {
    launchBlockNorm<T>({residual_, delta, outputNorm, traits_.residualScale, norm, shape_.normOffset, states, out, pick}, rows, shape_.hidden,
                       model_.epsilon, stream_);
  }

  // The final norm of the picked rows.
  void pickNorm(float* states, T* narrow, const int* pick, int count) {
    if (plainNorms_)
      launchPickNorm<T>(states, narrow, residual_, at_.delta, pick, model_.weights.norm, count, shape_.hidden, model_.epsilon, stream_);
    else
      blockNorm(at_.delta, model_.weights.layers.back().downNorm, model_.weights.norm, states, narrow, pick, count);
  }

  // Writes the keys and values of all rows before any row attends: a sequence reads what an earlier one of the step writes.
  void store(const LayerWeights<T>& layer, int index) {
    const T* delta = index == 0 ? nullptr : at_.delta;
    const T* outputNorm = index == 0 ? nullptr : model_.weights.layers[index - 1].downNorm;
    normedProduct(layer.qkv, delta, outputNorm, layer.inputNorm, at_.qkv, shape_.qkvWidth(), Epilogue::Store, index, QKV_PLACE);
    const T *queryNorm = layer.queryNorm, *keyNorm = layer.keyNorm;
    if (traits_.rowNorms && queryNorm) {
      launchRowNorms<T>(at_.qkv, queryNorm, keyNorm, rows_, shape_, stream_);
      queryNorm = keyNorm = nullptr;
    }
    const float2* rotation = at_.rotation + static_cast<size_t>(traits_.rotation(index)) * rows_ * (shape_.headDim / 2);
    model_.withKvLayer(index, [&](auto slots) {
      launchRotateAndStore<T>(at_.queries, slots, at_.qkv, rotation, table<int>(plan_.upload.slots), queryNorm, keyNorm, rows_, shape_, stream_);
    });
  }

  void attend(int index) {
    const int kind = kindOf(index);
    AttentionTables tables = tables_;
    tables.items = table<AttentionItem>(plan_.upload.items[kind]);
    tables.itemCount = table<int>(plan_.upload.counts) + (kind == 0 ? 0 : 4 + kind);
    model_.withKvLayer(index, [&](auto slots) {
      launchAttention<T>(at_.attended, at_.queries, slots, tables, shape_, model_.attentionBlocks, stream_);
      for (const ReceivedPiece& piece : plan_.received) {
        const AttentionSequence& seen = kind == 0 ? piece.sequence : piece.windowed[kind - 1];
        const size_t first = piece.firstValue + (seen.firstKey - piece.sequence.firstKey);
        launchReceived<T>(result<float>(plan_.results.attention) + first, at_.queries, slots, seen, tables.slots, tables.mask, at_.statistics, shape_,
                          stream_);
      }
    });
  }

  // 0 for a layer without a window, else 1 + the index of its window.
  int kindOf(int layer) const {
    if (traits_.windows.empty() || traits_.windows[layer] == 0) return 0;
    const std::vector<int>& windows = model_.context.limits.windows;
    return 1 + static_cast<int>(std::find(windows.begin(), windows.end(), traits_.windows[layer]) - windows.begin());
  }

  // Continues with only the rows whose outputs are wanted; stores them in the buffers of the joint projection and the queries.
  void keepWanted() {
    const int* pick = table<int>(plan_.upload.lastPick);
    float* residual = reinterpret_cast<float*>(at_.qkv);
    rows_ = plan_.shape.last;
    launchGather<float>(residual, residual_, pick, rows_, shape_.hidden, stream_);
    launchGather<T>(at_.queries, at_.attended, pick, rows_, shape_.queryWidth(), stream_);
    residual_ = residual;
    attended_ = at_.queries;
    const UploadLayout& from = plan_.upload;
    adapted_ = {table<int>(from.counts) + 4, table<LowRankTask>(from.lastTasks), table<int>(from.lastRows)};
  }

  void combine(const LayerWeights<T>& layer, int index) {
    product(layer.output, attended_, at_.delta, shape_.hidden, Epilogue::Store, index, OUTPUT_PLACE);
  }

  void feedForward(const LayerWeights<T>& layer, int index) {
    if (changes(GATE_UP_PLACE)) {
      // The adapters' changes must be added before gate and up are combined.
      normedProduct(layer.gateUp, at_.delta, layer.outputNorm, layer.postNorm, at_.gateUp(), 2 * shape_.intermediate, Epilogue::Store, index,
                    GATE_UP_PLACE, at_.activated);
    } else if (shape_.gelu) {
      normedProduct(layer.gateUp, at_.delta, layer.outputNorm, layer.postNorm, at_.gateUp(), 2 * shape_.intermediate, Epilogue::Store, index,
                    GATE_UP_PLACE);
      launchGeGlu<T>(at_.activated, at_.gateUp(), rows_, shape_.intermediate, stream_);
    } else {
      normedProduct(layer.gateUp, at_.delta, layer.outputNorm, layer.postNorm, at_.activated, shape_.intermediate, Epilogue::SwiGlu, index,
                    GATE_UP_PLACE);
    }
    product(layer.down, at_.activated, at_.delta, shape_.hidden, Epilogue::Store, index, DOWN_PLACE);
  }

  void states() {
    if (plan_.shape.states == 0) return;
    pickNorm(result<float>(plan_.results.states), nullptr, table<int>(plan_.upload.statePick), plan_.shape.states);
  }

  void heads() {
    if (plan_.shape.heads == 0) return;
    const int* pick = table<int>(plan_.upload.headPick);
    pickNorm(nullptr, at_.states, pick, plan_.shape.heads);
    HeadResults to{result<uint32_t>(plan_.results.tokens), result<float>(plan_.results.logProbabilities), result<uint32_t>(plan_.results.drawn)};
    for (int first = 0; first < plan_.shape.heads; first += HEAD_ROWS) {
      const int count = std::min(HEAD_ROWS, plan_.shape.heads - first);
      to.picked = memory_.picked + first;
      launchLogits(model_, at_.states + static_cast<size_t>(first) * shape_.hidden, count, stream_);
      if (plan_.shape.changes)
        launchChange(at_.logits(), table<HeadRow>(plan_.upload.headRows) + first, table<HeadChange>(plan_.upload.changes), table<uint32_t>(0),
                     memory_.pickedBefore, count, shape_.vocabulary, stream_);
      launchTop(to, at_.logits(), table<HeadRow>(plan_.upload.headRows) + first, table<uint32_t>(0), table<Draw>(plan_.upload.draws), count,
                shape_.vocabulary, plan_.shape.topK, at_.headWorkspace, stream_);
    }
  }

  size_t receivedValues() const {
    const ReceivedPiece& last = plan_.received.back();
    return last.firstValue + last.sequence.keys;
  }
  void clearReceived() {
    if (plan_.received.empty()) return;
    CUDA_CALL(cudaMemsetAsync(result<float>(plan_.results.attention), 0, receivedValues() * sizeof(float), stream_));
  }
  void scaleReceived() {
    if (plan_.received.empty()) return;
    launchScale(result<float>(plan_.results.attention), 1.0f / (static_cast<float>(shape_.layers) * shape_.heads), receivedValues(), stream_);
  }

  const DeviceModel<T>& model_;
  const ModelShape& shape_;
  const ModelTraits& traits_;
  const bool plainNorms_;
  const Scratch<T>& at_;
  const StepPlan& plan_;
  const StepMemory memory_;
  int rows_;
  float* residual_;
  const T* attended_;
  cudaStream_t stream_;
  AttentionTables tables_;
  LowRankTables adapted_;
};

}  // namespace

template <typename T>
void launchStep(const DeviceModel<T>& model, const StepPlan& plan, const StepMemory& memory, bool chained, cudaStream_t stream) {
  const LaunchChain chain(chained);
  StepLaunch<T>(model, plan, memory, stream).run();
  checkLaunches();
}

template void launchStep<bf16>(const DeviceModel<bf16>&, const StepPlan&, const StepMemory&, bool, cudaStream_t);
template void launchStep<float>(const DeviceModel<float>&, const StepPlan&, const StepMemory&, bool, cudaStream_t);

}  // namespace pie
