#include "kernel_bench.h"
#include <algorithm>
#include <cstring>
#include "../kernels/attention/attention.h"
#include "../kernels/head/head.h"
#include "../kernels/linear/linear-choice.h"
#include "../kernels/rows/rows.h"
#include "matrices.h"
#include "random_weights.h"

namespace pie::harness {

namespace {

constexpr int REPLAYS = 5;
// Minimum launches per graph; more if there are more buffers to rotate through.
constexpr int LAUNCHES = 24;
constexpr size_t ROTATED_BYTES = size_t{320} << 20;

template <typename T>
DeviceBytes uploaded(const std::vector<T>& values) {
  DeviceBytes memory(values.size() * sizeof(T));
  if (!values.empty()) checkCuda(cudaMemcpy(memory.as<void>(), values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice), "cudaMemcpy");
  return memory;
}

template <typename T>
DeviceBytes zeroed(size_t count) {
  DeviceBytes memory(count * sizeof(T));
  checkCuda(cudaMemset(memory.as<void>(), 0, memory.bytes), "cudaMemset");
  return memory;
}

DeviceBytes randomValues(size_t count, uint64_t seed) {
  DeviceBytes memory(std::max<size_t>(count * 2, 32));
  fillRandom(memory, 1, seed);
  return memory;
}

DeviceBytes randomFloats(size_t count, uint64_t seed) {
  std::vector<float> values(count);
  const std::vector<uint16_t> words = randomBlock(count, 1, seed);
  for (size_t i = 0; i < count; i++) {
    const uint32_t word = static_cast<uint32_t>(words[i]) << 16;
    std::memcpy(&values[i], &word, 4);
  }
  return uploaded(values);
}

// Sequences of one step, with keys scattered over the pool.
struct AttentionInputs {
  std::vector<AttentionSequence> sequences;
  std::vector<int> slots;
  double keys = 0;   // Pairs of a query row and a key that it sees.
  double read = 0;   // Distinct keys.

  std::vector<const int*> lists() const {
    std::vector<const int*> all;
    for (const AttentionSequence& s : sequences) all.push_back(slots.data() + s.firstKey);
    return all;
  }
};

AttentionInputs attentionInputs(const KernelRun& run) {
  AttentionInputs inputs;
  const int count = run.rows > 0 ? 1 : run.batch, prefix = run.rows > 0 ? 0 : run.prefix;
  const int own = run.rows > 0 ? run.rows : 1, before = run.rows > 0 ? 0 : run.context;
  for (int i = 0; i < count; i++) inputs.sequences.push_back({i * own, own, i * (before + own), before + own, -1, 0});
  inputs.read = static_cast<double>(count) * (before + own - prefix) + prefix;
  inputs.keys = static_cast<double>(count) * own * (before + (own + 1) / 2.0);
  // Pages of 16 slots in scattered order.
  const int total = count * (before + own), pages = (total + 15) / 16;
  for (int i = 0; i < total; i++) {
    const int key = i % (before + own), at = key < prefix ? key : i;
    inputs.slots.push_back(static_cast<int>((static_cast<int64_t>(at / 16) * 7919 + 13) % pages) * 16 + at % 16);
  }
  return inputs;
}

class Report {
 public:
  explicit Report(cudaStream_t stream) : stream(stream) {}

  // `bytes` and `flops` are per launch.
  void measure(const char* name, int perStep, int rotations, double bytes, double flops, const std::function<void(int)>& launch) {
    const int count = std::max(rotations, LAUNCHES / rotations * rotations);
    const Samples us = launchTimes(count, REPLAYS, stream, launch);
    rows.raw(JsonObject()
                 .set("kernel", name)
                 .set("perStep", perStep)
                 .set("us", us.median())
                 .set("leastUs", us.quantile(0))
                 .set("bytes", bytes)
                 .set("flops", flops)
                 .set("bytesPerSecond", bytes / (1e-6 * us.median()))
                 .set("flopsPerSecond", flops / (1e-6 * us.median()))
                 .set("stepUs", us.median() * perStep)
                 .text());
    stepUs += us.median() * perStep;
  }

  JsonArray rows;
  double stepUs = 0;

