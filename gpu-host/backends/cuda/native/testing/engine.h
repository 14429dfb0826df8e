// Test helpers of the engine: tiny random models, calls that own their arrays, and a plain forward pass in double.
#pragma once
#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>
#include "kv.h"
#include "test.h"
#include "../engine/engine.h"

namespace pie {

using Tensors = std::map<std::string, std::vector<float>>;

struct TinyModel {
  EngineOptions options;
  Tensors tensors;

  WeightSource source() const {
    return [this](const std::string& name) {
      const std::vector<float>& values = tensors.at(name);
      return HostTensor{HostTensor::Type::F32, values.data(), values.size()};
    };
  }
};

struct Variant {
  bool bias = false, norms = false, tied = false;
  int heads = 4, kvHeads = 2, headDim = 8, hidden = 32, intermediate = 40, vocabulary = 61, layers = 2;
};

inline TinyModel tinyModel(uint64_t seed, const Variant& variant = {}) {
  testing::Random random(seed);
  TinyModel model;
  EngineOptions& options = model.options;
  ModelShape& shape = options.shape;
  shape.hidden = variant.hidden;
  shape.intermediate = variant.intermediate;
  shape.layers = variant.layers;
  shape.heads = variant.heads;
  shape.kvHeads = variant.kvHeads;
  shape.headDim = variant.headDim;
  shape.vocabulary = variant.vocabulary;
  shape.rmsEpsilon = 1e-5f;
  options.tiedEmbeddings = variant.tied;
  options.attentionBias = variant.bias;
  options.queryKeyNorm = variant.norms;
  for (int i = 0; i < shape.headDim / 2; i++) options.frequencies.push_back(std::pow(10000.0, -2.0 * i / shape.headDim));
  options.pageSize = 8;
  options.pageCount = 24;
  options.maxRows = 64;
  options.maxSequences = 16;
  options.precision = Precision::Float32;
  options.cublas = false;
  const auto matrix = [&](const std::string& name, int rows, int columns) {
    model.tensors[name] = random.normals<float>(static_cast<size_t>(rows) * columns, 1.5 / std::sqrt(columns));
  };
  const auto norm = [&](const std::string& name, int width) {
    std::vector<float>& values = model.tensors[name] = random.normals<float>(width, 0.1);
    for (float& value : values) value += 1;
  };
  matrix("model.embed_tokens.weight", shape.vocabulary, shape.hidden);
  for (float& value : model.tensors["model.embed_tokens.weight"]) value *= 3;
  for (int i = 0; i < shape.layers; i++) {
    const std::string prefix = "model.layers." + std::to_string(i);
    norm(prefix + ".input_layernorm.weight", shape.hidden);
    norm(prefix + ".post_attention_layernorm.weight", shape.hidden);
    const std::pair<std::string, int> projections[] = {{"q", shape.queryWidth()}, {"k", shape.kvWidth()}, {"v", shape.kvWidth()}};
    for (const auto& [name, rows] : projections) {
      matrix(prefix + ".self_attn." + name + "_proj.weight", rows, shape.hidden);
      if (variant.bias) model.tensors[prefix + ".self_attn." + name + "_proj.bias"] = random.normals<float>(rows, 0.5);
    }
    if (variant.norms) {
      norm(prefix + ".self_attn.q_norm.weight", shape.headDim);
      norm(prefix + ".self_attn.k_norm.weight", shape.headDim);
    }
    matrix(prefix + ".self_attn.o_proj.weight", shape.hidden, shape.queryWidth());
    matrix(prefix + ".mlp.gate_proj.weight", shape.intermediate, shape.hidden);
    matrix(prefix + ".mlp.up_proj.weight", shape.intermediate, shape.hidden);
    matrix(prefix + ".mlp.down_proj.weight", shape.hidden, shape.intermediate);
  }
  norm("model.norm.weight", shape.hidden);
  if (!variant.tied) matrix("lm_head.weight", shape.vocabulary, shape.hidden);
  return model;
}

// A sequence that owns its arrays; empty arrays become null pointers.
struct Call {
  std::vector<uint32_t> tokens;
  std::vector<float> embeds;
  std::vector<uint32_t> picked, positions, context, writes, allowed;
  std::vector<uint8_t> mask;
  std::vector<Draw> draws;
  std::vector<uint32_t> changeTokens;
  std::vector<float> changeValues;
  float frequency = 0, presence = 0;
  bool changed = false;
  int outputRows = 0, topK = 0;
  int table = -1, known = 0;
  bool states = false, attention = false;
  const Adapter* adapter = nullptr;

