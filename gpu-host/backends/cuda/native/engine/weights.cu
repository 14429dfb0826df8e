#include "weights.h"
#include <algorithm>
#include <string>
#include <type_traits>
#include "convert.h"

namespace pie {

namespace {

// Large enough that the bus is busy, small enough to stay in a processor's cache while it is converted.
constexpr size_t STAGING_BYTES = size_t{4} << 20;

// Numbers on their way to consecutive places on the device: converted into one pinned buffer while the other is copied. Those of a narrow matrix are copied
// to `work`, some rows at a time, and made narrow from there.
template <typename T>
class Stager {
 public:
  Stager(const Stream& stream, void* work, size_t workBytes) : stream_(stream), work_(static_cast<T*>(work)), workValues_(workBytes / sizeof(T)) {
    for (auto& half : halves_) half.block = PinnedBlock(STAGING_BYTES);
  }
  // A source that throws half way leaves copies under way.
  ~Stager() { (void)cudaStreamSynchronize(stream_); }

  void begin(const T* destination) {
    flush();
    destination_ = const_cast<T*>(destination);
    narrow_ = {};
  }
  void begin(const Product<T>& product) {
    begin(product.isNarrow ? work_ : product.plain.weight);
    if (product.isNarrow) narrow_ = product.narrow;
    rowsLeft_ = product.outputs();
  }
  void put(HostTensor::Type type, const void* from, size_t count) {
    const uint8_t* next = static_cast<const uint8_t*>(from);
    while (count > 0) {
      if (filled_ == CAPACITY) flush();
      size_t some = std::min(count, CAPACITY - filled_);
      if (narrow_.weight) some = std::min(some, workCapacity() - waiting_ - filled_);
      convertNumbers(buffer() + filled_, type, next, some);
      filled_ += some;
      next += some * elementBytes(type);
      count -= some;
      if (narrow_.weight) quantiseFull();
    }
  }
  void end() {
    flush();
    stream_.synchronize();
  }

 private:
  static constexpr size_t CAPACITY = STAGING_BYTES / sizeof(T);
  struct Half {
    PinnedBlock block;
    Event copied;
  };
  T* buffer() { return reinterpret_cast<T*>(halves_[current_].block.get()); }

  void flush() {
    if (filled_ == 0) return;
    CUDA_CALL(cudaMemcpyAsync(destination_, buffer(), filled_ * sizeof(T), cudaMemcpyHostToDevice, stream_));
    halves_[current_].copied.record(stream_);
    destination_ += filled_;
    if (narrow_.weight) waiting_ += filled_;
    filled_ = 0;
    current_ = 1 - current_;
    halves_[current_].copied.synchronize();
  }

  // Whole rows that `work` holds.
  size_t workCapacity() const {
    const size_t inputs = narrow_.inputs;
    return std::min<size_t>(workValues_ / inputs, rowsLeft_) * inputs;
  }
  // When all rows that fit are in `work`, or on their way there.
  void quantiseFull() {
    if (waiting_ + filled_ < workCapacity()) return;
    flush();
    const int rows = static_cast<int>(waiting_ / narrow_.inputs);
    if constexpr (std::is_same_v<T, bf16>)
      launchQuantise(const_cast<int8_t*>(narrow_.weight), const_cast<float*>(narrow_.scales), work_, rows, narrow_.inputs, stream_);
    checkLaunches();
    narrow_.weight += waiting_;
    narrow_.scales += rows;
    rowsLeft_ -= rows;
    destination_ = work_;
    waiting_ = 0;
  }

