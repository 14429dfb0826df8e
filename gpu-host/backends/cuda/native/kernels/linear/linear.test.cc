// Compares every product kernel with a plain sum in double. The bound is 3e-3 for bf16 results, which carry 2⁻⁹ of rounding per value, and 2e-6 for
// float results, which carry only the error of a float sum. The norm of all errors is bounded relative to the norm of the whole result. Each single
// error may be four times the bound, relative to the larger of the element and the result's root mean square.
#include "linear.h"
#include <algorithm>
#include <cmath>
#include <cstring>
#include "../../testing/device.h"
#include "../../testing/test.h"
#include "linear-choice.h"

using namespace pie;
using testing::DeviceArray;
using testing::Random;

namespace {

constexpr float UNTOUCHED = 12352;  // Exact in bf16.

struct Shape {
  int rows, outputs, inputs;
  bool bias = false;
  int xGap = 0, yGap = 0;  // Values between rows.
};

template <typename T>
double wide(T value) {
  return static_cast<double>(static_cast<float>(value));
}

template <typename T>
struct Case {
  Shape shape;
  Epilogue epilogue;
  std::vector<T> w, x, b;
  int width;  // Of y.
  size_t xStride, yStride;

  Case(Shape shape, Epilogue epilogue, uint64_t seed = 1) : shape(shape), epilogue(epilogue) {
    Random random(seed);
    width = epilogue == Epilogue::SwiGlu ? shape.outputs / 2 : shape.outputs;
    xStride = shape.inputs + shape.xGap;
    yStride = width + shape.yGap;
    w = random.normals<T>(static_cast<size_t>(shape.outputs) * shape.inputs);
    // Sums of about 1, so that SwiGLU is tested in its nonlinear range.
    x = random.normals<T>(shape.rows * xStride, 1 / std::sqrt(shape.inputs + 1.0));
    // NaN between rows shows when a kernel reads past a row.
    for (int r = 0; r < shape.rows; r++)
      for (size_t i = shape.inputs; i < xStride; i++) x[r * xStride + i] = T(NAN);
    if (shape.bias) b = random.normals<T>(shape.outputs);
  }

  std::vector<double> expected() const {
    std::vector<double> y(static_cast<size_t>(shape.rows) * width);
    std::vector<double> sums(shape.outputs);
    for (int r = 0; r < shape.rows; r++) {
      for (int o = 0; o < shape.outputs; o++) {
        double sum = shape.bias ? wide(b[o]) : 0;
        for (int k = 0; k < shape.inputs; k++) sum += wide(x[r * xStride + k]) * wide(w[static_cast<size_t>(o) * shape.inputs + k]);
        sums[o] = sum;
      }
      for (int o = 0; o < width; o++) {
        double& to = y[static_cast<size_t>(r) * width + o];
        to = epilogue == Epilogue::SwiGlu ? sums[2 * o] / (1 + std::exp(-sums[2 * o])) * sums[2 * o + 1] : sums[o];
      }
    }
    return y;
  }

  // Runs the kernel; returns y without the gaps. Checks that the gaps and one more row after the last are untouched.
  template <typename Y>
  std::vector<float> runAs(const LinearContext& context, bool alone) const {
    const DeviceArray<T> weights(w), inputs(x), bias(b);
    std::vector<Y> start((shape.rows + 1) * yStride, Y(UNTOUCHED));
    const DeviceArray<Y> y(start);
    const Linear<T> linear{weights, shape.bias ? bias.get() : nullptr, shape.outputs, shape.inputs};
    for (int r = 0; r < (alone ? shape.rows : 1); r++)
      launchLinear<T>(linear, inputs + r * xStride, xStride, y + r * yStride, yStride, alone ? 1 : shape.rows, epilogue, context, nullptr);
    const std::vector<Y> all = y.host();
    testing::cudaOk(cudaGetLastError());
    std::vector<float> result;
    size_t touched = 0;
    for (int r = 0; r <= shape.rows; r++)
      for (size_t o = 0; o < yStride; o++) {
        const float value = static_cast<float>(all[r * yStride + o]);
        if (r < shape.rows && o < static_cast<size_t>(width)) {
          result.push_back(value);
        } else if (value != UNTOUCHED) {
          touched++;
        }
      }
    CHECK_EQUAL(touched, size_t{0});
    return result;
  }
  std::vector<float> run(const LinearContext& context, bool alone = false) const {
    return epilogue == Epilogue::Wide ? runAs<float>(context, alone) : runAs<T>(context, alone);
  }

