// Sequences that begin with the same slots, computed by an engine that reads these keys once for all of them.
#include <memory>
#include "../testing/engine.h"

using namespace pie;
using testing::Random;

namespace {

constexpr int SHARED = 330, SEQUENCES = 7, STEPS = 4, HIDDEN = 64;

TinyModel sharingModel(KvPrecision kv, bool graphs) {
  TinyModel model = tinyModel(61, {.heads = 4, .kvHeads = 2, .headDim = 64, .hidden = HIDDEN, .intermediate = 128});
  model.options.precision = Precision::Bf16;
  model.options.kv = kv;
  model.options.graphs = graphs;
  model.options.pageCount = 100;
  return model;
}

std::vector<Call> prompts(Random& random) {
  return {makeCall(randomTokens(random, SHARED), {}, range(0, SHARED)), makeCall(randomTokens(random, 40), {}, range(500, 540))};
}

// The calls of one decode step. All sequences but the last begin with the same prompt. `tabled`: the device keeps the sequences' slot lists.
std::vector<Call> decode(Random& random, int step, bool tabled) {
  std::vector<Call> calls;
  for (int i = 0; i < SEQUENCES; i++) {
    const bool alone = i == SEQUENCES - 1;
    const uint32_t own = 560 + 10 * static_cast<uint32_t>(i), at = own + static_cast<uint32_t>(step);
    std::vector<uint32_t> context = alone ? range(500, 540) : range(0, SHARED);
    for (uint32_t slot = own; slot < at; slot++) context.push_back(slot);
    calls.push_back(makeCall(randomTokens(random, 1), std::move(context), {at}));
    if (!tabled) continue;
    calls.back().table = i * (SHARED + 20);
    calls.back().known = step == 0 ? 0 : static_cast<int>(calls.back().context.size());
  }
  return calls;
}

std::unique_ptr<Engine> make(TinyModel model, bool sharedPrefixes = true) {
  model.options.sharedPrefixes = sharedPrefixes;
  return Engine::create(model.options, model.source());
}

}  // namespace

TEST("shared prefixes: results are near a forward pass in double and near unshared results, and tables do not change a bit") {
  for (const auto& [kv, graphs] : {std::pair{KvPrecision::AsComputed, true}, std::pair{KvPrecision::Fp8, false}}) {
    const TinyModel model = sharingModel(kv, graphs);
    const auto engine = make(model), untabled = make(model), alone = make(model, false);
    Reference reference(model);
    Random random(62);
    const std::vector<Call> first = prompts(random);
    reference.forward(first);
    for (Engine* each : {engine.get(), untabled.get(), alone.get()}) runCalls(*each, first, HIDDEN);
    int different = 0;
    for (int step = 0; step < STEPS; step++) {
      Random same(70 + step), again(70 + step);
      const std::vector<Call> tabled = decode(same, step, true), calls = decode(again, step, false);
      const std::vector<Answer> answers = runCalls(*engine, tabled, HIDDEN), others = runCalls(*untabled, calls, HIDDEN);
      const std::vector<Answer> apart = runCalls(*alone, calls, HIDDEN);
      CHECK(errorOf(answers, reference.forward(calls)) < (kv == KvPrecision::Fp8 ? 0.12 : 0.06));
      for (int i = 0; i < SEQUENCES; i++) {
        CHECK(answers[i].states == others[i].states && answers[i].logProbabilities == others[i].logProbabilities);
        CHECK(relativeError(answers[i].states, apart[i].states) < 0.03);
        different += answers[i].states != apart[i].states;
      }
    }
    // Equal bits would show that nothing was shared: keys read together give differently rounded partial results.
    CHECK(different > STEPS);
    CHECK((engine->graphs().captured > 0) == graphs);
  }
}

TEST("shared prefixes: steps submitted ahead, with tables and graphs, give the same bits as steps run one by one") {
  const TinyModel model = sharingModel(KvPrecision::AsComputed, true);
  const auto told = make(model), ahead = make(model);
  Random random(63);
  const std::vector<Call> first = prompts(random);
  runCalls(*told, first, HIDDEN), runCalls(*ahead, first, HIDDEN);
  std::vector<uint32_t> tokens(SEQUENCES, 3);
  std::vector<std::vector<Answer>> expected;
  uint64_t under = 0;
  std::vector<Call> before;
  const auto check = [&](int step) {
    const std::vector<Answer> answers = answersOf(ahead->wait(under), before, HIDDEN);
    for (int i = 0; i < SEQUENCES; i++) CHECK(answers[i].states == expected[step][i].states && answers[i].tokens == expected[step][i].tokens);
  };
  for (int step = 0; step < STEPS; step++) {
    std::vector<Call> calls = decode(random, step, false), next = decode(random, step, true);
    for (int i = 0; i < SEQUENCES; i++) {
      calls[i].tokens = {tokens[i]};
      calls[i].topK = next[i].topK = 1;
      next[i].tokens.clear();
      if (step == 0) next[i].tokens = {3};
      else next[i].picked = {static_cast<uint32_t>(i)};
    }
    expected.push_back(runCalls(*told, calls, HIDDEN));
    for (int i = 0; i < SEQUENCES; i++) tokens[i] = expected.back()[i].tokens[0];
    const uint64_t submitted = submitCalls(*ahead, next);
    if (step > 0) check(step - 1);
    under = submitted, before = next;
  }
  check(STEPS - 1);
}