  int rows() const { return static_cast<int>(positions.size()); }
  int keys() const { return static_cast<int>(context.size()) + rows(); }
  bool sees(int row, int key) const { return mask.empty() ? key <= static_cast<int>(context.size()) + row : mask[row * keys() + key] != 0; }
  Sequence view() const {
    Sequence s;
    s.rows = rows();
    s.tokens = tokens.empty() ? nullptr : tokens.data();
    s.embeds = embeds.empty() ? nullptr : embeds.data();
    s.picked = picked.empty() ? nullptr : picked.data();
    s.positions = positions.data();
    s.contextCount = static_cast<int>(context.size());
    s.context = s.contextCount == known ? nullptr : context.data() + known;
    s.table = table;
    s.known = known;
    s.mask = mask.empty() ? nullptr : mask.data();
    s.writes = writes.empty() ? nullptr : writes.data();
    s.outputRows = outputRows;
    s.topK = topK;
    s.states = states;
    s.attention = attention;
    s.allowed = allowed.empty() ? nullptr : allowed.data();
    s.draws = draws.empty() ? nullptr : draws.data();
    s.adapter = adapter;
    if (changed) {
      static const uint32_t none = 0;
      static const float zero = 0;
      s.changeTokens = changeTokens.empty() ? &none : changeTokens.data();
      s.changeValues = changeValues.empty() ? &zero : changeValues.data();
      s.changes = static_cast<int>(changeTokens.size());
      s.frequency = frequency;
      s.presence = presence;
    }
    return s;
  }
};

inline std::vector<Sequence> views(const std::vector<Call>& calls) {
  std::vector<Sequence> all;
  for (const Call& call : calls) all.push_back(call.view());
  return all;
}

inline std::vector<uint32_t> range(uint32_t from, uint32_t to) {
  std::vector<uint32_t> values;
  for (uint32_t i = from; i < to; i++) values.push_back(i);
  return values;
}

inline std::vector<uint32_t> randomTokens(testing::Random& random, int count, int vocabulary = 61) {
  std::vector<uint32_t> tokens;
  for (int i = 0; i < count; i++) tokens.push_back(static_cast<uint32_t>(random.integer(0, vocabulary - 1)));
  return tokens;
}

// Tokens after a context, with states and all log-probabilities for every row.
inline Call makeCall(std::vector<uint32_t> tokens, std::vector<uint32_t> context = {}, std::vector<uint32_t> writes = {}, int vocabulary = 61) {
  Call call;
  call.tokens = std::move(tokens);
  call.context = std::move(context);
  call.writes = std::move(writes);
  call.positions = range(static_cast<uint32_t>(call.context.size()), static_cast<uint32_t>(call.context.size() + call.tokens.size()));
  call.outputRows = call.rows();
  call.topK = vocabulary;
  call.states = true;
  return call;
}

struct Answer {
  std::vector<float> states;
  std::vector<uint32_t> tokens;
  std::vector<float> logProbabilities;
  std::vector<uint32_t> drawn;
  std::vector<float> attention;
};

inline std::vector<Answer> answersOf(const Results& results, const std::vector<Call>& calls, int hidden) {
  std::vector<Answer> answers;
  Results next = results;
  for (const Call& call : calls) {
    Answer answer;
    if (call.states) answer.states.assign(next.states, next.states + call.outputRows * hidden);
    answer.tokens.assign(next.tokens, next.tokens + call.outputRows * call.topK);
    answer.logProbabilities.assign(next.logProbabilities, next.logProbabilities + call.outputRows * call.topK);
    answer.drawn.assign(next.drawn, next.drawn + call.draws.size());
    if (call.attention) answer.attention.assign(next.attention, next.attention + call.keys());
    next.states += answer.states.size();
    next.tokens += answer.tokens.size();
    next.logProbabilities += answer.tokens.size();
    next.drawn += answer.drawn.size();
    next.attention += answer.attention.size();
    answers.push_back(std::move(answer));
  }
  return answers;
}

inline uint64_t submitCalls(Engine& engine, const std::vector<Call>& calls, const Adapter* adapter = nullptr) {
  std::vector<Sequence> all = views(calls);
  if (adapter)
    for (Sequence& each : all) each.adapter = adapter;
  return engine.submit({all.data(), static_cast<int>(all.size())});
}

inline std::vector<Answer> runCalls(Engine& engine, const std::vector<Call>& calls, int hidden = 32, const Adapter* adapter = nullptr) {
  return answersOf(engine.wait(submitCalls(engine, calls, adapter)), calls, hidden);
}

// Log-probabilities by token id, for rows with topK = vocabulary.
inline std::vector<float> byToken(const Answer& answer, int vocabulary) {
  std::vector<float> values(answer.tokens.size(), NAN);
  for (size_t i = 0; i < answer.tokens.size(); i++)
    if (answer.tokens[i] < static_cast<uint32_t>(vocabulary)) values[i / vocabulary * vocabulary + answer.tokens[i]] = answer.logProbabilities[i];
  return values;
}

// The forward pass in double: layer by layer, sequence by sequence, row by row, nothing fused. Only keys and values are rounded, as the model's
// options require.
class Reference {
 public:
  explicit Reference(const TinyModel& model) : model_(model), shape_(model.options.shape), pool_(shape_.layers) {}

