// Adapters: alone, and several in one step.
#include <memory>
#include "../../testing/engine.h"

using namespace pie;
using testing::Random;

namespace {

constexpr double TOLERANCE = 1e-4;

std::unique_ptr<Engine> make(const TinyModel& model) { return Engine::create(model.options, model.source()); }

// Low-rank matrices, and the model with their products merged into its weights.
struct Change {
  std::vector<std::vector<float>> values;
  std::vector<AdapterMatrices> matrices;
  TinyModel merged;
};

void addChange(Change& change, Random& random, int layer, const char* projection, int rank) {
  const bool attention = projection[0] == 'q' || projection[0] == 'k' || projection[0] == 'v' || projection[0] == 'o';
  const std::string name = "model.layers." + std::to_string(layer) + (attention ? ".self_attn." : ".mlp.") + projection + ".weight";
  const ModelShape& shape = change.merged.options.shape;
  std::vector<float>& weight = change.merged.tensors.at(name);
  const std::string which = projection;
  const int inputs = which == "o_proj" ? shape.queryWidth() : which == "down_proj" ? shape.intermediate : shape.hidden;
  const int outputs = static_cast<int>(weight.size()) / inputs;
  change.values.push_back(random.normals<float>(static_cast<size_t>(rank) * inputs, 0.3));
  change.values.push_back(random.normals<float>(static_cast<size_t>(outputs) * rank, 0.3));
  const float* a = change.values[change.values.size() - 2].data();
  const float* b = change.values.back().data();
  change.matrices.push_back({layer, projection, rank, inputs, outputs, a, b});
  for (int o = 0; o < outputs; o++)
    for (int i = 0; i < inputs; i++)
      for (int r = 0; r < rank; r++) weight[o * inputs + i] += b[o * rank + r] * a[r * inputs + i];
}

Change makeChange(const TinyModel& model, int kind) {
  Change change;
  change.merged = model;
  Random random(100 + kind);
  for (int layer = 0; layer < 2; layer++) {
    if (kind == 0)
      for (const char* projection : {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"})
        addChange(change, random, layer, projection, 3);
    if (kind == 1) {
      addChange(change, random, layer, "v_proj", 9);
      addChange(change, random, layer, "up_proj", 1);
    }
    if (kind == 2 && layer == 1) {
      addChange(change, random, layer, "gate_proj", 2);
      addChange(change, random, layer, "k_proj", 8);
      addChange(change, random, layer, "q_proj", 2);
    }
  }
  return change;
}

// An engine with the adapters of all kinds, and an oracle for each of them and for the model alone.
struct Several {
  TinyModel model;
  std::vector<Change> changes;
  std::unique_ptr<Engine> engine;
  std::vector<std::unique_ptr<Adapter>> adapters;
  std::vector<Reference> references;

  explicit Several(TinyModel made) : model(std::move(made)), engine(make(model)) {
    for (int kind = 0; kind < 3; kind++) changes.push_back(makeChange(model, kind));
    for (const Change& change : changes) {
      adapters.push_back(engine->loadAdapter(change.matrices));
      references.emplace_back(change.merged);
    }
    references.emplace_back(model);
  }
  const Adapter* adapter(int kind) const { return kind < 3 ? adapters[kind].get() : nullptr; }

  // The largest error of calls in one step; call i has adapter kinds[i] (3: none). Calls must not read each other's keys.
  double error(std::vector<Call> calls, const std::vector<int>& kinds) {
    std::vector<Reference::Output> expected;
    for (size_t i = 0; i < calls.size(); i++) {
      calls[i].adapter = adapter(kinds[i]);
      expected.push_back(references[kinds[i]].forward({calls[i]})[0]);
      const size_t rows = calls[i].outputRows, states = rows * model.options.shape.hidden, values = rows * 61;
      std::vector<double>&all = expected[i].states, &logs = expected[i].logProbabilities;
      all.erase(all.begin(), all.end() - static_cast<ptrdiff_t>(states));
      logs.erase(logs.begin(), logs.end() - static_cast<ptrdiff_t>(values));
    }
    return errorOf(runCalls(*engine, calls, model.options.shape.hidden), expected);
  }
};

}  // namespace

TEST("an adapter equals a model with merged weights, over any projections and ranks, directly and from graphs") {
  const TinyModel model = tinyModel(24, {.norms = true});
  const auto engine = make(model);
  Random random(8);
  const std::vector<Call> calls = {makeCall(randomTokens(random, 7), {}, range(0, 7)), makeCall(randomTokens(random, 1)),
                                   makeCall(randomTokens(random, 12), {}, range(20, 32))};
  const std::vector<Answer> plain = runCalls(*engine, calls);
  for (int kind = 0; kind < 3; kind++) {
    const Change change = makeChange(model, kind);
    Reference reference(change.merged);
    const std::vector<Reference::Output> expected = reference.forward(calls);
    for (int again = 0; again < 2; again++) {
      const auto adapter = engine->loadAdapter(change.matrices);
      CHECK(adapter->bytes() > 0);
      for (int round = 0; round < (again ? 2 : 8); round++) CHECK(errorOf(runCalls(*engine, calls, 32, adapter.get()), expected) < TOLERANCE);
      // One graph for each area and set of LowRankPlace (kinds 1 and 2 change the same set): no graph depends on the adapter.
      CHECK_EQUAL(engine->graphs().captured, kind == 0 ? 2u : 4u);
    }
    const std::vector<Answer> after = runCalls(*engine, calls);
    for (size_t i = 0; i < calls.size(); i++) {
      CHECK(after[i].states == plain[i].states);
      CHECK(relativeError(plain[i].states, expected[i].states) > 0.02);
    }
  }
  const auto other = make(model);
  const Change change = makeChange(model, 0);
  const auto adapter = other->loadAdapter(change.matrices);
  CHECK_THROWS(runCalls(*engine, calls, 32, adapter.get()), "another engine");
  std::vector<AdapterMatrices> wrong = {change.matrices[0], change.matrices[0]};
  CHECK_THROWS(engine->loadAdapter(wrong), "twice");
  wrong = {{0, "x_proj", 1, 32, 32, change.values[0].data(), change.values[0].data()}};
  CHECK_THROWS(engine->loadAdapter(wrong), "x_proj");
  wrong = {{2, "q_proj", 1, 32, 32, change.values[0].data(), change.values[0].data()}};
  CHECK_THROWS(engine->loadAdapter(wrong), "layer 2");
  // For every projection, one input or output more or less than the model has.
  for (const AdapterMatrices& each : change.matrices)
    for (const int more : {-1, 1}) {
      wrong = {each};
      wrong[0].inputs += more;
      CHECK_THROWS(engine->loadAdapter(wrong), "inputs");
      wrong = {each};
      wrong[0].outputs += more;
      CHECK_THROWS(engine->loadAdapter(wrong), "outputs");
    }
  CHECK(runCalls(*engine, calls)[0].states == plain[0].states);
}

TEST("sequences of one step may have different adapters, or none: each sequence equals its own merged model") {
  for (const bool graphs : {false, true}) {
    TinyModel model = tinyModel(25, {.bias = true});
    model.options.graphs = graphs;
    Several several(std::move(model));
    Random random(9);
    for (int round = 0; round < 12; round++) {
      // Decodes and prompts, also with more rows of one adapter than a task of the low-rank kernel takes.
      std::vector<Call> calls;
      std::vector<int> kinds;
      int rows = 0;
      while (rows < 40) {
        const int count = static_cast<int>(round % 2 == 0 ? 1 : random.integer(1, 20));
        calls.push_back(makeCall(randomTokens(random, count)));
        kinds.push_back(static_cast<int>(random.integer(0, 3)));
        rows += count;
        if (calls.size() == 16) break;
      }
      CHECK(several.error(calls, kinds) < TOLERANCE);
    }
    // Calls with fewer output rows than inputs: the last layer computes only some of their rows.
    std::vector<Call> calls = {makeCall(randomTokens(random, 9)), makeCall(randomTokens(random, 20)), makeCall(randomTokens(random, 8)),
                               makeCall(randomTokens(random, 7))};
    calls[0].outputRows = 1, calls[1].outputRows = 5, calls[2].outputRows = 3, calls[3].outputRows = 2;
    for (const std::vector<int>& kinds : {std::vector<int>{0, 3, 1, 2}, {3, 0, 0, 3}, {2, 2, 2, 2}}) CHECK(several.error(calls, kinds) < TOLERANCE);
  }
}

TEST("a graph that was captured with some adapters serves steps with others, also after the adapters of the capture have been freed") {
  Several several(tinyModel(26));
  Random random(10);
  const auto step = [&](const std::vector<int>& kinds) {
    std::vector<Call> calls;
    for (size_t i = 0; i < kinds.size(); i++) calls.push_back(makeCall(randomTokens(random, 1)));
    return several.error(calls, kinds);
  };
  for (int round = 0; round < 6; round++) CHECK(step({0, 1, 3, 1, 0}) < TOLERANCE);
  const size_t captured = several.engine->graphs().captured;
  CHECK_EQUAL(captured, 2u);
  for (const std::vector<int>& kinds : {std::vector<int>{3, 3, 0, 2, 1}, {0, 0, 0, 0, 0}, {2, 0, 2, 3, 3}}) CHECK(step(kinds) < TOLERANCE);
  several.adapters[1].reset();
  several.adapters[0] = several.engine->loadAdapter(several.changes[0].matrices);
  for (int round = 0; round < 3; round++) CHECK(step({3, 0, 2, 0, 3}) < TOLERANCE);
  CHECK_EQUAL(several.engine->graphs().captured, captured);
}

TEST("different adapters work in a batch of several device steps, and over keys that another adapter wrote") {
  TinyModel model = tinyModel(27);
  model.options.maxRows = 16;
  model.options.scratchSlots = 64;
  Several several(std::move(model));
  Random random(11);
  const std::vector<Call> calls = {makeCall(randomTokens(random, 10), {}, range(0, 10)), makeCall(randomTokens(random, 30), {}, range(10, 40)),
                                   makeCall(randomTokens(random, 5)), makeCall(randomTokens(random, 9))};
  CHECK(several.error(calls, {1, 0, 3, 2}) < TOLERANCE);
  // The second call reads what the first writes: in one step, and one after the other.
  std::vector<Call> following = {makeCall(randomTokens(random, 4), {}, range(50, 54)), makeCall(randomTokens(random, 3), range(50, 54))};
  following[0].adapter = several.adapter(0), following[1].adapter = several.adapter(1);
  const std::vector<Answer> together = runCalls(*several.engine, following);
  const Answer first = runCalls(*several.engine, {following[0]})[0], second = runCalls(*several.engine, {following[1]})[0];
  CHECK(relativeError(together[0].states, first.states) < TOLERANCE && relativeError(together[1].states, second.states) < TOLERANCE);
}

TEST("in bf16 a row with an adapter does not depend on the adapters of other rows") {
  TinyModel model = tinyModel(28, {.heads = 4, .kvHeads = 2, .headDim = 64, .hidden = 64, .intermediate = 96});
  model.options.precision = Precision::Bf16;
  Several several(std::move(model));
  Random random(12);
  std::vector<Call> calls;
  for (int i = 0; i < 8; i++) calls.push_back(makeCall(randomTokens(random, 1)));
  std::vector<int> kinds = {0, 1, 2, 3, 0, 1, 2, 3};
  // In bf16, products with and without an adapter have errors of the same size.
  CHECK(several.error(calls, kinds) < 0.05);
  CHECK(several.error(calls, {3, 3, 3, 3, 3, 3, 3, 3}) < 0.05);
  for (size_t i = 0; i < calls.size(); i++) calls[i].adapter = several.adapter(kinds[i]);
  const std::vector<Answer> mixed = runCalls(*several.engine, calls, 64);
  for (size_t i = 1; i < calls.size(); i++) calls[i].adapter = several.adapter(static_cast<int>(random.integer(0, 2)));
  CHECK(runCalls(*several.engine, calls, 64)[0].states == mixed[0].states);
}
