// Compares steps that are submitted before the previous step has ended, with its picked tokens as inputs, with the same steps with explicit tokens.
#include <memory>
#include "../testing/engine.h"

using namespace pie;
using testing::Random;

namespace {

constexpr int SEQUENCES = 3, STEPS = 14, ROOM = 20;

// Requests by kind: 0 the most probable token, 1 a draw among five, 2 the five most probable tokens and the states, 3 a draw among allowed tokens.
Call asking(int kind, int step) {
  Call call;
  call.outputRows = 1;
  call.topK = kind == 0 ? 1 : 5;
  call.states = kind == 2;
  if (kind % 2 == 1) call.draws.push_back({1.5f, 0.95f, 0.01f, 77u + static_cast<uint32_t>(kind), static_cast<uint32_t>(step)});
  if (kind == 3) call.allowed = {0x10410, 0x80};
  return call;
}

// A call with the one input of a sequence at `step`, without the token itself. Each sequence has its own slots.
Call decode(int sequence, int kind, int step) {
  Call call = asking(kind, step);
  const uint32_t first = static_cast<uint32_t>(sequence) * ROOM, at = first + static_cast<uint32_t>(step);
  call.positions = {static_cast<uint32_t>(step)};
  call.context = range(first, at);
  call.writes = {at};
  return call;
}

uint32_t pickedOf(const Call& call, const Answer& answer) { return answer.tokens[call.draws.empty() ? 0 : answer.drawn[0]]; }

// The order changes from step to step, so that a sequence has different rows in consecutive steps.
std::vector<int> orderOf(int step) {
  std::vector<int> order;
  for (int i = 0; i < SEQUENCES; i++) order.push_back((i + step) % SEQUENCES);
  return order;
}

using Transcript = std::vector<std::vector<Answer>>;

Transcript oneByOne(Engine& engine, const std::vector<int>& kinds) {
  Transcript all;
  std::vector<uint32_t> tokens(SEQUENCES, 3);
  for (int step = 0; step < STEPS; step++) {
    const std::vector<int> order = orderOf(step);
    std::vector<Call> calls;
    for (const int sequence : order) {
      calls.push_back(decode(sequence, kinds[sequence], step));
      calls.back().tokens = {tokens[sequence]};
    }
    all.push_back(runCalls(engine, calls));
    for (int i = 0; i < SEQUENCES; i++) tokens[order[i]] = pickedOf(calls[i], all.back()[i]);
  }
  return all;
}

Transcript ahead(Engine& engine, const std::vector<int>& kinds) {
  Transcript all;
  std::vector<Call> under;
  uint64_t last = 0;
  for (int step = 0; step < STEPS; step++) {
    const std::vector<int> order = orderOf(step), before = orderOf(step - 1 + SEQUENCES);
    std::vector<Call> calls;
    for (const int sequence : order) {
      calls.push_back(decode(sequence, kinds[sequence], step));
      if (step == 0) calls.back().tokens = {3};
      else calls.back().picked = {static_cast<uint32_t>(std::find(before.begin(), before.end(), sequence) - before.begin())};
    }
    const uint64_t next = submitCalls(engine, calls);
    if (step > 0) all.push_back(answersOf(engine.wait(last), under, 32));
    under = calls;
    last = next;
  }
  all.push_back(answersOf(engine.wait(last), under, 32));
  return all;
}

}  // namespace

TEST("steps submitted ahead equal steps one by one, bit for bit, in every precision, with and without graphs") {
  const auto check = [](Precision precision, bool graphs, const std::vector<int>& kinds) {
    TinyModel model = tinyModel(31, {.headDim = 16, .intermediate = 64});
    model.options.precision = precision;
    model.options.graphs = graphs;
    const auto first = Engine::create(model.options, model.source()), second = Engine::create(model.options, model.source());
    const Transcript expected = oneByOne(*first, kinds), actual = ahead(*second, kinds);
    REQUIRE(actual.size() == expected.size());
    for (size_t step = 0; step < expected.size(); step++)
      for (int i = 0; i < SEQUENCES; i++) {
        CHECK(actual[step][i].tokens == expected[step][i].tokens);
        CHECK(actual[step][i].drawn == expected[step][i].drawn);
        CHECK(actual[step][i].states == expected[step][i].states);
      }
  };
  for (const bool graphs : {true, false}) {
    // The picking of tokens does not depend on the precision, so these kinds run in one precision only.
    check(Precision::Bf16, graphs, {0, 0, 0});
    check(Precision::Bf16, graphs, {0, 1, 2});
    for (const Precision precision : {Precision::Float32, Precision::Bf16, Precision::Int8}) check(precision, graphs, {3, 2, 1});
  }
}

