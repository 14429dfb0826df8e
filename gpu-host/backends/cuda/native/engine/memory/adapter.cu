#include "adapter.h"
#include <algorithm>
#include <cstring>
#include <string>
#include "convert.h"
#include "../errors.h"

namespace pie {

namespace {

enum Projection { Q, K, V, O, GATE, UP, DOWN, PROJECTIONS };
constexpr const char* NAMES[] = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"};

int paddedRank(int rank) { return (rank + LOW_RANK_STEP - 1) / LOW_RANK_STEP * LOW_RANK_STEP; }

// Lays out an adapter's matrices; a builder with host memory also fills them.
template <typename T>
class Builder {
 public:
  // `headOrder`: ModelTraits::headOrder.
  Builder(Carver& carver, uint8_t* deviceBase, uint8_t* host, const std::vector<int>& headOrder)
      : carver_(carver), base_(deviceBase), host_(host), headOrder_(headOrder) {}

  // The matrices of one LowRankPlace. `parts`: the adapter's matrices by projection, null for a projection that the adapter does not change.
  LowRankMatrices<T> place(const std::vector<const AdapterMatrices*>& parts, const LowRankProduct& product) {
    LowRankMatrices<T> made{};
    for (const AdapterMatrices* each : parts) made.ranks += each ? paddedRank(each->rank) : 0;
    if (made.ranks == 0) return made;
    T* const down = carver_.take<T>(static_cast<size_t>(made.ranks) * product.inputs);
    made.down = down;
    int from = 0;
    for (size_t i = 0; i < parts.size(); i++) {
      if (!parts[i]) continue;
      const int rank = paddedRank(parts[i]->rank);
      fillRows(down ? down + static_cast<size_t>(from) * product.inputs : nullptr, parts[i]->a, parts[i]->rank, product.inputs, product.inputs);
      T* const up = carver_.take<T>(static_cast<size_t>(product.outputs[i]) * rank);
      const bool isOfHeads = std::strcmp(parts[i]->projection, NAMES[Q]) == 0 || std::strcmp(parts[i]->projection, NAMES[K]) == 0;
      fillRows(up, parts[i]->b, product.outputs[i], parts[i]->rank, rank, isOfHeads ? headOrder_ : std::vector<int>());
      made.ups[i] = {up, from, rank};
      from += rank;
    }
    return made;
  }

  // The address in the host's copy that corresponds to a device address.
  template <typename V>
  V* onHost(V* device) const {
    return reinterpret_cast<V*>(host_ + (reinterpret_cast<uint8_t*>(device) - base_));
  }

 private:
  // `order`: of the rows of each head, or empty.
  void fillRows(T* to, const float* from, int rows, int width, int stride, const std::vector<int>& order = {}) {
    if (!host_) return;
    T* const at = onHost(to);
    const int head = static_cast<int>(order.size());
    for (int row = 0; row < rows; row++) {
      const size_t source = head == 0 ? row : row / head * head + order[row % head];
      convertNumbers(at + static_cast<size_t>(row) * stride, HostTensor::Type::F32, from + source * width, width);
    }
  }