  struct Output {
    std::vector<double> states, logProbabilities, attention;  // Of all rows; logProbabilities by token id.
  };

  std::vector<Output> forward(const std::vector<Call>& calls) {
    std::vector<std::vector<Row>> streams;
    std::vector<Output> outputs(calls.size());
    for (size_t c = 0; c < calls.size(); c++) {
      streams.push_back(embed(calls[c]));
      outputs[c].attention.assign(calls[c].keys(), 0.0);
    }
    for (int layer = 0; layer < shape_.layers; layer++)
      for (size_t c = 0; c < calls.size(); c++) pass(layer, calls[c], streams[c], outputs[c].attention);
    for (size_t c = 0; c < calls.size(); c++) {
      for (double& share : outputs[c].attention) share /= shape_.layers * shape_.heads;
      for (const Row& row : streams[c]) {
        const Row state = norm(row, tensor("model.norm.weight"));
        const Row logits = product(tensor(model_.options.tiedEmbeddings ? "model.embed_tokens.weight" : "lm_head.weight"), state);
        double sum = 0;
        for (const double logit : logits) sum += std::exp(logit);
        outputs[c].states.insert(outputs[c].states.end(), state.begin(), state.end());
        for (const double logit : logits) outputs[c].logProbabilities.push_back(logit - std::log(sum));
      }
    }
    return outputs;
  }

 private:
  using Row = std::vector<double>;
  struct KeyValue {
    Row key, value;
  };

  const std::vector<float>& tensor(const std::string& name) const { return model_.tensors.at(name); }
  const std::vector<float>& of(int layer, const std::string& name) const { return tensor("model.layers." + std::to_string(layer) + "." + name); }

  Row norm(const Row& x, const std::vector<float>& weight) const {
    double sum = 0;
    for (const double value : x) sum += value * value;
    const double scale = 1 / std::sqrt(sum / static_cast<double>(x.size()) + static_cast<double>(shape_.rmsEpsilon));
    Row y(x.size());
    for (size_t i = 0; i < x.size(); i++) y[i] = x[i] * scale * weight[i];
    return y;
  }
  static Row product(const std::vector<float>& weight, const Row& x, const std::vector<float>* bias = nullptr) {
    Row y(weight.size() / x.size());
    for (size_t o = 0; o < y.size(); o++) {
      double sum = bias ? (*bias)[o] : 0;
      for (size_t i = 0; i < x.size(); i++) sum += static_cast<double>(weight[o * x.size() + i]) * x[i];
      y[o] = sum;
    }
    return y;
  }
  Row project(int layer, const std::string& name, const Row& x) const {
    const std::string module = "self_attn." + name + "_proj";
    return product(of(layer, module + ".weight"), x, model_.options.attentionBias ? &of(layer, module + ".bias") : nullptr);
  }
  void turn(Row& heads, int layer, const std::string& normName, uint32_t position) const {
    const int half = shape_.headDim / 2;
    for (size_t start = 0; start < heads.size(); start += shape_.headDim) {
      Row head(heads.begin() + start, heads.begin() + start + shape_.headDim);
      if (model_.options.queryKeyNorm) head = norm(head, of(layer, "self_attn." + normName + ".weight"));
      for (int i = 0; i < half; i++) {
        const double angle = position * model_.options.frequencies[i];
        heads[start + i] = head[i] * std::cos(angle) - head[i + half] * std::sin(angle);
        heads[start + i + half] = head[i + half] * std::cos(angle) + head[i] * std::sin(angle);
      }
    }
  }

  void round(KeyValue& kept) const {
    Row both = kept.key;
    both.insert(both.end(), kept.value.begin(), kept.value.end());
    std::vector<float8> slot(slotBytes<float8>(shape_));
    kvTesting::writeSlot(slot.data(), both.data(), shape_);
    both = kvTesting::readSlot(slot.data(), shape_);
    kept.key.assign(both.begin(), both.begin() + shape_.kvWidth());
    kept.value.assign(both.begin() + shape_.kvWidth(), both.end());
  }