 private:
  cudaStream_t stream;
};

template <typename K>
DeviceBytes randomSlots(const ModelShape& shape, size_t slots) {
  return randomValues(slots * shape.slotWidth(), 5);
}
template <>
DeviceBytes randomSlots<float8>(const ModelShape& shape, size_t slots) {
  return uploaded(randomFloat8Slots(shape, slots));
}

// Measures the kernels whose work depends on the storage type of keys and values.
template <typename K>
void measureAttention(Report& report, const ModelShape& shape, const KernelRun& run, int multiprocessors, cudaStream_t stream) {
  const int rows = run.rows > 0 ? run.rows : run.batch;
  const AttentionInputs inputs = attentionInputs(run);
  const std::vector<const int*> lists = inputs.lists();
  const bool fast = attentionIsFast<bf16>(shape);
  const AttentionPlan plan = planAttention(inputs.sequences.data(), static_cast<int>(inputs.sequences.size()), nullptr, shape, multiprocessors, fast,
                                           run.shared ? lists.data() : nullptr);
  const AttentionBounds bounds = attentionBounds(rows, static_cast<int>(inputs.sequences.size()), shape, multiprocessors, fast);
  const size_t slots = (inputs.slots.size() + 15) / 16 * 16, layerBytes = slots * slotBytes<K>(shape);
  const int layers = static_cast<int>(std::min<size_t>(64, std::max<size_t>(2, ROTATED_BYTES / layerBytes + 1)));
  const DeviceBytes pool = randomSlots<K>(shape, layers * slots), queries = randomValues(static_cast<size_t>(rows) * shape.queryWidth(), 6);
  const DeviceBytes out = zeroed<bf16>(static_cast<size_t>(rows) * shape.queryWidth());
  const DeviceBytes items = uploaded(plan.items), members = uploaded(plan.members);
  const DeviceBytes itemCount = uploaded(std::vector<int>{static_cast<int>(plan.items.size())}), slotList = uploaded(inputs.slots);
  const DeviceBytes counters = zeroed<int>(bounds.counters), partials(bounds.partialBytes);
  AttentionTables tables;
  tables.items = items.as<AttentionItem>();
  tables.itemCount = itemCount.as<int>();
  tables.slots = slotList.as<int>();
  tables.members = members.as<AttentionMember>();
  tables.counters = counters.as<int>();
  tables.partials = partials.as<float>();
  const auto layerOf = [&](int i) { return kvLayer(pool.as<K>((i % layers) * layerBytes), shape); };
  const double moved = inputs.read * slotBytes<K>(shape) + 4.0 * rows * shape.queryWidth();
  const int blocks = attentionBlocks(shape, multiprocessors, fast);
  report.measure("attention", shape.layers, layers, moved, 4.0 * inputs.keys * shape.queryWidth(), [&](int i) {
    launchAttention<bf16>(out.as<bf16>(), queries.as<bf16>(), layerOf(i), tables, shape, blocks, stream);
  });

  const DeviceBytes qkv = randomValues(static_cast<size_t>(rows) * shape.qkvWidth(), 7);
  const DeviceBytes rotation = randomFloats(static_cast<size_t>(rows) * shape.headDim, 8);
  const double stored = static_cast<double>(rows) * (2 * shape.qkvWidth() + 2 * shape.queryWidth() + slotBytes<K>(shape));
  report.measure("rotate and store", shape.layers, layers, stored, 0, [&](int i) {
    launchRotateAndStore<bf16>(queries.as<bf16>(), layerOf(i), qkv.as<bf16>(), rotation.as<float2>(), slotList.as<int>(), nullptr, nullptr, rows,
                               shape, stream);
  });
}

}  // namespace

JsonObject measureKernels(const NamedShape& named, const KernelRun& run) {
  const ModelShape& shape = named.shape;
  const auto [batch, context, prefillRows, prefix, cublas, narrowKv, shared, precision] = run;
  const int rows = prefillRows > 0 ? prefillRows : batch;
  const int headRows = prefillRows > 0 ? 1 : batch;
  const size_t hidden = shape.hidden;
  const Stream stream;
  Report report(stream);
  int multiprocessors = 0;
  checkCuda(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0), "cudaDeviceGetAttribute");