  void check(const LinearContext& context) const {
    const std::vector<float> actual = run(context);
    const std::vector<double> ideal = expected();
    REQUIRE(actual.size() == ideal.size());
    const double bound = sizeof(T) == 4 || epilogue == Epilogue::Wide ? 2e-6 : 3e-3;
    double error = 0, norm = 0;
    for (size_t i = 0; i < ideal.size(); i++) error += std::pow(actual[i] - ideal[i], 2), norm += ideal[i] * ideal[i];
    const double mean = std::sqrt(norm / static_cast<double>(ideal.size() + 1e-9));
    size_t far = 0;
    for (size_t i = 0; i < ideal.size(); i++)
      if (!(std::fabs(actual[i] - ideal[i]) <= 4 * bound * std::max(std::fabs(ideal[i]), mean))) far++;
    const double relative = norm > 0 ? std::sqrt(error / norm) : std::sqrt(error);
    if (far == 0 && relative <= bound) return;
    testing::fail(__FILE__, __LINE__,
                  testing::text(shape.rows) + " × " + testing::text(shape.outputs) + " × " + testing::text(shape.inputs) + ", epilogue " +
                      testing::text(epilogue) + ", kernel " + testing::text(context.tuning.kernel) + ", tile " + testing::text(context.tuning.tile) +
                      ", blocks " + testing::text(context.tuning.blocks) + ": error " + testing::text(relative) + ", " + testing::text(far) + " far off");
  }
};

// Checks on destruction that the counters are zero again.
struct Workspace {
  DeviceArray<float> memory;
  explicit Workspace(size_t bytes) : memory(bytes / sizeof(float)) {
    testing::cudaOk(cudaMemset(memory, 0, LINEAR_COUNTERS * sizeof(unsigned)));
    testing::cudaOk(cudaDeviceSynchronize());
  }
  ~Workspace() {
    const std::vector<float> after = memory.host();
    unsigned sum = 0;
    for (int i = 0; i < LINEAR_COUNTERS; i++) {
      unsigned counter;
      std::memcpy(&counter, &after[i], sizeof counter);
      sum |= counter;
    }
    CHECK_EQUAL(sum, 0u);
  }
  LinearContext context(LinearTuning tuning = {}, int multiprocessors = 3) const {
    LinearContext context;
    context.workspace = memory;
    context.workspaceBytes = memory.size() * sizeof(float);
    context.multiprocessors = multiprocessors;
    context.tuning = tuning;
    return context;
  }
};

LinearTuning with(LinearKernel kernel) {
  LinearTuning tuning;
  tuning.kernel = kernel;
  return tuning;
}
LinearTuning splitBy(int splits) {
  LinearTuning tuning = with(LinearKernel::Vector);
  tuning.splits = splits;
  return tuning;
}
LinearTuning inColumns(int columns) {
  LinearTuning tuning = with(LinearKernel::Skinny);
  tuning.columns = columns;
  return tuning;
}
LinearTuning inTiles(int tile = -1, int blocks = 0) {
  LinearTuning tuning = with(LinearKernel::Tiles);
  tuning.tile = tile, tuning.blocks = blocks;
  return tuning;
}

constexpr Epilogue EPILOGUES[] = {Epilogue::Store, Epilogue::Wide, Epilogue::SwiGlu};
constexpr size_t WORKSPACE = size_t{4} << 20;

}  // namespace

