#include "scratch.h"
#include <algorithm>
#include <type_traits>
#include "../../kernels/head/head.h"
#include "weights.h"

namespace pie {

template <typename T>
Scratch<T> layScratch(Carver& carver, const PlanContext& context) {
  const StepLimits& limits = context.limits;
  const ModelShape& shape = limits.shape;
  const size_t rows = limits.paddedRows, hidden = shape.hidden;
  Scratch<T> scratch;
  scratch.residual = carver.take<float>(rows * hidden);
  scratch.normed = carver.take<T>(rows * hidden);
  scratch.delta = carver.take<T>(rows * hidden);
  scratch.qkv = carver.take<T>(rows * shape.qkvWidth());
  scratch.queries = carver.take<T>(rows * shape.queryWidth());
  scratch.attended = carver.take<T>(rows * shape.queryWidth());
  scratch.activated = carver.take<T>(rows * shape.intermediate);
  scratch.states = carver.take<T>(std::max<size_t>(rows, HEAD_ROWS) * hidden);
  scratch.rotation = carver.take<float2>(limits.rotations * rows * (shape.headDim / 2));
  scratch.statistics = carver.take<float2>(rows * shape.heads);
  const size_t frequencies = static_cast<size_t>(limits.rotations) * (shape.headDim / 2);
  scratch.frequencies = carver.take<double>(frequencies);
  if (limits.scalesRotations) scratch.rotationScales = carver.take<double>(frequencies);
  if (limits.rotations > 1) scratch.rotationOf = carver.take<int>(shape.layers);
  const int sequences = std::max(limits.sequences, std::min(limits.paddedRows, MAX_GRAPH_ROWS));
  const AttentionBounds bounds = attentionBounds(limits.paddedRows, sequences, shape, context.multiprocessors, context.fastAttention);
  scratch.partials = carver.take<float>(bounds.partialBytes / sizeof(float));
  scratch.counters = carver.take<int>(bounds.counters);
  // The widest intermediate results of products: gate and up in bf16, and logits if tiles must pad them. Logits are float, so each counts as two
  // bf16.
  const size_t products = std::max(linearWorkspaceBytes(limits.paddedRows, 2 * shape.intermediate, context.multiprocessors, context.widens),
                                   linearWorkspaceBytes(HEAD_ROWS, 2 * shape.vocabulary, context.multiprocessors));
  // float products run on plain kernels, which need no workspace.
  scratch.workspaceBytes = std::is_same_v<T, float> ? 0 : products;
  scratch.workspace = carver.take<float>((scratch.workspaceBytes + sizeof(float) - 1) / sizeof(float));
  scratch.headWorkspace = carver.take<uint8_t>(headWorkspaceBytes(HEAD_ROWS, shape.vocabulary));
  const size_t slotBytes = shape.layers * limits.slotBytes;
  // Room for one of several uses (scratch.h); 64 slots let one round of copies cover several pages.
  scratch.wideBytes = std::max({static_cast<size_t>(HEAD_ROWS) * shape.vocabulary * sizeof(float), rows * 2 * shape.intermediate * sizeof(T),
                                64 * slotBytes, widestRowBytes(shape, sizeof(T))});
  scratch.wide = carver.take<uint8_t>(scratch.wideBytes);
  return scratch;
}

template Scratch<bf16> layScratch<bf16>(Carver&, const PlanContext&);
template Scratch<float> layScratch<float>(Carver&, const PlanContext&);

}  // namespace pie