  Carver& carver_;
  uint8_t* base_;
  uint8_t* host_;
  const std::vector<int>& headOrder_;
};

// The projections of one LowRankPlace, in the order of its outputs.
struct PlaceProjections {
  int count;
  Projection all[LOW_RANK_PARTS];
  constexpr const Projection* begin() const { return all; }
  constexpr const Projection* end() const { return all + count; }
};
// Constants without destructors, because a process may exit while a thread that loads an adapter still reads them.
constexpr PlaceProjections PLACES[LOW_RANK_PLACES] = {{3, {Q, K, V}}, {1, {O}}, {2, {GATE, UP}}, {1, {DOWN}}};

template <typename T>
std::vector<LowRankMatrices<T>> build(Builder<T>& builder, const std::vector<std::vector<const AdapterMatrices*>>& layers, const ModelShape& shape) {
  std::vector<LowRankMatrices<T>> built;
  for (size_t layer = 0; layer < layers.size(); layer++)
    for (int place = 0; place < LOW_RANK_PLACES; place++) {
      std::vector<const AdapterMatrices*> parts;
      for (const Projection projection : PLACES[place]) parts.push_back(layers[layer][projection]);
      built.push_back(builder.place(parts, lowRankProduct(static_cast<int>(layer), static_cast<LowRankPlace>(place), shape)));
    }
  return built;
}

int inputsOf(int projection, const ModelShape& shape) {
  return projection == O ? shape.queryWidth() : projection == DOWN ? shape.intermediate : shape.hidden;
}

int outputsOf(int projection, const ModelShape& shape) {
  switch (projection) {
    case Q: return shape.queryWidth();
    case K: case V: return shape.kvWidth();
    case GATE: case UP: return shape.intermediate;
    default: return shape.hidden;
  }
}

std::vector<std::vector<const AdapterMatrices*>> byLayer(const std::vector<AdapterMatrices>& matrices, const ModelShape& shape) {
  std::vector<std::vector<const AdapterMatrices*>> layers(shape.layers, std::vector<const AdapterMatrices*>(PROJECTIONS, nullptr));
  for (const AdapterMatrices& each : matrices) {
    const auto name = std::find_if(NAMES, NAMES + PROJECTIONS, [&](const char* known) { return std::strcmp(known, each.projection) == 0; });
    if (name == NAMES + PROJECTIONS) refuse(std::string("No layer has a projection \"") + each.projection + "\".");
    if (each.layer < 0 || each.layer >= shape.layers) refuse("There is no layer " + std::to_string(each.layer) + ".");
    if (each.rank < 1 || !each.a || !each.b)
      refuse(std::string("The matrices of ") + each.projection + " are incomplete: they need a rank of at least 1, A and B.");
    const int inputs = inputsOf(static_cast<int>(name - NAMES), shape), outputs = outputsOf(static_cast<int>(name - NAMES), shape);
    if (each.inputs != inputs || each.outputs != outputs)
      refuse(std::string("The matrices of ") + each.projection + " are for " + std::to_string(each.inputs) + " inputs and " +
             std::to_string(each.outputs) + " outputs; the model has " + std::to_string(inputs) + " and " + std::to_string(outputs) + ".");
    const AdapterMatrices*& slot = layers[each.layer][name - NAMES];
    if (slot) refuse(std::string("The matrices of ") + each.projection + " of layer " + std::to_string(each.layer) + " are given twice.");
    slot = &each;
  }
  return layers;
}

}  // namespace

LowRankProduct lowRankProduct(int layer, LowRankPlace place, const ModelShape& shape) {
  LowRankProduct product{};
  product.matrices = layer * LOW_RANK_PLACES + place;
  product.inputs = inputsOf(PLACES[place].all[0], shape);
  for (const Projection projection : PLACES[place]) product.outputs[product.parts++] = outputsOf(projection, shape);
  product.alternating = place == GATE_UP_PLACE;
  product.gelu = shape.gelu;
  return product;
}

template <typename T>
DeviceAdapter<T>::DeviceAdapter(const std::vector<AdapterMatrices>& matrices, const ModelShape& shape, const std::vector<int>& headOrder, int maxRows,
                                std::shared_ptr<AdapterLedger> ledger, size_t room, const Stream& stream)
    : ledger_(std::move(ledger)) {
  const auto layers = byLayer(matrices, shape);
  const size_t count = layers.size() * LOW_RANK_PLACES;
  Carver sizes;
  sizes.take<LowRankMatrices<T>>(count);
  Builder<T> measuring(sizes, nullptr, nullptr, headOrder);
  int widest = 0;
  const std::vector<LowRankMatrices<T>> measured = build<T>(measuring, layers, shape);
  for (size_t i = 0; i < count; i++) {
    const auto place = static_cast<LowRankPlace>(i % LOW_RANK_PLACES);
    widest = std::max(widest, measured[i].ranks * lowRankSplits(lowRankProduct(0, place, shape).inputs));
    if (measured[i].ranks > 0) places_ |= 1u << (i % LOW_RANK_PLACES);
  }
  const size_t matrixBytes = sizes.bytes();
  sizes.take<float>(static_cast<size_t>(maxRows) * widest);
  if (sizes.bytes() > room)
    throw EngineError("out-of-memory", "An adapter of " + std::to_string(sizes.bytes()) + " bytes does not fit; the engine may take " +
                                           std::to_string(room) + " more.");
  block_ = DeviceBlock(sizes.bytes(), "an adapter");
  std::vector<uint8_t> host(matrixBytes);
  uint8_t* base = static_cast<uint8_t*>(block_.get());
  Carver carver(base);
  LowRankMatrices<T>* const table = carver.take<LowRankMatrices<T>>(count);
  Builder<T> builder(carver, base, host.data(), headOrder);
  std::vector<LowRankMatrices<T>> built = build<T>(builder, layers, shape);
  float* const low = carver.take<float>(static_cast<size_t>(maxRows) * widest);
  for (LowRankMatrices<T>& each : built) each.low = low;
  std::copy(built.begin(), built.end(), builder.onHost(table));
  matrices_ = table;
  CUDA_CALL(cudaMemcpyAsync(base, host.data(), matrixBytes, cudaMemcpyHostToDevice, stream));
  stream.synchronize();
  const std::lock_guard<std::mutex> lock(ledger_->mutex);
  ledger_->bytes += block_.bytes();
}

template <typename T>
DeviceAdapter<T>::~DeviceAdapter() {
  const std::lock_guard<std::mutex> lock(ledger_->mutex);
  ledger_->bytes -= block_.bytes();
}

template class DeviceAdapter<bf16>;
template class DeviceAdapter<float>;

}  // namespace pie