TEST("linear: the plain kernel computes every epilogue, odd and even shapes, and both types") {
  const Workspace workspace(WORKSPACE);
  const LinearContext context = workspace.context(with(LinearKernel::Plain));
  for (const Epilogue epilogue : EPILOGUES)
    for (const int rows : {1, 2, 5, 17}) {
      Case<float>({rows, 46, 53, true, 3, 5}, epilogue).check(context);
      Case<float>({rows, 64, 128}, epilogue).check(context);
      Case<bf16>({rows, 46, 53, true, 3, 5}, epilogue).check(context);
      Case<bf16>({rows, 64, 128, true}, epilogue).check(context);
    }
  Case<float>({3, 37, 200, true}, Epilogue::Store).check(context);
  Case<bf16>({3, 37, 200, true}, Epilogue::Wide).check(context);
  Case<float>({200, 18, 40}, Epilogue::Store).check(context);
  Case<float>({2, 6, 0, true}, Epilogue::Store).check(context);
}

TEST("linear: in float a row's result does not depend on the other rows") {
  const Workspace workspace(WORKSPACE);
  const Case<float> rows({11, 70, 133, true}, Epilogue::Store);
  CHECK(rows.run(workspace.context()) == rows.run(workspace.context(), true));
}

TEST("linear: the vector kernel computes every epilogue, number of rows and split, and edges") {
  const Workspace workspace(WORKSPACE);
  for (const Epilogue epilogue : EPILOGUES)
    for (const int rows : {1, 2, 3, 4})
      for (const int splits : {1, 4, 8}) {
        const LinearContext context = workspace.context(splitBy(splits));
        Case<bf16>({rows, 22, 1288, true, 8, 3}, epilogue).check(context);
        Case<bf16>({rows, 48, 264, splits == 4}, epilogue).check(context);
      }
  Case<bf16>({3, 37, 520, true}, Epilogue::Store).check(workspace.context(with(LinearKernel::Vector)));
  Case<bf16>({1, 5, 8, true}, Epilogue::Wide).check(workspace.context(with(LinearKernel::Vector)));
  const Case<bf16> four({4, 40, 776, true}, Epilogue::Wide);
  CHECK(four.run(workspace.context(splitBy(2))) == four.run(workspace.context(splitBy(2)), true));
}

TEST("linear: the skinny kernel computes every width and epilogue, all numbers of rows, and edges") {
  const Workspace workspace(WORKSPACE);
  for (const int columns : LINEAR_SKINNY_COLUMNS)
    for (const Epilogue epilogue : EPILOGUES)
      for (const int rows : {3, 16, 25}) {
        const LinearContext context = workspace.context(inColumns(columns));
        Case<bf16>({rows, 70, 1096, true, 8, 3}, epilogue).check(context);
        Case<bf16>({rows, 96, 72, rows == 3}, epilogue).check(context);
      }
  for (const int rows : {1, 8, 9, 17, 32}) Case<bf16>({rows, 37, 520, true}, Epilogue::Wide).check(workspace.context(with(LinearKernel::Skinny)));
  const Case<bf16> many({20, 40, 776, true}, Epilogue::Wide);
  CHECK(many.run(workspace.context(inColumns(3))) == many.run(workspace.context(inColumns(3)), true));
}

TEST("linear: the tile kernel computes every tile size and epilogue") {
  const Workspace workspace(WORKSPACE * 4);
  for (int tile = 0; tile < LINEAR_TILE_COUNT; tile++)
    for (const Epilogue epilogue : EPILOGUES)
      for (const int blocks : {1, 3}) {
        const LinearContext context = workspace.context(inTiles(tile, blocks));
        Case<bf16>({blocks == 1 ? 13 : 5, 272, 200, epilogue != Epilogue::Wide, 8, 16}, epilogue).check(context);
      }
}

TEST("linear: the tile kernel computes numbers of rows around the sizes of tiles") {
  const Workspace workspace(WORKSPACE);
  for (const int rows : {1, 2, 3, 5, 8, 16, 17, 32, 33, 64, 65, 100, 128, 129, 200})
    Case<bf16>({rows, 144, 136, true}, Epilogue::Wide).check(workspace.context(inTiles()));
  for (const int tile : {0, 2, 3}) Case<bf16>({130, 144, 72, true}, Epilogue::SwiGlu).check(workspace.context(inTiles(tile, 2)));
}

