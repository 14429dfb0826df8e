#include "adapter.h"
#include <algorithm>
#include <cstring>
#include <string>
#include "convert.h"
#include "errors.h"

namespace pie {

namespace {

enum Projection { Q, K, V, O, GATE, UP, DOWN, PROJECTIONS };
constexpr const char* NAMES[] = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"};

// The fast products need inputs that are multiples of 8, so ranks are padded with zeros, which do not change the result.
int paddedRank(int rank) { return (rank + 7) / 8 * 8; }

int rankOf(const AdapterMatrices* matrices) { return matrices ? paddedRank(matrices->rank) : 0; }

// Lays out a layer's matrices and, if it has host memory, fills them.
template <typename T>
class Builder {
 public:
  Builder(Carver& carver, uint8_t* deviceBase, uint8_t* host) : carver_(carver), base_(deviceBase), host_(host) {}

  // Projections that share an input and whose outputs are adjacent: q, k and v, or a single projection.
  LowRank<T> beside(const std::vector<const AdapterMatrices*>& all, const std::vector<int>& outputs, int inputs) {
    LowRank<T> change;
    change.down = stacked(all, inputs);
    int from = 0, to = 0;
    for (size_t i = 0; i < all.size(); to += outputs[i++]) {
      if (!all[i]) continue;
      const int rank = rankOf(all[i]);
      T* b = carver_.take<T>(static_cast<size_t>(outputs[i]) * rank);
      fillRows(b, all[i]->b, outputs[i], all[i]->rank, rank);
      change.ups.push_back({{b, nullptr, outputs[i], rank}, from, to});
      from += rank;
    }
    return change;
  }

  // Gate and up, whose outputs alternate: a single B with alternating rows; each row is zero in the other projection's part of `low`.
  LowRank<T> inTurn(const AdapterMatrices* gate, const AdapterMatrices* up, int outputs, int inputs) {
    LowRank<T> change;
    if (!gate && !up) return change;
    change.down = stacked({gate, up}, inputs);
    const int width = change.down.outputs;
    T* b = carver_.take<T>(static_cast<size_t>(2) * outputs * width);
    if (gate) fillRows(b, gate->b, outputs, gate->rank, 2 * width);
    if (up) fillRows(b ? b + width + rankOf(gate) : b, up->b, outputs, up->rank, 2 * width);
    change.ups.push_back({{b, nullptr, 2 * outputs, width}, 0, 0});
    return change;
  }

 private:
  Linear<T> stacked(const std::vector<const AdapterMatrices*>& all, int inputs) {
    int ranks = 0;
    for (const AdapterMatrices* each : all) ranks += rankOf(each);
    T* a = carver_.take<T>(static_cast<size_t>(ranks) * inputs);
    size_t row = 0;
    for (const AdapterMatrices* each : all) {
      if (each) fillRows(a ? a + row * inputs : a, each->a, each->rank, inputs, inputs);
      row += rankOf(each);
    }
    return {a, nullptr, ranks, inputs};
  }
  void fillRows(T* to, const float* from, int rows, int width, int stride) {
    if (!host_) return;
    T* at = reinterpret_cast<T*>(host_ + (reinterpret_cast<uint8_t*>(to) - base_));
    for (int row = 0; row < rows; row++)
      convertNumbers(at + static_cast<size_t>(row) * stride, HostTensor::Type::F32, from + static_cast<size_t>(row) * width, width);
  }

  Carver& carver_;
  uint8_t* base_;
  uint8_t* host_;
};

template <typename T>
std::vector<AdapterLayer<T>> build(Carver& carver, uint8_t* base, uint8_t* host, const std::vector<std::vector<const AdapterMatrices*>>& layers,
                                   const ModelShape& shape, int& widest) {
  Builder<T> builder(carver, base, host);
  std::vector<AdapterLayer<T>> built;
  for (const auto& each : layers) {
    AdapterLayer<T> layer;
    layer.qkv = builder.beside({each[Q], each[K], each[V]}, {shape.queryWidth(), shape.kvWidth(), shape.kvWidth()}, shape.hidden);
    layer.output = builder.beside({each[O]}, {shape.hidden}, shape.queryWidth());
    layer.gateUp = builder.inTurn(each[GATE], each[UP], shape.intermediate, shape.hidden);
    layer.down = builder.beside({each[DOWN]}, {shape.hidden}, shape.intermediate);
    for (const LowRank<T>* change : {&layer.qkv, &layer.output, &layer.gateUp, &layer.down}) widest = std::max(widest, change->down.outputs);
    built.push_back(std::move(layer));
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
      refuse(std::string("The matrices of ") + each.projection + " are for " + std::to_string(each.inputs) + " inputs and " + std::to_string(each.outputs) +
             " outputs; the model has " + std::to_string(inputs) + " and " + std::to_string(outputs) + ".");
    const AdapterMatrices*& place = layers[each.layer][name - NAMES];
    if (place) refuse(std::string("The matrices of ") + each.projection + " of layer " + std::to_string(each.layer) + " are given twice.");
    place = &each;
  }
  return layers;
}

}  // namespace

template <typename T>
DeviceAdapter<T>::DeviceAdapter(const std::vector<AdapterMatrices>& matrices, const ModelShape& shape, int maxRows, uint64_t id,
                                std::shared_ptr<AdapterLedger> ledger, size_t room, const Stream& stream)
    : id_(id), ledger_(std::move(ledger)) {
  const auto layers = byLayer(matrices, shape);
  Carver sizes;
  int widest = 0;
  build<T>(sizes, nullptr, nullptr, layers, shape, widest);
  const size_t matrixBytes = sizes.bytes();
  sizes.take<T>(static_cast<size_t>(maxRows) * widest);
  if (sizes.bytes() > room)
    throw EngineError("out-of-memory", "An adapter of " + std::to_string(sizes.bytes()) + " bytes does not fit; the engine may take " +
                                           std::to_string(room) + " more.");
  block_ = DeviceBlock(sizes.bytes(), "an adapter");
  std::vector<uint8_t> host(matrixBytes);
  uint8_t* base = static_cast<uint8_t*>(block_.get());
  Carver carver(base);
  layers_ = build<T>(carver, base, host.data(), layers, shape, widest);
  low_ = carver.take<T>(static_cast<size_t>(maxRows) * widest);
  if (matrixBytes > 0) CUDA_CALL(cudaMemcpyAsync(base, host.data(), matrixBytes, cudaMemcpyHostToDevice, stream));
  stream.synchronize();
  const std::lock_guard<std::mutex> lock(ledger_->mutex);
  ledger_->bytes += block_.bytes();
}

template <typename T>
DeviceAdapter<T>::~DeviceAdapter() {
  const std::lock_guard<std::mutex> lock(ledger_->mutex);
  ledger_->bytes -= block_.bytes();
  ledger_->gone.push_back(id_);
}

template class DeviceAdapter<bf16>;
template class DeviceAdapter<float>;

}  // namespace pie