  const DeviceBytes residual = randomFloats(rows * hidden, 1), delta = randomValues(rows * hidden, 2), normed = randomValues(rows * hidden, 3);
  const DeviceBytes weight = randomValues(hidden, 4);
  {
    const MatrixBench bench(shape, rows, precision);
    LinearContext linear = bench.context();
    if (!cublas) linear.cublas = nullptr;
    for (const Matrix& matrix : matricesOf(shape, precision)) {
      const int own = matrix.epilogue == Epilogue::Wide ? headRows : rows;
      const double perOutput = matrix.epilogue == Epilogue::Wide ? 4 : matrix.epilogue == Epilogue::SwiGlu ? 1 : 2;
      const double moved = matrix.bytes() + 2.0 * own * matrix.inputs + perOutput * own * matrix.outputs;
      report.measure(matrix.name, matrix.perStep, bench.rotations(matrix), moved, 2.0 * own * matrix.outputs * matrix.inputs,
                     [&](int i) { bench.launch(matrix, i, own, linear, stream); });
    }
  }
  if (narrowKv) measureAttention<float8>(report, shape, run, multiprocessors, stream);
  else measureAttention<bf16>(report, shape, run, multiprocessors, stream);
  report.measure("add and norm", 2 * shape.layers, 1, 12.0 * rows * hidden, 0, [&](int) {
    launchAddNorm<bf16>(normed.as<bf16>(), residual.as<float>(), delta.as<bf16>(), weight.as<bf16>(), rows, shape.hidden, 1e-5f, stream);
  });
  const DeviceBytes tokens = zeroed<int>(rows), table = randomValues(hidden * 16, 9), frequencies = uploaded(plainFrequencies(named));
  const DeviceBytes rotation(static_cast<size_t>(rows) * shape.headDim * 4), states(static_cast<size_t>(headRows) * hidden * 4);
  report.measure("embed", 1, 1, 6.0 * rows * hidden, 0, [&](int) {
    launchEmbed<bf16>(residual.as<float>(), table.as<bf16>(), {tokens.as<int>(), nullptr, nullptr, nullptr}, {}, rows, shape.hidden, stream);
  });
  report.measure("rotation", 1, 1, 4.0 * rows * shape.headDim, 0, [&](int) {
    launchRotation(rotation.as<float2>(), tokens.as<int>(), {frequencies.as<double>()}, rows, shape.headDim, stream);
  });
  report.measure("pick and norm", 1, 1, 8.0 * headRows * hidden, 0, [&](int) {
    launchPickNorm<bf16>(nullptr, normed.as<bf16>(), residual.as<float>(), delta.as<bf16>(), tokens.as<int>(), weight.as<bf16>(), headRows,
                         shape.hidden, 1e-5f, stream);
  });
  const DeviceBytes logits = randomFloats(static_cast<size_t>(headRows) * shape.vocabulary, 10);
  const DeviceBytes headWorkspace(headWorkspaceBytes(headRows, shape.vocabulary));
  for (const int topK : {1, 40}) {
    std::vector<HeadRow> wanted;
    for (int i = 0; i < headRows; i++) wanted.push_back({topK, -1, i * topK, -1});
    const size_t places = static_cast<size_t>(headRows) * topK;
    const DeviceBytes requests = uploaded(wanted), chosen = zeroed<uint32_t>(places), values = zeroed<float>(places);
    const HeadResults results{chosen.as<uint32_t>(), values.as<float>(), nullptr};
    // The summed step requests only the best token, so top 40 counts 0 times per step.
    report.measure(topK == 1 ? "top 1" : "top 40", topK == 1 ? 1 : 0, 1, 4.0 * headRows * shape.vocabulary, 0, [&](int) {
      launchTop(results, logits.as<float>(), requests.as<HeadRow>(), nullptr, nullptr, headRows, shape.vocabulary, topK, headWorkspace.as<void>(),
                stream);
    });
  }
  JsonObject result;
  result.set("shape", named.name).set("cublas", cublas).set("kv", narrowKv ? "fp8" : "bf16");
  if (prefillRows > 0) {
    result.set("rows", prefillRows);
  } else {
    result.set("batch", batch).set("context", context).set("prefix", prefix).set("shared", shared);
  }
  return result.set("stepUs", report.stepUs).raw("kernels", report.rows.text());
}

