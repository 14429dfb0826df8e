#include "matrices.h"

namespace pie::harness {

namespace {

// Several times the size of an L2 cache of 60 MB.
constexpr size_t ROTATED_BYTES = size_t{320} << 20;
constexpr int MOST_ROTATIONS = 64;

int processors() {
  int count = 0;
  checkCuda(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, 0), "cudaDeviceGetAttribute");
  return count;
}

size_t widestBytes(const ModelShape& shape, int rows, Precision precision) {
  size_t most = 0;
  for (const Matrix& matrix : matricesOf(shape, precision)) {
    // In a prefill only few rows reach the head.
    if (matrix.epilogue == Epilogue::Wide && rows > 256) continue;
    most = std::max(most, static_cast<size_t>(matrix.outputs) * (matrix.epilogue == Epilogue::Wide ? 4 : 2) * rows);
  }
  return std::max(most, static_cast<size_t>(shape.vocabulary) * 4 * std::min(rows, 256));
}

// Scales of one matrix; all matrices share the same memory.
size_t scaleMemory(const ModelShape& shape, Precision precision) {
  size_t most = 0;
  for (const Matrix& matrix : matricesOf(shape, precision))
    most = std::max({most, static_cast<size_t>(matrix.outputs) * sizeof(float), narrowGroupScales(matrix.outputs, matrix.inputs) * sizeof(bf16)});
  return most;
}

size_t weightMemory(const ModelShape& shape, Precision precision) {
  size_t most = 0, least = SIZE_MAX;
  for (const Matrix& matrix : matricesOf(shape, precision)) {
    const size_t bytes = static_cast<size_t>(matrix.bytes());
    most = std::max(most, bytes);
    least = std::min(least, bytes);
  }
  return std::max(most, std::min(ROTATED_BYTES, least * MOST_ROTATIONS));
}

}  // namespace

MatrixBench::MatrixBench(const ModelShape& shape, int maxRows, Precision precision)
    : multiprocessors(processors()),
      longest(std::max({shape.hidden, shape.intermediate, shape.queryWidth()})),
      weights(weightMemory(shape, precision)),
      scales(scaleMemory(shape, precision)),
      x(static_cast<size_t>(longest) * 2 * maxRows),
      y(widestBytes(shape, maxRows, precision)),
      workspace(linearWorkspaceBytes(maxRows, shape.vocabulary, multiprocessors, true)),
      cublas(openCublasLt(), closeCublasLt) {
  fillRandom(weights, 0.02f, 21);
  fillRandom(scales, 0.02f, 23);
  fillRandom(x, 1, 22);
  checkCuda(cudaMemset(workspace.as<void>(), 0, workspace.bytes), "cudaMemset");
}

int MatrixBench::rotations(const Matrix& matrix) const {
  return std::min(MOST_ROTATIONS, std::max(1, static_cast<int>(static_cast<double>(weights.bytes) / matrix.bytes())));
}

Linear<bf16> MatrixBench::linearOf(const Matrix& matrix, int turn) const {
  const size_t offset = static_cast<size_t>(turn % rotations(matrix)) * static_cast<size_t>(matrix.bytes());
  return {weights.as<bf16>(offset), nullptr, matrix.outputs, matrix.inputs};
}

LinearNarrow MatrixBench::narrowOf(const Matrix& matrix, int turn) const {
  // The stride includes the group scales of Int4, which lie in `scales`, and is rounded down to 16 bytes.
  const size_t offset = static_cast<size_t>(turn % rotations(matrix)) * (static_cast<size_t>(matrix.bytes()) / 16 * 16);
  return {*matrix.format, weights.as<uint8_t>(offset), scales.as<float>(), scales.as<bf16>(), nullptr, matrix.outputs, matrix.inputs};
}

LinearContext MatrixBench::context() const {
  LinearContext context;
  context.workspace = workspace.as<float>();
  context.workspaceBytes = workspace.bytes;
  context.multiprocessors = multiprocessors;
  context.memoryRate = deviceMemoryRate(0);
  context.cublas = cublas.get();
  return context;
}

bool MatrixBench::supports(const Matrix& matrix, int rows, LinearKernel kernel, const LinearContext& context) const {
  if (matrix.format) return linearSupports(kernel, narrowOf(matrix, 0), x.as<bf16>(), matrix.inputs, rows, context);
  return linearSupports<bf16>(kernel, linearOf(matrix, 0), x.as<bf16>(), matrix.inputs, rows, context);
}

void MatrixBench::launch(const Matrix& matrix, int turn, int rows, const LinearContext& context, cudaStream_t stream) const {
  const int width = matrix.epilogue == Epilogue::SwiGlu ? matrix.outputs / 2 : matrix.outputs;
  if (matrix.format)
    launchLinear(narrowOf(matrix, turn), x.as<bf16>(), matrix.inputs, y.as<void>(), width, rows, matrix.epilogue, context, stream);
  else
    launchLinear<bf16>(linearOf(matrix, turn), x.as<bf16>(), matrix.inputs, y.as<void>(), width, rows, matrix.epilogue, context, stream);
}

}  // namespace pie::harness