  const Stream& stream_;
  T* const work_;
  const size_t workValues_;
  Half halves_[2];
  int current_ = 0;
  size_t filled_ = 0;
  T* destination_ = nullptr;
  LinearInt8 narrow_;   // What is left of the narrow matrix that is being filled.
  int rowsLeft_ = 0;
  size_t waiting_ = 0;  // Values in `work`.
};

template <typename T>
Product<T> layProduct(Carver& carver, int outputs, int inputs, const EngineOptions& options, bool bias = false) {
  Product<T> product;
  product.plain.outputs = product.narrow.outputs = outputs;
  product.plain.inputs = product.narrow.inputs = inputs;
  product.isNarrow = std::is_same_v<T, bf16> && options.precision == Precision::Int8 && inputs % 16 == 0;
  const size_t values = static_cast<size_t>(outputs) * inputs;
  if (product.isNarrow) {
    product.narrow.weight = carver.take<int8_t>(values);
    product.narrow.scales = carver.take<float>(outputs);
  } else {
    product.plain.weight = carver.take<T>(values);
  }
  if (bias) product.plain.bias = carver.take<T>(outputs);
  if constexpr (std::is_same_v<T, bf16>) product.narrow.bias = product.plain.bias;
  return product;
}

// Reads tensors of known sizes.
template <typename T>
class Reader {
 public:
  Reader(const WeightSource& source, Stager<T>& stager) : source_(source), stager_(stager) {}

  HostTensor get(const std::string& name, size_t count) const {
    const HostTensor tensor = source_(name);
    if (!tensor.data || tensor.count != count)
      throw EngineError("invalid", "\"" + name + "\" has " + std::to_string(tensor.data ? tensor.count : 0) + " values; the shape says " +
                                       std::to_string(count) + ".");
    return tensor;
  }
  void whole(const T* to, const std::string& name, size_t count) const {
    const HostTensor tensor = get(name, count);
    stager_.begin(to);
    stager_.put(tensor.type, tensor.data, count);
  }
  void whole(const Product<T>& to, const std::string& name) const { under(to, {{name, static_cast<size_t>(to.outputs()) * to.inputs()}}); }
  template <typename To>
  void under(const To& to, const std::vector<std::pair<std::string, size_t>>& parts) const {
    stager_.begin(to);
    for (const auto& [name, count] : parts) {
      const HostTensor tensor = get(name, count);
      stager_.put(tensor.type, tensor.data, count);
    }
  }
  // Rows of two matrices in turn.
  void inTurn(const Product<T>& to, const std::string& first, const std::string& second, int rows, int width) const {
    const HostTensor tensors[] = {get(first, static_cast<size_t>(rows) * width), get(second, static_cast<size_t>(rows) * width)};
    stager_.begin(to);
    for (size_t row = 0; row < static_cast<size_t>(rows); row++)
      for (const HostTensor& tensor : tensors)
        stager_.put(tensor.type, static_cast<const uint8_t*>(tensor.data) + row * width * elementBytes(tensor.type), width);
  }