TEST("picked tokens can be taken in any order, also from a sequence that picks many") {
  const TinyModel model = tinyModel(32);
  const auto engine = Engine::create(model.options, model.source()), told = Engine::create(model.options, model.source());
  Random random(5);
  Call wide = makeCall(randomTokens(random, 6), {}, {});
  wide.topK = 2;
  Call without = makeCall(randomTokens(random, 2));
  without.topK = 0;
  const std::vector<Call> before = {wide, without, makeCall(randomTokens(random, 2))};
  const uint64_t step = submitCalls(*engine, before);
  Call follower = makeCall({}, {}, range(0, 4));
  follower.picked = {7, 0, 5, 5};  // Indices into 8 picked tokens: 6 of `wide`, none of `without`, 2 of the last call.
  follower.positions = range(0, 4);
  follower.outputRows = 4;
  const std::vector<Answer> after = runCalls(*engine, {follower});
  const std::vector<Answer> first = answersOf(engine->wait(step), before, 32);
  follower.tokens = {first[2].tokens[61], first[0].tokens[0], first[0].tokens[10], first[0].tokens[10]};
  follower.picked.clear();
  CHECK(after[0].states == runCalls(*told, {follower})[0].states);
}

TEST("the picked token is 0 if a row's logits are NaN or the row allows no token") {
  const TinyModel model = tinyModel(33);
  const auto engine = Engine::create(model.options, model.source()), told = Engine::create(model.options, model.source());
  Call broken = asking(1, 0), nothing = asking(0, 0), several = asking(2, 0);
  broken.embeds.assign(32, NAN);
  several.embeds.assign(32, NAN);
  nothing.tokens = {9};
  nothing.allowed = {0, 0};
  for (Call* call : {&broken, &nothing, &several}) call->positions = {0};
  const uint64_t step = submitCalls(*engine, {broken, nothing, several});
  Call follower = makeCall({0, 0, 0});
  const std::vector<Answer> expected = runCalls(*told, {follower});
  follower.tokens.clear();
  follower.picked = {0, 1, 2};
  CHECK(runCalls(*engine, {follower})[0].states == expected[0].states);
  CHECK_EQUAL(engine->wait(step).drawn[0], NOTHING_DRAWN);
}

TEST("tokens that were not picked are refused") {
  const TinyModel model = tinyModel(34);
  const auto engine = Engine::create(model.options, model.source());
  Random random(6);
  const auto taking = [](uint32_t row) {
    Call call = makeCall({0});
    call.tokens.clear();
    call.picked = {row};
    return call;
  };
  CHECK_THROWS(submitCalls(*engine, {taking(0)}), "picked token 0 of 0");
  submitCalls(*engine, {makeCall({1, 2})});
  CHECK_THROWS(submitCalls(*engine, {taking(2)}), "picked token 2 of 2");
  // A refused batch changes nothing.
  submitCalls(*engine, {taking(1)});
  // 70 rows need two steps of at most 64.
  submitCalls(*engine, {makeCall(randomTokens(random, 40)), makeCall(randomTokens(random, 30))});
  CHECK_THROWS(submitCalls(*engine, {taking(0)}), "did not fit one device step");
  submitCalls(*engine, {makeCall({1})});
  const std::vector<Call> tooLarge = {taking(0), makeCall(randomTokens(random, 40)), makeCall(randomTokens(random, 30))};
  CHECK_THROWS(submitCalls(*engine, tooLarge), "does not fit one device step");
}
