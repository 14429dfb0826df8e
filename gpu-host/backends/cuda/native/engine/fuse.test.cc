// Whole steps with and without products that normalise their input: bit-identical results, and the number of kernels.
#include <cstring>
#include <memory>
#include "testing.h"
#ifdef PIE_EMULATED
#include "../emulation/faults.h"
#endif

using namespace pie;
using testing::Random;

namespace {

std::unique_ptr<Engine> make(TinyModel model, bool fuse, bool graphs = true) {
  model.options.fuseNorm = fuse;
  model.options.graphs = graphs;
  return Engine::create(model.options, model.source());
}

TinyModel modelOf(Precision precision, int hidden, bool norms = false) {
  TinyModel model = tinyModel(51, {.bias = true, .norms = norms, .headDim = 16, .hidden = hidden, .intermediate = 64, .layers = 2});
  model.options.precision = precision;
  return model;
}

template <typename T>
bool same(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

void checkSame(const std::vector<Answer>& a, const std::vector<Answer>& b) {
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < a.size(); i++)
    CHECK(same(a[i].states, b[i].states) && same(a[i].tokens, b[i].tokens) && same(a[i].logProbabilities, b[i].logProbabilities));
}

// A prompt, then steps of `rows`: in one sequence, in as many sequences, and with only the last row's tokens wanted, every other time with its
// state. Repeated so that graphs are replayed.
std::vector<std::vector<Call>> stepsOf(Random& random, int rows, int times) {
  std::vector<std::vector<Call>> steps = {{makeCall(randomTokens(random, 12), {}, range(0, 12))}};
  for (int time = 0; time < times; time++) {
    steps.push_back({makeCall(randomTokens(random, rows), range(0, 12), range(12, 12 + rows))});
    steps.emplace_back();
    for (uint32_t i = 0; i < static_cast<uint32_t>(rows); i++) steps.back().push_back(makeCall(randomTokens(random, 1), range(0, 12), {20 + i}));
    steps.push_back({makeCall(randomTokens(random, rows), range(0, 12))});
    steps.back()[0].outputRows = 1;
    steps.back()[0].states = time % 2 == 0;
  }
  return steps;
}

void compare(const TinyModel& model, int rows, bool graphs) {
  const int hidden = model.options.shape.hidden;
  const auto fused = make(model, true, graphs), separate = make(model, false, graphs);
  Random random(rows);
  for (const std::vector<Call>& calls : stepsOf(random, rows, graphs ? 4 : 2)) checkSame(runCalls(*fused, calls, hidden), runCalls(*separate, calls, hidden));
  CHECK_EQUAL(fused->graphs().captured > 0, graphs);
}

}  // namespace

TEST("steps with normalising products are bit-identical: bf16 with one row and more, captured or not, and two rows of every precision") {
  for (int rows = 1; rows <= 3; rows++) compare(modelOf(Precision::Bf16, 96, rows % 2 == 0), rows, true);
  compare(modelOf(Precision::Bf16, 96), 1, false);
  // The normalisation depends on the format; capturing does not.
  for (const Precision precision : {Precision::Int8, Precision::Fp8, Precision::Int4}) compare(modelOf(precision, 96, true), 2, false);
  compare(modelOf(Precision::Float32, 96), 2, false);
}

TEST("steps with normalising products are bit-identical at their largest width") {
  constexpr int HIDDEN = 4096;
  TinyModel model = tinyModel(52, {.heads = 2, .kvHeads = 1, .hidden = HIDDEN, .intermediate = 32, .layers = 1});
  for (const Precision precision : {Precision::Bf16, Precision::Int8}) {
    model.options.precision = precision;
    const auto fused = make(model, true), separate = make(model, false);
    Random random(7);
    for (const int rows : {1, 2}) {
      const std::vector<Call> calls = {makeCall(randomTokens(random, rows))};
      checkSame(runCalls(*fused, calls, HIDDEN), runCalls(*separate, calls, HIDDEN));
    }
  }
}

TEST("a row's result does not depend on another row beside it, with and without normalising products") {
  for (const bool fuse : {true, false}) {
    const auto engine = make(modelOf(Precision::Bf16, 96), fuse);
    Random random(9);
    const Call first = makeCall(randomTokens(random, 1)), second = makeCall(randomTokens(random, 1));
    const std::vector<Answer> both = runCalls(*engine, {first, second}, 96);
    checkSame({both[0]}, runCalls(*engine, {first}, 96));
    checkSame({both[1]}, runCalls(*engine, {second}, 96));
  }
}

TEST("projections that an adapter changes keep a separate norm, with identical results") {
  const TinyModel model = modelOf(Precision::Bf16, 96);
  Random random(10);
  const std::vector<float> a = random.normals<float>(96 * 4, 0.2), b = random.normals<float>(64 * 4, 0.2);
  const std::vector<AdapterMatrices> matrices = {{0, "q_proj", 4, 96, 64, a.data(), b.data()}, {1, "up_proj", 4, 96, 64, a.data(), b.data()}};
  const auto fused = make(model, true), separate = make(model, false);
  const auto ofFused = fused->loadAdapter(matrices), ofSeparate = separate->loadAdapter(matrices);
  for (int time = 0; time < 4; time++) {
    const std::vector<Call> calls = {makeCall(randomTokens(random, 1 + time % 2))};
    const std::vector<Answer> with = runCalls(*fused, calls, 96, ofFused.get());
    checkSame(with, runCalls(*separate, calls, 96, ofSeparate.get()));
    CHECK(!same(with[0].states, runCalls(*fused, calls, 96)[0].states));
  }
}

#ifdef PIE_EMULATED
TEST("a decode step of few rows has six kernels per layer and five more, or eight and six") {
  const auto kernelsOf = [](Precision precision, int hidden, int rows, bool fuse) {
    const auto engine = make(modelOf(precision, hidden), fuse);
    Random random(11);
    std::vector<Call> calls;
    for (int i = 0; i < rows; i++) calls.push_back(makeCall(randomTokens(random, 1)));
    for (Call& call : calls) call.states = false, call.topK = 1;
    runCalls(*engine, calls, hidden);
    const size_t before = emulation::kernelsRun();
    runCalls(*engine, calls, hidden);
    return emulation::kernelsRun() - before;
  };
  constexpr size_t FUSED = 6 * 2 + 5, SEPARATE = 8 * 2 + 6;
  for (const Precision precision : {Precision::Bf16, Precision::Int8, Precision::Fp8}) {
    CHECK_EQUAL(kernelsOf(precision, 96, 1, true), FUSED);
    CHECK_EQUAL(kernelsOf(precision, 96, 1, false), SEPARATE);
    CHECK_EQUAL(kernelsOf(precision, 96, 4, true), kernelsOf(precision, 96, 4, false));
  }
  CHECK_EQUAL(kernelsOf(Precision::Bf16, 96, 2, true), FUSED);
  CHECK_EQUAL(kernelsOf(Precision::Bf16, 4096, 1, true), FUSED);
  CHECK_EQUAL(kernelsOf(Precision::Bf16, 4128, 1, true), SEPARATE);
  CHECK_EQUAL(kernelsOf(Precision::Float32, 96, 1, true), SEPARATE);
}
#endif