  std::vector<Row> embed(const Call& call) const {
    std::vector<Row> rows;
    const std::vector<float>& table = call.embeds.empty() ? tensor("model.embed_tokens.weight") : call.embeds;
    for (int i = 0; i < call.rows(); i++) {
      const size_t row = call.embeds.empty() ? call.tokens[i] : i;
      rows.emplace_back(table.begin() + row * shape_.hidden, table.begin() + (row + 1) * shape_.hidden);
    }
    return rows;
  }

  void pass(int layer, const Call& call, std::vector<Row>& rows, Row& received) {
    std::vector<Row> normed;
    std::vector<KeyValue> fresh;
    for (int i = 0; i < call.rows(); i++) {
      normed.push_back(norm(rows[i], of(layer, "input_layernorm.weight")));
      fresh.push_back({project(layer, "k", normed[i]), project(layer, "v", normed[i])});
      turn(fresh[i].key, layer, "k_norm", call.positions[i]);
      if (model_.options.kv == KvPrecision::Fp8) round(fresh[i]);
    }
    for (int i = 0; i < call.rows(); i++) {
      const Row attended = attend(layer, call, normed[i], i, fresh, received);
      add(rows[i], product(of(layer, "self_attn.o_proj.weight"), attended));
      const Row x = norm(rows[i], of(layer, "post_attention_layernorm.weight"));
      Row gate = product(of(layer, "mlp.gate_proj.weight"), x);
      const Row up = product(of(layer, "mlp.up_proj.weight"), x);
      for (size_t k = 0; k < gate.size(); k++) gate[k] = gate[k] / (1 + std::exp(-gate[k])) * up[k];
      add(rows[i], product(of(layer, "mlp.down_proj.weight"), gate));
    }
    for (size_t i = 0; i < call.writes.size(); i++) pool_[layer][call.writes[i]] = fresh[i];
  }

  Row attend(int layer, const Call& call, const Row& x, int i, const std::vector<KeyValue>& fresh, Row& received) {
    Row query = project(layer, "q", x);
    turn(query, layer, "q_norm", call.positions[i]);
    const int group = shape_.heads / shape_.kvHeads, contextCount = static_cast<int>(call.context.size());
    Row joined(shape_.queryWidth(), 0.0);
    for (int head = 0; head < shape_.heads; head++) {
      std::vector<std::pair<int, double>> weights;
      double sum = 0;
      for (int key = 0; key < call.keys(); key++) {
        if (!call.sees(i, key)) continue;
        const Row& k = at(layer, call, key, contextCount, fresh).key;
        double score = 0;
        for (int d = 0; d < shape_.headDim; d++) score += query[head * shape_.headDim + d] * k[head / group * shape_.headDim + d];
        weights.push_back({key, std::exp(score / std::sqrt(shape_.headDim))});
        sum += weights.back().second;
      }
      for (const auto& [key, weight] : weights) {
        const Row& v = at(layer, call, key, contextCount, fresh).value;
        received[key] += weight / sum;
        for (int d = 0; d < shape_.headDim; d++) joined[head * shape_.headDim + d] += weight / sum * v[head / group * shape_.headDim + d];
      }
    }
    return joined;
  }
  const KeyValue& at(int layer, const Call& call, int key, int contextCount, const std::vector<KeyValue>& fresh) {
    return key < contextCount ? pool_[layer].at(call.context[key]) : fresh[key - contextCount];
  }
  static void add(Row& to, const Row& what) {
    for (size_t i = 0; i < to.size(); i++) to[i] += what[i];
  }

  const TinyModel& model_;
  const ModelShape& shape_;
  std::vector<std::map<uint32_t, KeyValue>> pool_;
};

// The largest difference divided by the largest expected magnitude.
template <typename A, typename B>
double relativeError(const A& actual, const B& expected) {
  if (actual.size() != expected.size()) return INFINITY;
  double difference = 0, magnitude = 1e-30;
  for (size_t i = 0; i < actual.size(); i++) {
    const double each = std::fabs(static_cast<double>(actual[i]) - static_cast<double>(expected[i]));
    difference = std::isnan(each) ? INFINITY : std::max(difference, each);
    magnitude = std::max(magnitude, std::fabs(static_cast<double>(expected[i])));
  }
  return difference / magnitude;
}

// For calls made by makeCall: the largest error of states, log-probabilities and, if wanted, attention against the reference.
inline double errorOf(const std::vector<Answer>& answers, const std::vector<Reference::Output>& expected, int vocabulary = 61) {
  double error = 0;
  for (size_t i = 0; i < answers.size(); i++) {
    error = std::max(error, relativeError(answers[i].states, expected[i].states));
    error = std::max(error, relativeError(byToken(answers[i], vocabulary), expected[i].logProbabilities));
    if (!answers[i].attention.empty()) error = std::max(error, relativeError(answers[i].attention, expected[i].attention));
  }
  return error;
}

}  // namespace pie