TEST("linear: the tile kernel computes ragged edges: few outputs and odd strides") {
  const Workspace workspace(WORKSPACE);
  for (const Epilogue epilogue : EPILOGUES)
    for (const int tile : {0, 2, 4}) {
      const LinearContext context = workspace.context(inTiles(tile));
      Case<bf16>({7, 8, 264}, epilogue).check(context);
      Case<bf16>({7, 46, 72, true, 0, 1}, epilogue).check(context);
    }
  Case<bf16>({5, 8, 16}, Epilogue::Store).check(workspace.context());
  Case<bf16>({200, 24, 8}, Epilogue::Store).check(workspace.context());
}

TEST("linear: tiles split over the inputs give the same result each time, with any number of blocks") {
  const Workspace workspace(WORKSPACE * 2);
  const Case<bf16> skinny({9, 256, 648}, Epilogue::Wide);
  for (const int blocks : {1, 2, 3, 4, 5, 6}) {
    const LinearContext context = workspace.context(inTiles(0, blocks));
    skinny.check(context);
    CHECK(skinny.run(context) == skinny.run(context));
  }
  // Several row tiles, some whole, some split.
  for (const int blocks : {2, 3, 6}) Case<bf16>({70, 264, 136, true}, Epilogue::SwiGlu).check(workspace.context(inTiles(1, blocks)));
  // Too little workspace for partial tiles: falls back to whole tiles.
  LinearContext poor = workspace.context(inTiles(0, 3));
  poor.workspaceBytes = 1000;
  skinny.check(poor);
  poor.workspace = nullptr;
  skinny.check(poor);
}

TEST("linear: a row's result is the same in every batch of up to 64 rows on tiles") {
  const Workspace workspace(WORKSPACE);
  const Case<bf16> most({40, 256, 520}, Epilogue::Wide);
  const std::vector<float> reference = most.run(workspace.context(inTiles()));
  for (const int rows : {5, 16, 30}) {
    Case<bf16> fewer = most;
    fewer.shape.rows = rows;
    fewer.x.resize(rows * fewer.xStride);
    const std::vector<float> some = fewer.run(workspace.context(inTiles()));
    CHECK(std::equal(some.begin(), some.end(), reference.begin()));
  }
}

TEST("linear: the automatic choice computes aligned and unaligned products, and zero rows") {
  const Workspace workspace(WORKSPACE);
  for (const int rows : {1, 4, 5, 20, 130}) {
    Case<bf16>({rows, 80, 136, true}, Epilogue::Store).check(workspace.context());
    Case<bf16>({rows, 30, 52, true, 1}, Epilogue::SwiGlu).check(workspace.context());
    Case<float>({rows, 30, 52}, Epilogue::SwiGlu).check(workspace.context());
  }
  Case<bf16>({0, 80, 136}, Epilogue::Store).check(workspace.context());
}

TEST("linear: a captured product gives the same result in every replay") {
  const Workspace workspace(WORKSPACE);
  const Case<bf16> product({9, 256, 648}, Epilogue::Wide);
  const DeviceArray<bf16> weights(product.w), x(product.x);
  DeviceArray<float> y(std::vector<float>(9 * 256, UNTOUCHED));
  const testing::Stream stream;
  const auto launch = [&] { launchLinear<bf16>({weights, nullptr, 256, 648}, x, 648, y, 256, 9, Epilogue::Wide, workspace.context(inTiles(0, 5)), stream); };
  // Launch once directly: CUDA loads a kernel lazily at its first launch, which a capture may not allow.
  launch();
  testing::cudaOk(cudaStreamSynchronize(stream));
  const testing::Graph graph(stream, launch);
  for (int i = 0; i < 2; i++) {
    y.set(std::vector<float>(9 * 256, UNTOUCHED));
    graph.launch(stream);
    CHECK_ALL_CLOSE(y.host(), product.expected(), 1e-5);
  }
}