 private:
  const WeightSource& source_;
  Stager<T>& stager_;
};

}  // namespace

template <typename T>
void launchProduct(const Product<T>& product, const T* x, void* y, size_t yStride, int rows, Epilogue epilogue, const LinearContext& context,
                   cudaStream_t stream) {
  if constexpr (std::is_same_v<T, bf16>) {
    if (product.isNarrow) {
      launchLinear(product.narrow, x, product.inputs(), y, yStride, rows, epilogue, context, stream);
      return;
    }
  }
  launchLinear<T>(product.plain, x, product.inputs(), y, yStride, rows, epilogue, context, stream);
}

size_t widestRowBytes(const ModelShape& shape, size_t valueBytes) {
  return static_cast<size_t>(std::max({shape.hidden, shape.queryWidth(), shape.intermediate})) * valueBytes;
}

template <typename T>
Weights<T> layWeights(Carver& carver, const EngineOptions& options) {
  const ModelShape& shape = options.shape;
  Weights<T> weights;
  weights.embeddings = carver.take<T>(static_cast<size_t>(shape.vocabulary) * shape.hidden);
  for (int i = 0; i < shape.layers; i++) {
    LayerWeights<T> layer;
    layer.inputNorm = carver.take<T>(shape.hidden);
    layer.qkv = layProduct<T>(carver, shape.qkvWidth(), shape.hidden, options, options.attentionBias);
    if (options.queryKeyNorm) {
      layer.queryNorm = carver.take<T>(shape.headDim);
      layer.keyNorm = carver.take<T>(shape.headDim);
    }
    layer.output = layProduct<T>(carver, shape.hidden, shape.queryWidth(), options);
    layer.postNorm = carver.take<T>(shape.hidden);
    layer.gateUp = layProduct<T>(carver, 2 * shape.intermediate, shape.hidden, options);
    layer.down = layProduct<T>(carver, shape.hidden, shape.intermediate, options);
    weights.layers.push_back(layer);
  }
  weights.norm = carver.take<T>(shape.hidden);
  Carver nowhere;
  if (options.tiedEmbeddings && !layProduct<T>(nowhere, shape.vocabulary, shape.hidden, options).isNarrow)
    weights.head.plain = {weights.embeddings, nullptr, shape.vocabulary, shape.hidden};
  else
    weights.head = layProduct<T>(carver, shape.vocabulary, shape.hidden, options);
  return weights;
}

template <typename T>
void loadWeights(const Weights<T>& weights, const EngineOptions& options, const WeightSource& source, void* work, size_t workBytes, const Stream& stream) {
  const ModelShape& shape = options.shape;
  const size_t hidden = shape.hidden, queries = shape.queryWidth(), keys = shape.kvWidth();
  Stager<T> stager(stream, work, workBytes);
  const Reader<T> reader(source, stager);
  reader.whole(weights.embeddings, "model.embed_tokens.weight", shape.vocabulary * hidden);
  for (int i = 0; i < shape.layers; i++) {
    const LayerWeights<T>& layer = weights.layers[i];
    const std::string prefix = "model.layers." + std::to_string(i), attention = prefix + ".self_attn.", feedForward = prefix + ".mlp.";
    reader.whole(layer.inputNorm, prefix + ".input_layernorm.weight", hidden);
    reader.under(layer.qkv, {{attention + "q_proj.weight", queries * hidden},
                                    {attention + "k_proj.weight", keys * hidden},
                                    {attention + "v_proj.weight", keys * hidden}});
    if (options.attentionBias)
      reader.under(layer.qkv.plain.bias, {{attention + "q_proj.bias", queries}, {attention + "k_proj.bias", keys}, {attention + "v_proj.bias", keys}});
    if (options.queryKeyNorm) {
      reader.whole(layer.queryNorm, attention + "q_norm.weight", shape.headDim);
      reader.whole(layer.keyNorm, attention + "k_norm.weight", shape.headDim);
    }
    reader.whole(layer.output, attention + "o_proj.weight");
    reader.whole(layer.postNorm, prefix + ".post_attention_layernorm.weight", hidden);
    reader.inTurn(layer.gateUp, feedForward + "gate_proj.weight", feedForward + "up_proj.weight", shape.intermediate, shape.hidden);
    reader.whole(layer.down, feedForward + "down_proj.weight");
  }
  reader.whole(weights.norm, "model.norm.weight", hidden);
  const std::string head = options.tiedEmbeddings ? "model.embed_tokens.weight" : "lm_head.weight";
  if (weights.head.plain.weight != weights.embeddings) reader.whole(weights.head, head);
  stager.end();
}

template Weights<bf16> layWeights<bf16>(Carver&, const EngineOptions&);
template Weights<float> layWeights<float>(Carver&, const EngineOptions&);
template void launchProduct<bf16>(const Product<bf16>&, const bf16*, void*, size_t, int, Epilogue, const LinearContext&, cudaStream_t);
template void launchProduct<float>(const Product<float>&, const float*, void*, size_t, int, Epilogue, const LinearContext&, cudaStream_t);
template void loadWeights<bf16>(const Weights<bf16>&, const EngineOptions&, const WeightSource&, void*, size_t, const Stream&);
template void loadWeights<float>(const Weights<float>&, const EngineOptions&, const WeightSource&, void*, size_t, const Stream&);

}  // namespace pie
