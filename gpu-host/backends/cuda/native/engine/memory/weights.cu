#include "weights.h"
#include <algorithm>
#include <optional>
#include <string>
#include <type_traits>
#include "convert.h"

namespace pie {

namespace {

// Large enough to keep the bus busy, small enough to stay in a processor's cache during conversion.
constexpr size_t STAGING_BYTES = size_t{4} << 20;

// Converts numbers and copies them to consecutive device addresses. One of two pinned buffers is filled while the other is being copied. Values of a
// quantised matrix are copied to `work`, some rows at a time, and quantised from there.
template <typename T>
class Stager {
 public:
  Stager(const Stream& stream, void* work, size_t workBytes) : stream_(stream), work_(static_cast<T*>(work)), workValues_(workBytes / sizeof(T)) {
    for (auto& half : halves_) half.block = PinnedBlock(STAGING_BYTES);
  }
  // Copies may still be in flight if the source throws half way.
  ~Stager() { (void)cudaStreamSynchronize(stream_); }

  void begin(const T* destination) {
    flush();
    destination_ = const_cast<T*>(destination);
    isNarrow_ = false;
  }
  void begin(const Product<T>& product) {
    begin(product.isNarrow ? work_ : product.plain.weight);
    isNarrow_ = product.isNarrow;
    narrow_ = product.narrow;
    rowsDone_ = 0;
  }
  void put(HostTensor::Type type, const void* from, size_t count) {
    const uint8_t* next = static_cast<const uint8_t*>(from);
    while (count > 0) {
      if (filled_ == CAPACITY) flush();
      size_t some = std::min(count, CAPACITY - filled_);
      if (isNarrow_) some = std::min(some, workCapacity() - waiting_ - filled_);
      convertNumbers(buffer() + filled_, type, next, some);
      filled_ += some;
      next += some * elementBytes(type);
      count -= some;
      if (isNarrow_) quantiseFull();
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
    if (isNarrow_) waiting_ += filled_;
    filled_ = 0;
    current_ = 1 - current_;
    halves_[current_].copied.synchronize();
  }

  // Capacity of `work` in whole rows, as a number of values.
  size_t workCapacity() const {
    const size_t inputs = narrow_.inputs;
    return std::min<size_t>(workValues_ / inputs, narrow_.outputs - rowsDone_) * inputs;
  }
  // Quantises once the values in `work` and those in the buffer, which are copied first, fill `work`.
  void quantiseFull() {
    if (waiting_ + filled_ < workCapacity()) return;
    flush();
    const int rows = static_cast<int>(waiting_ / narrow_.inputs);
    if constexpr (std::is_same_v<T, bf16>) launchQuantise(narrow_, work_, rowsDone_, rows, stream_);
    checkLaunches();
    rowsDone_ += rows;
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
  bool isNarrow_ = false;
  LinearNarrow narrow_;  // The quantised matrix that is being filled.
  int rowsDone_ = 0;
  size_t waiting_ = 0;  // Values in `work`.
};

// The format to which a matrix is quantised; none: the matrix stays T. The head never has 4 bits, because its errors go into the
// logits directly and no later layer averages them out.
std::optional<WeightFormat> formatOf(Precision precision, int inputs, bool isHead) {
  const auto taken = [&](WeightFormat format) { return narrowTakes(format, inputs) ? std::optional(format) : std::nullopt; };
  switch (precision) {
    case Precision::Int8: return taken(WeightFormat::Int8);
    case Precision::Fp8: return taken(WeightFormat::Float8);
    case Precision::Int4: return !isHead && narrowTakes(WeightFormat::Int4, inputs) ? WeightFormat::Int4 : taken(WeightFormat::Int8);
    default: return std::nullopt;
  }
}

template <typename T>
Product<T> layProduct(Carver& carver, int outputs, int inputs, const EngineOptions& options, bool bias = false, bool isHead = false) {
  Product<T> product;
  product.plain.outputs = product.narrow.outputs = outputs;
  product.plain.inputs = product.narrow.inputs = inputs;
  const std::optional<WeightFormat> format = formatOf(options.precision, inputs, isHead);
  product.isNarrow = format.has_value();
  if (format) {
    product.narrow.format = *format;
    product.narrow.weight = carver.take<uint8_t>(narrowWeightBytes(*format, outputs, inputs));
    if (*format == WeightFormat::Int4)
      product.narrow.groupScales = carver.take<bf16>(narrowGroupScales(outputs, inputs));
    else
      product.narrow.scales = carver.take<float>(outputs);
  } else {
    product.plain.weight = carver.take<T>(static_cast<size_t>(outputs) * inputs);
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
  void whole(const Product<T>& to, const std::string& name) const {
    const size_t count = static_cast<size_t>(to.outputs()) * to.inputs();
    const HostTensor tensor = get(name, count);
    stager_.begin(to);
    stager_.put(tensor.type, tensor.data, count);
  }
  // A part of a stacked tensor: `rows` rows of `width` values, those of each head in `order`, unless it is empty.
  struct Heads {
    std::string name;
    size_t rows, width;
    const std::vector<int>& order;
  };
  template <typename To>
  void heads(const To& to, const std::vector<Heads>& parts) const {
    stager_.begin(to);
    for (const auto& [name, rows, width, order] : parts) {
      const HostTensor tensor = get(name, rows * width);
      if (order.empty()) {
        stager_.put(tensor.type, tensor.data, rows * width);
        continue;
      }
      const size_t head = order.size(), rowBytes = width * elementBytes(tensor.type);
      for (size_t row = 0; row < rows; row++)
        stager_.put(tensor.type, static_cast<const uint8_t*>(tensor.data) + (row / head * head + order[row % head]) * rowBytes, width);
    }
  }
  // Interleaves the rows of two matrices.
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
  const ModelTraits& traits = options.traits;
  const bool before = traits.norms != ModelTraits::Norms::After, after = traits.norms != ModelTraits::Norms::Before;
  Weights<T> weights;
  weights.embeddings = carver.take<T>(static_cast<size_t>(shape.vocabulary) * shape.hidden);
  for (int i = 0; i < shape.layers; i++) {
    LayerWeights<T> layer;
    if (before) layer.inputNorm = carver.take<T>(shape.hidden);
    layer.qkv = layProduct<T>(carver, shape.qkvWidth(), shape.hidden, options, options.attentionBias);
    if (options.queryKeyNorm) {
      layer.queryNorm = carver.take<T>(traits.rowNorms ? shape.queryWidth() : shape.headDim);
      layer.keyNorm = carver.take<T>(traits.rowNorms ? shape.kvWidth() : shape.headDim);
    }
    layer.output = layProduct<T>(carver, shape.hidden, shape.queryWidth(), options, traits.outputBias);
    if (after) layer.outputNorm = carver.take<T>(shape.hidden);
    if (before) layer.postNorm = carver.take<T>(shape.hidden);
    layer.gateUp = layProduct<T>(carver, 2 * shape.intermediate, shape.hidden, options);
    layer.down = layProduct<T>(carver, shape.hidden, shape.intermediate, options);
    if (after) layer.downNorm = carver.take<T>(shape.hidden);
    weights.layers.push_back(layer);
  }
  weights.norm = carver.take<T>(shape.hidden);
  if (options.tiedEmbeddings && !formatOf(options.precision, shape.hidden, true))
    weights.head.plain = {weights.embeddings, nullptr, shape.vocabulary, shape.hidden};
  else
    weights.head = layProduct<T>(carver, shape.vocabulary, shape.hidden, options, false, true);
  return weights;
}

template <typename T>
void loadWeights(const Weights<T>& weights, const EngineOptions& options, const WeightSource& source, void* work, size_t workBytes,
                 const Stream& stream) {
  const ModelShape& shape = options.shape;
  const ModelTraits& traits = options.traits;
  const std::vector<int>&order = traits.headOrder, unordered = {};
  const size_t hidden = shape.hidden, queries = shape.queryWidth(), keys = shape.kvWidth();
  Stager<T> stager(stream, work, workBytes);
  const Reader<T> reader(source, stager);
  reader.whole(weights.embeddings, "model.embed_tokens.weight", shape.vocabulary * hidden);
  for (int i = 0; i < shape.layers; i++) {
    const LayerWeights<T>& layer = weights.layers[i];
    const std::string prefix = "model.layers." + std::to_string(i), attention = prefix + ".self_attn.", feedForward = prefix + ".mlp.";
    if (layer.inputNorm) reader.whole(layer.inputNorm, prefix + ".input_layernorm.weight", hidden);
    reader.heads(layer.qkv, {{attention + "q_proj.weight", queries, hidden, order},
                             {attention + "k_proj.weight", keys, hidden, order},
                             {attention + "v_proj.weight", keys, hidden, unordered}});
    if (options.attentionBias)
      reader.heads(layer.qkv.plain.bias,
                   {{attention + "q_proj.bias", queries, 1, order}, {attention + "k_proj.bias", keys, 1, order}, {attention + "v_proj.bias", keys, 1, unordered}});
    if (options.queryKeyNorm) {
      const size_t head = shape.headDim;
      reader.heads(layer.queryNorm, {{attention + "q_norm.weight", traits.rowNorms ? queries : head, 1, order}});
      reader.heads(layer.keyNorm, {{attention + "k_norm.weight", traits.rowNorms ? keys : head, 1, order}});
    }
    reader.whole(layer.output, attention + "o_proj.weight");
    if (traits.outputBias) reader.whole(layer.output.plain.bias, attention + "o_proj.bias", hidden);
    if (layer.outputNorm) reader.whole(layer.outputNorm, attention + "output_norm.weight", hidden);
    // Models with norms on both sides of blocks have another name for the norm before the feed-forward network.
    const bool isAround = traits.norms == ModelTraits::Norms::Around;
    if (layer.postNorm) reader.whole(layer.postNorm, isAround ? feedForward + "input_norm.weight" : prefix + ".post_attention_layernorm.weight", hidden);
    reader.inTurn(layer.gateUp, feedForward + "gate_proj.weight", feedForward + "up_proj.weight", shape.intermediate, shape.hidden);
    reader.whole(layer.down, feedForward + "down_proj.weight");
    if (layer.downNorm) reader.whole(layer.downNorm, feedForward + "output_norm.weight", hidden);
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
