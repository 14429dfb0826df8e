#include "options.h"
#include <algorithm>
#include <cmath>
#include <string>
#include "errors.h"

namespace pie {

int graphBucket(int rows) {
  for (const int bucket : GRAPH_BUCKETS)
    if (rows <= bucket) return bucket;
  return rows;
}

int topKBucket(int topK, int vocabulary) {
  // The buckets are 1, 64 (a usual sampler's limit) and its doublings. The head's cost grows with the bucket, and the number of graphs grows with the
  // number of buckets.
  int bucket = topK <= 1 ? 1 : 64;
  while (bucket < topK) bucket *= 2;
  return std::min({bucket, MAX_TOP_K, vocabulary});
}

std::vector<int> windowsOf(const ModelTraits& traits) {
  std::vector<int> windows = traits.windows;
  std::sort(windows.begin(), windows.end());
  windows.erase(std::unique(windows.begin(), windows.end()), windows.end());
  if (!windows.empty() && windows.front() == 0) windows.erase(windows.begin());
  return windows;
}

namespace {

void checkTraits(const EngineOptions& options) {
  const ModelShape& shape = options.shape;
  const ModelTraits& traits = options.traits;
  const auto byLayer = [&](const std::vector<int>& values, int end, const char* name) {
    if (values.empty()) return;
    if (values.size() != static_cast<size_t>(shape.layers))
      refuse(std::to_string(values.size()) + " " + name + " for " + std::to_string(shape.layers) + " layers.");
    for (const int value : values)
      if (value < 0 || value >= end) refuse(std::string(name) + " has the value " + std::to_string(value) + " for a layer.");
  };
  if (traits.rotations < 1 || traits.rotations > shape.layers)
    refuse(std::to_string(traits.rotations) + " rotations for " + std::to_string(shape.layers) + " layers.");
  if (traits.rotations > 1 && traits.rotationOf.empty()) refuse("Several rotations need rotationOf.");
  byLayer(traits.rotationOf, traits.rotations, "rotationOf");
  byLayer(traits.windows, MOST_POSITION, "windows");
  if (windowsOf(traits).size() > MOST_WINDOWS) refuse("Layers have more than " + std::to_string(MOST_WINDOWS) + " different windows.");
  if (!traits.rotationScales.empty() && traits.rotationScales.size() != options.frequencies.size())
    refuse(std::to_string(traits.rotationScales.size()) + " scales for " + std::to_string(options.frequencies.size()) + " frequencies.");
  if (!traits.headOrder.empty()) {
    std::vector<int> order = traits.headOrder;
    std::sort(order.begin(), order.end());
    for (size_t i = 0; i < order.size(); i++)
      if (order.size() != static_cast<size_t>(shape.headDim) || order[i] != static_cast<int>(i)) refuse("headOrder is not an order of a head's values.");
  }
  for (const double value : {shape.attentionScale, double{shape.attentionSoftcap}, double{shape.normOffset}, double{traits.embeddingScale},
                             double{traits.residualScale}, double{traits.logitScale}, double{traits.logitSoftcap}})
    if (!std::isfinite(value) || value < 0) refuse("A scale, softcap or offset is not a number from 0 on.");
  for (const double scale : traits.rotationScales)
    if (!std::isfinite(scale)) refuse("The scale of a rotation is not finite.");
}

}  // namespace

void checkOptions(const EngineOptions& options) {
  const ModelShape& shape = options.shape;
  const auto positive = [](int value, const char* name) {
    if (value < 1) refuse(std::string(name) + " must be at least 1, not " + std::to_string(value) + ".");
  };
  positive(shape.hidden, "hidden");
  positive(shape.intermediate, "intermediate");
  positive(shape.layers, "layers");
  positive(shape.heads, "heads");
  positive(shape.kvHeads, "kvHeads");
  positive(shape.headDim, "headDim");
  positive(shape.vocabulary, "vocabulary");
  positive(options.pageSize, "pageSize");
  positive(options.maxRows, "maxRows");
  positive(options.maxSequences, "maxSequences");
  if (options.pageCount < 0) refuse("pageCount must not be negative.");
  if (options.scratchSlots < 0) refuse("scratchSlots must not be negative.");
  if (shape.vocabulary > MAX_VOCABULARY)
    refuse("A vocabulary of " + std::to_string(shape.vocabulary) + " tokens is larger than the maximum of " + std::to_string(MAX_VOCABULARY) + ".");
  if (shape.headDim % 2 != 0) refuse("headDim must be even.");
  if (shape.heads % shape.kvHeads != 0) refuse("heads must be a multiple of kvHeads.");
  if (!(shape.rmsEpsilon > 0)) refuse("rmsEpsilon must be positive.");
  checkTraits(options);
  if (options.frequencies.size() != static_cast<size_t>(options.traits.rotations) * (shape.headDim / 2))
    refuse(std::to_string(options.frequencies.size()) + " frequencies for heads of " + std::to_string(shape.headDim) + " values.");
  if (options.kv == KvPrecision::Fp8 && options.precision == Precision::Float32)
    refuse("Keys and values in 8 bits require bf16 activations; float32 does not support them.");
  for (const double frequency : options.frequencies)
    if (!std::isfinite(frequency)) refuse("A frequency is not finite.");
}

StepLimits stepLimits(const EngineOptions& options, int pageCount) {
  // The bounds on slot lists, mask words, results and changes cover a large step of a real service; longer batches are split.
  constexpr int64_t KEYS = 4 << 20, MASK_WORDS = 4 << 20, RESULTS = 1 << 20, CHANGES = 1 << 20;
  StepLimits limits;
  limits.shape = options.shape;
  limits.rotations = options.traits.rotations;
  limits.scalesRotations = !options.traits.rotationScales.empty();
  limits.windows = windowsOf(options.traits);
  limits.rows = options.maxRows;
  limits.paddedRows = options.maxRows >= MAX_GRAPH_ROWS ? options.maxRows : graphBucket(options.maxRows);
  limits.sequences = std::min(options.maxSequences, options.maxRows);
  limits.scratchSlots = options.scratchSlots > 0 ? options.scratchSlots : options.maxRows;
  limits.slotBytes = options.kv == KvPrecision::Fp8                    ? slotBytes<float8>(options.shape)
                     : options.precision == Precision::Float32 ? slotBytes<float>(options.shape)
                                                               : slotBytes<bf16>(options.shape);
  const int64_t slots = static_cast<int64_t>(options.pageSize) * pageCount;
  const int64_t total = slots + limits.scratchSlots + 1;
  if (total > MOST_SLOTS) refuse(std::to_string(total) + " slots exceed the maximum of the engine.");
  limits.slots = static_cast<int>(slots);
  // At least one sequence over all slots, with some slots listed twice.
  const int64_t one = 2 * slots + limits.scratchSlots + limits.rows;
  limits.keys = static_cast<int>(std::max(one, std::min<int64_t>(limits.sequences * (slots + limits.rows), KEYS)));
  limits.tableSlots = static_cast<int>(std::min<int64_t>(limits.keys, KEYS));
  // Each window may need a mask of its own.
  const int64_t masks = 1 + static_cast<int64_t>(limits.windows.size()), words = masks * ((one + 31) / 32);
  limits.maskWords = static_cast<int>(std::max(words, std::min(words * limits.rows, masks * MASK_WORDS)));
  const int64_t topK = std::min(MAX_TOP_K, options.shape.vocabulary);
  // A sequence that cannot be cut must fit an otherwise empty step, with any request.
  const int64_t uncut = std::min(limits.paddedRows, MOST_UNCUT_ROWS);
  const int64_t least = std::max(topK * MAX_GRAPH_ROWS, std::min<int64_t>(topK, CALL_TOP_K) * uncut);
  limits.results = static_cast<int>(std::min(topK * limits.paddedRows, std::max(least, RESULTS)));
  limits.allowedRows = static_cast<int>(uncut);
  // A row that changes every logit fits. Steps with more changes are split, after which the next batch cannot take picked tokens.
  const int64_t vocabulary = options.shape.vocabulary;
  limits.changes = static_cast<int>(std::max(vocabulary, std::min(vocabulary * limits.paddedRows, CHANGES)));
  return limits;
}

}  // namespace pie
