#include "linear.h"
#include <algorithm>
#include <cstddef>
#include <type_traits>
#include "linear-choice.h"
#include "linear-cublas.h"
#include "linear-epilogue.h"
#include "linear-finish.h"
#include "linear-narrow.h"
#include "linear-plain.h"
#include "linear-skinny.h"
#include "linear-tiles.h"
#include "linear-vector.h"
#include "linear-widen.h"

namespace pie {
namespace {

// The arguments of one product. T is the type of x, W that of the weights.
template <typename T, typename W>
struct Call {
  LinearLines<W> lines;
  const T* bias;
  const float* scales;
  int group;  // Inputs that share a scale in `lines`, or 0 without such scales.
  int outputs, inputs;
  const T* x;
  size_t xStride;
  void* y;
  size_t yStride;
  int rows;
  Epilogue epilogue;

  LinearOutput<T> output(int run) const { return linearOutput(y, yStride, bias, scales, rows, outputs, epilogue, run); }
};

template <typename T>
Call<T, T> callOf(const Linear<T>& linear, const T* x, size_t xStride, void* y, size_t yStride, int rows, Epilogue epilogue) {
  return {{linear.weight}, linear.bias, nullptr, 0, linear.outputs, linear.inputs, x, xStride, y, yStride, rows, epilogue};
}

template <typename W>
Call<bf16, W> narrowCallOf(const LinearNarrow& linear, const LinearLines<W>& lines, const float* scales, int group, const bf16* x, size_t xStride, void* y,
                           size_t yStride, int rows, Epilogue epilogue) {
  return {lines, linear.bias, scales, group, linear.outputs, linear.inputs, x, xStride, y, yStride, rows, epilogue};
}

// Calls `use` with the lines of a narrow matrix, its per-output scales and its group size.
template <typename F>
auto withLines(const LinearNarrow& linear, const F& use) {
  switch (linear.format) {
    case WeightFormat::Float8: return use(LinearLines<Float8>{reinterpret_cast<const Float8*>(linear.weight)}, linear.scales, 0);
    case WeightFormat::Int4: {
      const int group = narrowGroup(linear.inputs), shift = group == 128 ? 7 : group == 64 ? 6 : 5;
      const LinearLines<Int4> lines{reinterpret_cast<const Int4*>(linear.weight), linear.groupScales, narrowGroupStride(linear.outputs), shift};
      return use(lines, static_cast<const float*>(nullptr), group);
    }
    default: return use(LinearLines<int8_t>{reinterpret_cast<const int8_t*>(linear.weight)}, linear.scales, 0);
  }
}

template <typename T, typename W>
LinearProblem problemOf(const Call<T, W>& call, const LinearContext& context) {
  LinearProblem problem;
  problem.rows = call.rows;
  problem.outputs = call.outputs;
  problem.inputs = call.inputs;
  problem.narrow = sizeof(T) == 2;
  problem.weightBits = WEIGHT_BITS<W>;
  problem.group = call.group;
  // The tensor-core kernel computes strides in 32 bits.
  const bool lines = call.inputs % WEIGHTS_PER_LOAD<W> == 0 && call.xStride % 8 == 0 && call.xStride < size_t{1} << 31;
  problem.aligned = lines && areAligned(call.x, call.lines.values);
  problem.cublas = context.cublas != nullptr;
  problem.multiprocessors = context.multiprocessors;
  problem.memoryRate = context.memoryRate;
  problem.workspaceBytes = context.workspace ? context.workspaceBytes : 0;
  return problem;
}

// The rest of the workspace behind the first `used` bytes; null if `wanted` bytes do not fit.
template <typename S>
S* scratch(const LinearContext& context, size_t used, size_t wanted) {
  used = aligned256(used);
  if (!context.workspace || used + wanted > context.workspaceBytes) return nullptr;
  return reinterpret_cast<S*>(reinterpret_cast<std::byte*>(context.workspace) + used);
}

template <typename W>
bool tiles(const Call<bf16, W>& call, const LinearSchedule& schedule, const LinearContext& context, cudaStream_t stream) {
  const int run = linearTileRun(LINEAR_TILES[schedule.tile]);
  const LinearOutput<bf16> to = call.output(run);
  if (to.vectors) {
    launchLinearTiles(to, call.lines, call.x, call.xStride, call.inputs, call.outputs, schedule, context.workspace, stream);
    return true;
  }
  // Edges and odd strides: first write the sums to padded rows in the workspace, then run the epilogue.
  const int outputs = divideUp(call.outputs, run) * run;
  const size_t used = schedule.splitTiles > 0 ? linearPartialBytes(schedule) : LINEAR_COUNTERS * sizeof(unsigned);
  float* sums = scratch<float>(context, used, static_cast<size_t>(call.rows) * outputs * sizeof(float));
  if (!sums) return false;
  const LinearOutput<bf16> even{sums, static_cast<size_t>(outputs), nullptr, nullptr, call.rows, outputs, Epilogue::Wide, true};
  launchLinearTiles(even, call.lines, call.x, call.xStride, call.inputs, call.outputs, schedule, context.workspace, stream);
  launchFinish(call.output(2), sums, outputs, stream);
  return true;
}

bool cublas(const Linear<bf16>& linear, const Call<bf16, bf16>& call, const LinearContext& context, cudaStream_t stream) {
  const size_t counters = LINEAR_COUNTERS * sizeof(unsigned);
  const size_t before = call.epilogue == Epilogue::SwiGlu ? static_cast<size_t>(call.rows) * call.outputs * sizeof(bf16) : 0;
  void* workspace = scratch<void>(context, counters + before, CUBLAS_WORKSPACE_BYTES);
  if (!workspace) return false;
  if (call.epilogue != Epilogue::SwiGlu)
    return launchLinearCublas(context.cublas, linear, call.x, call.xStride, call.y, call.yStride, call.rows, call.epilogue, workspace, CUBLAS_WORKSPACE_BYTES,
                              stream);
  bf16* sums = scratch<bf16>(context, counters, before);
  Linear<bf16> unbiased = linear;
  unbiased.bias = nullptr;
  if (!launchLinearCublas(context.cublas, unbiased, call.x, call.xStride, sums, call.outputs, call.rows, Epilogue::Store, workspace, CUBLAS_WORKSPACE_BYTES,
                          stream))
    return false;
  launchFinish(call.output(16), sums, call.outputs, stream);
  return true;
}

// Widens as many lines of W at a time as the workspace holds, and multiplies them with cuBLASLt. Returns false if that is not possible; a part of y
// may be written by then.
template <typename W>
bool widened(const Call<bf16, W>& call, const LinearContext& context, cudaStream_t stream) {
  if (!context.cublas || context.tuning.kernel != LinearKernel::Auto || call.rows < LINEAR_WIDENED_ROWS || call.epilogue == Epilogue::Wide) return false;
  if (!problemOf(call, context).aligned || call.inputs == 0) return false;
  const bool finishes = call.scales != nullptr || call.epilogue == Epilogue::SwiGlu;
  const size_t counters = LINEAR_COUNTERS * sizeof(unsigned), before = finishes ? static_cast<size_t>(call.rows) * call.outputs * sizeof(bf16) : 0;
  const size_t behindSums = aligned256(aligned256(counters) + before), used = aligned256(behindSums + CUBLAS_WORKSPACE_BYTES);
  if (!context.workspace || used >= context.workspaceBytes) return false;
  const size_t fitting = (context.workspaceBytes - used) / (call.inputs * sizeof(bf16));
  const int atOnce = static_cast<int>(std::min<size_t>(fitting, 65535)) / LINEAR_WIDENED_LINES * LINEAR_WIDENED_LINES;
  if (atOnce == 0) return false;
  bf16* const sums = scratch<bf16>(context, counters, before);
  void* const workspace = scratch<void>(context, behindSums, CUBLAS_WORKSPACE_BYTES);
  bf16* const lines = scratch<bf16>(context, used, static_cast<size_t>(atOnce) * call.inputs * sizeof(bf16));
  // The last lines first: they are often fewer, and if cuBLASLt refuses their number, no other lines were multiplied in vain.
  for (int first = (call.outputs - 1) / atOnce * atOnce; first >= 0; first -= atOnce) {
    const int count = std::min(atOnce, call.outputs - first);
    launchWiden(lines, call.lines, first, count, call.inputs, stream);
    const Linear<bf16> some{lines, finishes || call.bias == nullptr ? nullptr : call.bias + first, count, call.inputs};
    bf16* const to = (finishes ? sums : static_cast<bf16*>(call.y)) + first;
    if (!launchLinearCublas(context.cublas, some, call.x, call.xStride, to, finishes ? call.outputs : call.yStride, call.rows, Epilogue::Store, workspace,
                            CUBLAS_WORKSPACE_BYTES, stream))
      return false;
  }
  if (finishes) launchFinish(call.output(16), sums, call.outputs, stream);
  return true;
}

template <typename W>
void launchChosen(const Call<bf16, W>& call, const LinearChoice& choice, const LinearContext& context, cudaStream_t stream) {
  if (choice.kernel == LinearKernel::Vector) {
    launchLinearVector(call.output(2), call.lines, call.x, call.xStride, call.inputs, choice.splits, stream);
  } else if (choice.kernel == LinearKernel::Skinny) {
    launchLinearSkinny(call.output(2), call.lines, call.x, call.xStride, call.inputs, choice.columns, stream);
  } else if (choice.kernel != LinearKernel::Tiles || !tiles(call, choice.schedule, context, stream)) {
    launchLinearPlain(call.output(2), call.lines, call.x, call.xStride, call.inputs, stream);
  }
}

}  // namespace

template <typename T>
void launchLinear(const Linear<T>& linear, const T* x, size_t xStride, void* y, size_t yStride, int rows, Epilogue epilogue, const LinearContext& context,
                  cudaStream_t stream) {
  if (rows <= 0 || linear.outputs <= 0) return;
  const auto call = callOf(linear, x, xStride, y, yStride, rows, epilogue);
  if constexpr (std::is_same_v<T, float>) {
    launchLinearPlain(call.output(2), call.lines, x, xStride, call.inputs, stream);
  } else {
    LinearProblem problem = problemOf(call, context);
    LinearChoice choice = chooseLinear(problem, context.tuning);
    if (choice.kernel == LinearKernel::Cublas) {
      if (cublas(linear, call, context, stream)) return;
      problem.cublas = false;
      choice = chooseLinear(problem, {});
    }
    launchChosen(call, choice, context, stream);
  }
}

void launchLinear(const LinearNarrow& linear, const bf16* x, size_t xStride, void* y, size_t yStride, int rows, Epilogue epilogue,
                  const LinearContext& context, cudaStream_t stream) {
  if (rows <= 0 || linear.outputs <= 0) return;
  withLines(linear, [&](const auto& lines, const float* scales, int group) {
    const auto call = narrowCallOf(linear, lines, scales, group, x, xStride, y, yStride, rows, epilogue);
    if (widened(call, context, stream)) return;
    launchChosen(call, chooseLinear(problemOf(call, context), context.tuning), context, stream);
  });
}

double deviceMemoryRate(int device) {
  int kilohertz = 0, bits = 0;
  const bool known = cudaDeviceGetAttribute(&kilohertz, cudaDevAttrMemoryClockRate, device) == cudaSuccess &&
                     cudaDeviceGetAttribute(&bits, cudaDevAttrGlobalMemoryBusWidth, device) == cudaSuccess;
  (void)cudaGetLastError();
  // Two transfers a cycle.
  const double peak = known ? 2e3 * kilohertz * bits / 8 : 0;
  return peak > 0 ? 0.9 * peak : LinearContext().memoryRate;
}

template <typename T>
bool linearSupports(LinearKernel kernel, const Linear<T>& linear, const T* x, size_t xStride, int rows, const LinearContext& context) {
  return linearSupports(kernel, problemOf(callOf(linear, x, xStride, nullptr, 0, rows, Epilogue::Store), context));
}
bool linearSupports(LinearKernel kernel, const LinearNarrow& linear, const bf16* x, size_t xStride, int rows, const LinearContext& context) {
  return withLines(linear, [&](const auto& lines, const float* scales, int group) {
    const auto call = narrowCallOf(linear, lines, scales, group, x, xStride, nullptr, 0, rows, Epilogue::Store);
    return linearSupports(kernel, problemOf(call, context));
  });
}

template bool linearSupports(LinearKernel, const Linear<float>&, const float*, size_t, int, const LinearContext&);
template bool linearSupports(LinearKernel, const Linear<bf16>&, const bf16*, size_t, int, const LinearContext&);
template void launchLinear(const Linear<float>&, const float*, size_t, void*, size_t, int, Epilogue, const LinearContext&, cudaStream_t);
template void launchLinear(const Linear<bf16>&, const bf16*, size_t, void*, size_t, int, Epilogue, const LinearContext&, cudaStream_t);

}  // namespace pie