JsonArray measureLinears(const NamedShape& named, int least, int most, Precision precision) {
  std::vector<int> counts;
  for (const int rows : {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 2048, 8192})
    if (rows >= least && rows <= most) counts.push_back(rows);
  if (counts.empty()) throw std::invalid_argument("no row count lies between least and most");
  const MatrixBench bench(named.shape, counts.back(), precision);
  const Stream stream;
  JsonArray results;
  for (const Matrix& matrix : matricesOf(named.shape, precision)) {
    for (const int rows : counts) {
      if (matrix.epilogue == Epilogue::Wide && rows > 256) continue;
      const LinearContext context = bench.context();
      LinearProblem problem{};
      problem.rows = rows;
      problem.outputs = matrix.outputs;
      problem.inputs = matrix.inputs;
      problem.aligned = problem.narrow = true;
      problem.weightBits = matrix.bits();
      problem.group = matrix.bits() == 4 ? narrowGroup(matrix.inputs) : 0;
      problem.multiprocessors = context.multiprocessors;
      problem.memoryRate = context.memoryRate;
      problem.workspaceBytes = context.workspaceBytes;
      // `predicted`: the microseconds that linear-choice.cu predicts.
      const auto measure = [&](const std::string& name, const LinearTuning& tuning, double predicted = NAN) {
        LinearContext own = context;
        own.tuning = tuning;
        if (tuning.kernel != LinearKernel::Auto && !bench.supports(matrix, rows, tuning.kernel, own)) return;
        const int count = rows > 128 ? 2 : std::max(bench.rotations(matrix), 12);
        const Samples us = launchTimes(count, 3, stream, [&](int i) { bench.launch(matrix, i, rows, own, stream); });
        JsonObject result;
        result.set("matrix", matrix.name).set("outputs", matrix.outputs).set("inputs", matrix.inputs).set("rows", rows).set("way", name);
        result.set("us", us.median()).set("predictedUs", predicted).set("bytesPerSecond", matrix.bytes() / (1e-6 * us.median()));
        results.raw(result.set("flopsPerSecond", 2.0 * rows * matrix.outputs * matrix.inputs / (1e-6 * us.median())).text());
      };
      LinearTuning tuning;
      measure("auto", tuning);
      tuning.kernel = LinearKernel::Cublas;
      if (bench.library() != nullptr) measure("cublas", tuning);
      tuning.kernel = LinearKernel::Vector;
      for (const int splits : {1, 2, 4, 8}) {
        if (rows > LINEAR_VECTOR_ROWS) break;
        tuning.splits = splits;
        measure("vector/" + std::to_string(splits), tuning);
      }
      tuning = LinearTuning();
      tuning.kernel = LinearKernel::Skinny;
      for (const int columns : LINEAR_SKINNY_COLUMNS) {
        tuning.columns = columns;
        if (rows <= LINEAR_SKINNY_ROWS && linearSkinnyFits(matrix.bits(), rows, columns))
          measure("skinny/" + std::to_string(columns), tuning, skinnyCost(problem, columns));
      }
      tuning = LinearTuning();
      tuning.kernel = LinearKernel::Tiles;
      for (int tile = 0; tile < LINEAR_TILE_COUNT; tile++) {
        // Skips tiles with far more or far fewer rows than the product.
        if (LINEAR_TILES[tile].rows > 4 * std::max(rows, 16) || rows > 16 * LINEAR_TILES[tile].rows * (rows > 128 ? 64 : 1)) continue;
        for (const int perProcessor : {0, 1, 2}) {
          tuning.tile = tile;
          tuning.blocks = perProcessor * context.multiprocessors;
          const std::string size = std::to_string(LINEAR_TILES[tile].rows) + "x" + std::to_string(LINEAR_TILES[tile].outputs);
          measure("tiles/" + size + "/" + std::to_string(tuning.blocks), tuning, linearCost(problem, scheduleTiles(problem, tile, tuning.blocks)));
        }
      }
    }
  }
  return results;
}

}  // namespace pie::harness
