// The engine against a forward pass in double, and against itself. The float tolerance is 1e-4 of the largest value.
#include <algorithm>
#include <memory>
#include "../testing/engine.h"

using namespace pie;
using testing::Random;

namespace {

constexpr double TOLERANCE = 1e-4;

std::unique_ptr<Engine> make(const TinyModel& model) { return Engine::create(model.options, model.source()); }

std::vector<uint8_t> randomMask(Random& random, int rows, int keys, double density) {
  std::vector<uint8_t> mask(static_cast<size_t>(rows) * keys);
  for (uint8_t& each : mask) each = random.uniform() < density ? 1 : 0;
  return mask;
}

// Decodes and prefills, masks of all kinds, embeds, calls without writes, and a call that reads what another of the batch writes.
std::vector<Call> mixedBatch(Random& random) {
  std::vector<Call> calls;
  calls.push_back(makeCall(randomTokens(random, 5), range(0, 12), range(40, 45)));
  calls.push_back(makeCall(randomTokens(random, 1), range(12, 19), range(45, 46)));
  calls.push_back(makeCall(randomTokens(random, 3)));
  std::vector<uint32_t> context = range(0, 12);
  for (const uint32_t slot : range(40, 45)) context.push_back(slot);
  calls.push_back(makeCall(randomTokens(random, 2), context, range(50, 52)));
  calls.push_back(makeCall(randomTokens(random, 4), range(0, 12), {}));
  calls.back().mask = randomMask(random, 4, 16, 0.5);
  calls.push_back(makeCall(randomTokens(random, 1), range(0, 19), range(60, 61)));
  calls.back().mask = randomMask(random, 1, 20, 0.3);
  Call embeds = makeCall({}, range(3, 9), {});
  embeds.embeds = random.normals<float>(2 * 32);
  embeds.positions = {6, 7};
  embeds.outputRows = 2;
  calls.push_back(embeds);
  calls.push_back(makeCall(randomTokens(random, 3)));
  calls.back().mask = {0, 0, 0, 0, 0, 1, 0, 0, 1};  // The three rows see nothing, only a later input, only themselves.
  calls.push_back(makeCall(randomTokens(random, 1)));
  calls.back().mask = {0};
  return calls;
}

std::vector<Call> contextOf(Random& random) { return {makeCall(randomTokens(random, 19), {}, range(0, 19))}; }

}  // namespace

TEST("a batch of every kind of sequence matches the forward pass in double, in every variant") {
  const std::vector<Variant> variants = {
      {}, {.bias = true, .tied = true}, {.norms = true, .headDim = 16}, {.heads = 6, .kvHeads = 1, .headDim = 4, .hidden = 24, .layers = 3}};
  for (size_t v = 0; v < variants.size(); v++) {
    const TinyModel model = tinyModel(7 + v, variants[v]);
    const auto engine = make(model);
    Reference reference(model);
    Random random(3);
    const int hidden = variants[v].hidden;
    const std::vector<Call> context = contextOf(random);
    CHECK(errorOf(runCalls(*engine, context, hidden), reference.forward(context)) < TOLERANCE);
    std::vector<Call> calls = mixedBatch(random);
    if (hidden != 32) calls[6].embeds = random.normals<float>(2 * hidden);
    CHECK(errorOf(runCalls(*engine, calls, hidden), reference.forward(calls)) < TOLERANCE);
    for (Call& call : calls) call.attention = true;
    CHECK(errorOf(runCalls(*engine, calls, hidden), reference.forward(calls)) < TOLERANCE);
  }
}

TEST("the last layer computes only the wanted rows if they are few, with the same results") {
  TinyModel model = tinyModel(20);
  model.options.graphs = false;
  const auto engine = make(model);
  Reference reference(model);
  Random random(81);
  std::vector<Call> calls = {makeCall(randomTokens(random, 20), {}, range(0, 20)), makeCall(randomTokens(random, 9)),
                             makeCall(randomTokens(random, 8)), makeCall(randomTokens(random, 6))};
  const std::vector<Reference::Output> expected = reference.forward(calls);
  calls[0].outputRows = 2;
  calls[1].outputRows = 4;
  calls[1].states = false;
  calls[2].outputRows = 8;
  calls[2].topK = 0;
  calls[3].outputRows = 6;
  calls[3].topK = 0;
  calls[3].states = false;
  const std::vector<Answer> answers = runCalls(*engine, calls);
  const auto tail = [](const std::vector<double>& values, size_t count) {
    return std::vector<double>(values.end() - static_cast<ptrdiff_t>(count), values.end());
  };
  for (size_t i = 0; i < calls.size(); i++) {
    CHECK(relativeError(answers[i].states, tail(expected[i].states, answers[i].states.size())) < TOLERANCE);
    CHECK(relativeError(byToken(answers[i], 61), tail(expected[i].logProbabilities, answers[i].tokens.size())) < TOLERANCE);
  }
  // The last layer wrote the keys and values of all rows of the first call to the pool.
  const std::vector<Call> after = {makeCall({5}, range(0, 20))};
  CHECK(errorOf(runCalls(*engine, after), reference.forward(after)) < TOLERANCE);
}

TEST("a prefill equals steps of one token each, and a ragged batch equals each sequence alone") {
  const TinyModel model = tinyModel(11);
  const auto engine = make(model);
  Random random(5);
  const std::vector<uint32_t> tokens = randomTokens(random, 20);
  const Answer whole = runCalls(*engine, {makeCall(tokens, {}, range(0, 20))})[0];
  for (uint32_t i = 0; i < 20; i++) {
    const Answer step = runCalls(*engine, {makeCall({tokens[i]}, range(100, 100 + i), range(100 + i, 101 + i))})[0];
    const std::vector<float> expected(whole.states.begin() + i * 32, whole.states.begin() + (i + 1) * 32);
    CHECK(relativeError(step.states, expected) < TOLERANCE);
  }
  runCalls(*engine, contextOf(random));
  const std::vector<Call> calls = mixedBatch(random);
  const std::vector<Answer> together = runCalls(*engine, calls);
  for (size_t i = 0; i < calls.size(); i++) {
    const Answer alone = runCalls(*engine, {calls[i]})[0];
    CHECK(relativeError(together[i].states, alone.states) < TOLERANCE);
    CHECK(relativeError(byToken(together[i], 61), byToken(alone, 61)) < TOLERANCE);
  }
}

TEST("results with and without graphs are bit-identical, also when a graph is replayed for other batches of its bucket") {
  TinyModel model = tinyModel(12);
  const auto with = make(model);
  model.options.graphs = false;
  const auto without = make(model);
  for (Engine* engine : {with.get(), without.get()}) {
    Random random(9);
    runCalls(*engine, contextOf(random));
  }
  Random random(21);
  for (int round = 0; round < 36; round++) {
    std::vector<Call> calls;
    const int count = static_cast<int>(random.integer(3, 4));
    for (int i = 0; i < count; i++) {
      calls.push_back(makeCall(randomTokens(random, 1), range(0, static_cast<uint32_t>(random.integer(0, 18))), range(30 + i, 31 + i)));
      calls.back().topK = round % 3 == 0 ? 5 : 1;
      calls.back().states = round % 4 == 1;
      if (round % 5 == 2) calls.back().mask = randomMask(random, 1, calls.back().keys(), 0.5);
    }
    const std::vector<Answer> a = runCalls(*with, calls), b = runCalls(*without, calls);
    for (size_t i = 0; i < a.size(); i++) {
      CHECK(a[i].tokens == b[i].tokens);
      CHECK(a[i].logProbabilities == b[i].logProbabilities);
      CHECK(a[i].states == b[i].states);
    }
  }
}

TEST("a bucket is captured at its third use, once per area") {
  const TinyModel model = tinyModel(19);
  const auto engine = make(model);
  std::vector<size_t> captured;
  for (int i = 0; i < 7; i++) {
    runCalls(*engine, {makeCall({1, 2, 3})});
    captured.push_back(engine->graphs().captured);
  }
  // Steps alternate between two areas (memory for uploads and results), so the areas have their third use in the fifth and the sixth step.
  CHECK(captured == std::vector<size_t>({0, 0, 0, 0, 1, 2, 2}));
  CHECK_EQUAL(engine->graphs().refused, 0u);
}

TEST("a batch that does not fit one step is computed in several, with the same results") {
  TinyModel model = tinyModel(13);
  const auto large = make(model);
  model.options.maxRows = 7;
  model.options.maxSequences = 3;
  model.options.scratchSlots = 30;
  const auto small = make(model);
  Random random(31);
  const std::vector<Call> context = contextOf(random);
  for (Engine* engine : {large.get(), small.get()}) runCalls(*engine, context);
  for (int round = 0; round < 3; round++) {
    std::vector<Call> calls = mixedBatch(random);
    // A long sequence that keeps no keys, one that does, and a long one whose mask shows no later input.
    calls.push_back(makeCall(randomTokens(random, 23), range(0, 5), {}));
    calls.push_back(makeCall(randomTokens(random, 17), range(0, 12), range(80, 97)));
    calls.push_back(makeCall(randomTokens(random, 16), range(2, 9), range(100, 116)));
    std::vector<uint8_t> mask = randomMask(random, 16, 23, 0.6);
    for (int row = 0; row < 16; row++)
      for (int input = row + 1; input < 16; input++) mask[row * 23 + 7 + input] = 0;
    calls.back().mask = mask;
    if (round == 1)
      for (Call& call : calls) call.attention = true;
    if (round == 2)
      for (Call& call : calls) call.outputRows = (call.outputRows + 1) / 2;
    const std::vector<Answer> expected = runCalls(*large, calls), actual = runCalls(*small, calls);
    for (size_t i = 0; i < calls.size(); i++) {
      CHECK(relativeError(actual[i].states, expected[i].states) < TOLERANCE);
      CHECK(relativeError(byToken(actual[i], 61), byToken(expected[i], 61)) < TOLERANCE);
      CHECK(relativeError(actual[i].attention, expected[i].attention) < TOLERANCE);
    }
  }
  Call bidirectional = makeCall(randomTokens(random, 9));
  bidirectional.mask.assign(81, 1);
  CHECK_THROWS(runCalls(*small, {bidirectional}), "no place to cut");
  CHECK_THROWS(runCalls(*small, {makeCall(randomTokens(random, 31))}), "there is room for 30");
  CHECK(runCalls(*small, {}).empty());
}

TEST("the head obeys the allowed tokens, the draws and the number of tokens of each call") {
  const TinyModel model = tinyModel(15);
  const auto engine = make(model);
  Random random(51);
  std::vector<Call> calls;
  for (int i = 0; i < 3; i++) {
    calls.push_back(makeCall(randomTokens(random, 3)));
    calls.back().outputRows = 2;
    calls.back().topK = i == 0 ? 61 : 6;
    if (i > 0) calls.back().allowed = {0x0000f0f0u, 0x1u, 0xffffffffu, 0x0u};
    if (i == 2) calls.back().draws = {{0, 1, 0, 1, 1}, {0, 1, 0, 1, 2}};
  }
  for (int round = 0; round < 7; round++) {  // Directly, captured, replayed.
    const std::vector<Answer> answers = runCalls(*engine, calls);
    CHECK_EQUAL(answers[0].tokens.size(), 122u);
    for (int i = 1; i < 3; i++)
      for (int k = 0; k < 12; k++) {
        const uint32_t token = answers[i].tokens[k];
        CHECK((calls[i].allowed[k / 6 * 2 + token / 32] >> (token % 32) & 1) == 1);
      }
    CHECK(answers[1].drawn.empty());
    REQUIRE(answers[2].drawn.size() == 2);
    CHECK_EQUAL(answers[2].drawn[0], 0u);
    CHECK_EQUAL(answers[2].drawn[1], 0u);
  }
}

TEST("two steps in flight do not disturb each other, nor do copies and projections between them") {
  const TinyModel model = tinyModel(16);
  const auto engine = make(model), alone = make(model);
  Random random(61);
  for (Engine* each : {engine.get(), alone.get()}) {
    Random same(62);
    runCalls(*each, contextOf(same));
  }
  std::vector<std::vector<Call>> batches;
  std::vector<std::vector<Answer>> expected;
  for (int i = 0; i < 8; i++) {
    const Call first = makeCall(randomTokens(random, 1 + i % 3), range(0, 19), range(40, 41 + i % 3));
    batches.push_back({first, makeCall(randomTokens(random, 1), range(0, 10), range(60, 61))});
    if (i == 5) batches.back().push_back(makeCall(randomTokens(random, 60)));
    if (i == 5) batches.back().push_back(makeCall(randomTokens(random, 50)));  // Needs two device steps.
    expected.push_back(runCalls(*alone, batches.back()));
  }
  uint64_t before = 0;
  const auto check = [&](uint64_t step, int batch) {
    const std::vector<Answer> answers = answersOf(engine->wait(step), batches[batch], 32);
    for (size_t k = 0; k < answers.size(); k++) CHECK(answers[k].states == expected[batch][k].states);
  };
  for (int i = 0; i < 8; i++) {
    const uint64_t step = submitCalls(*engine, batches[i]);
    if (i == 3) {
      const std::vector<uint32_t> from = range(0, 8), to = range(120, 128);
      engine->copySlots(from.data(), to.data(), nullptr, 8);
      uint32_t token;
      float logProbability;
      engine->project(expected[0][0].states.data(), 1, 1, &token, &logProbability);
      CHECK_EQUAL(token, expected[0][0].tokens[0]);
    }
    if (i > 0) check(before, i - 1);
    before = step;
  }
  check(before, 7);
  check(before, 7);
  CHECK_THROWS(engine->wait(before + 1), "never submitted");
  CHECK_THROWS(engine->wait(before - 2), "gone");
}

TEST("bf16 stays near the forward pass in double, with fast and plain kernels") {
  for (const int headDim : {8, 64}) {
    TinyModel model = tinyModel(17, {.heads = 2, .kvHeads = 1, .headDim = headDim, .hidden = 64, .intermediate = 128});
    model.options.precision = Precision::Bf16;
    const auto engine = make(model);
    Reference reference(model);
    Random random(71);
    const std::vector<Call> context = contextOf(random);
    std::vector<Call> calls = mixedBatch(random);
    calls[6].embeds = random.normals<float>(2 * 64);
    const double first = errorOf(runCalls(*engine, context, 64), reference.forward(context));
    const double second = errorOf(runCalls(*engine, calls, 64), reference.forward(calls));
    CHECK(first < 0.06 && second < 0.06);
    CHECK(first > 1e-5);  // A smaller error would mean that the engine did not compute in bf16.
  }
}

// Quantises the weights of a product as `precision` does, and dequantises the result.
std::vector<float> dequantised(const std::vector<float>& weight, int inputs, Precision precision, bool isHead = false) {
  const bool four = precision == Precision::Int4 && !isHead && inputs % 32 == 0;
  if (inputs % 16 != 0) return weight;
  const int together = !four ? inputs : inputs % 128 == 0 ? 128 : inputs % 64 == 0 ? 64 : 32;
  std::vector<float> result(weight.size());
  for (size_t first = 0; first < weight.size(); first += together) {
    float most = 0, least = 0;
    const auto valueOf = [&](int i) { return __bfloat162float(__float2bfloat16(weight[first + i])); };
    for (int i = 0; i < together; i++) most = std::max(most, valueOf(i)), least = std::min(least, valueOf(i));
    const float size = std::max(most, -least);
    for (int i = 0; i < together; i++) {
      float& to = result[first + i];
      if (four) {
        const int exponent = std::ilogb(size / 8) - 4;
        const float scale = (most >= -least ? -1.0f : 1.0f) * std::ldexp(std::nearbyint(std::ldexp(size / 8, -exponent)), exponent);
        to = std::min(std::max(std::rint(valueOf(i) / scale), -8.0f), 7.0f) * scale;
      } else if (precision == Precision::Fp8) {
        // The step is an eighth of the power of two below the value, at least 2⁻⁹.
        const float scale = size / 448, value = valueOf(i) / scale, step = std::ldexp(1.0f, std::max(value == 0 ? -6 : std::ilogb(value), -6) - 3);
        to = std::rint(value / step) * step * scale;
      } else {
        to = std::rint(valueOf(i) / (size / 127)) * (size / 127);
      }
    }
  }
  return result;
}

TEST("quantised weights give the results of their dequantised values, tied or not, with adapters, in less memory") {
  for (const int kind : {0, 1, 2, 3, 4, 5}) {
    const Precision precision = kind < 2 ? Precision::Int8 : kind < 4 ? Precision::Fp8 : Precision::Int4;
    const bool tied = kind % 2 == 1;
    // 136 is no multiple of 16, so the matrices with 136 inputs stay bf16.
    TinyModel model = tinyModel(19 + tied, {.bias = tied, .tied = tied, .headDim = 16, .hidden = 64, .intermediate = tied ? 136 : 128});
    ModelShape& shape = model.options.shape;
    // Makes the quantisation error much larger than the rounding of activations: the first value of each row dominates the row's scale, so few bits
    // are left for the other values. A norm makes the first input small, so that the dominating value adds little to the product.
    Random random(90);
    TinyModel narrow = model;
    for (auto& [name, values] : model.tensors) {
      if (name.find("norm") != std::string::npos) values[0] = 1e-3f, narrow.tensors[name] = values;
      const bool product = name.find("_proj.weight") != std::string::npos || name == "lm_head.weight";
      if (!product) continue;
      const bool output = name.find("o_proj") != std::string::npos, down = name.find("down_proj") != std::string::npos, normed = !output && !down;
      const int inputs = output ? shape.queryWidth() : down ? shape.intermediate : shape.hidden;
      for (size_t row = 0; row < values.size() && normed; row += inputs) values[row] = 10;
      narrow.tensors[name] = dequantised(values, inputs, precision, name == "lm_head.weight");
    }
    if (tied) narrow.tensors["lm_head.weight"] = dequantised(model.tensors.at("model.embed_tokens.weight"), shape.hidden, precision, true);
    narrow.options.tiedEmbeddings = false;
    const auto wide = make(model);
    model.options.precision = Precision::Bf16;
    const auto half = make(model);
    model.options.precision = precision;
    const auto engine = make(model);
    CHECK(engine->memory().weights < (tied ? 0.8 : precision == Precision::Int4 ? 0.45 : 0.6) * half->memory().weights);
    Reference expected(narrow), original(model);
    const std::vector<Call> context = contextOf(random);
    std::vector<Call> calls = mixedBatch(random);
    calls[6].embeds = random.normals<float>(2 * 64);
    original.forward(context);
    expected.forward(context);
    for (int round = 0; round < 3; round++) runCalls(*engine, context, 64);
    const std::vector<Answer> answers = runCalls(*engine, calls, 64);
    const double error = errorOf(answers, expected.forward(calls)), otherwise = errorOf(answers, original.forward(calls));
    CHECK(error < 0.06);
    // e4m3 has a floating exponent, so a dominating value does not cost the others precision: the error is their rounding alone.
    CHECK(otherwise > (precision == Precision::Fp8 ? 2 : 10) * error);
    const std::vector<float> a = random.normals<float>(64 * 2, 0.3), b = random.normals<float>(64 * 2, 0.3);
    const auto adapter = engine->loadAdapter({{1, "q_proj", 2, 64, 64, a.data(), b.data()}});
    TinyModel merged = narrow;
    std::vector<float>& q = merged.tensors.at("model.layers.1.self_attn.q_proj.weight");
    for (int o = 0; o < 64; o++)
      for (int i = 0; i < 64; i++) q[o * 64 + i] += b[o * 2] * a[i] + b[o * 2 + 1] * a[64 + i];
    Reference adapted(merged);
    adapted.forward(context);
    runCalls(*engine, context, 64, adapter.get());
    CHECK(errorOf(runCalls(*engine, calls, 64, adapter.get()), adapted.forward(calls)) < 0.06);
  }
}

TEST("arguments that do not fit the model or the pool are refused before anything is started") {
  const TinyModel model = tinyModel(18);
  const auto engine = make(model);
  const Call good = makeCall({1, 2});
  const auto refused = [&](const char* part, const auto& change) {
    Call bad = good;
    change(bad);
    CHECK_THROWS(runCalls(*engine, {good, bad}), part);
  };
  refused("token 61", [](Call& c) { c.tokens[1] = 61; });
  refused("slot 192", [](Call& c) { c.context = {192}; });
  refused("slot 4000000000", [](Call& c) { c.writes = {0, 4000000000u}; });
  refused("outputs of 3", [](Call& c) { c.outputRows = 3; });
  refused("62 tokens", [](Call& c) { c.topK = 62; });
  refused("no inputs", [](Call& c) { c.positions.clear(); });
  refused("either tokens or embeds", [](Call& c) { c.tokens.clear(); });
  refused("or picked tokens", [](Call& c) { c.picked = {0, 0}; });
  CHECK_EQUAL(submitCalls(*engine, {good}), 1u);
  int page = 24;
  std::vector<uint8_t> bytes(engine->pageBytes());
  CHECK_THROWS(engine->readPage(page, bytes.data()), "no page 24");
  const uint32_t from = 192, to = 0;
  CHECK_THROWS(engine->copySlots(&from, &to, nullptr, 1), "slot 192");
  const auto refusedOptions = [&](const char* part, const auto& change) {
    TinyModel bad = model;
    change(bad.options);
    CHECK_THROWS(make(bad), part);
  };
  refusedOptions("headDim", [](EngineOptions& o) { o.shape.headDim = 7; });
  refusedOptions("multiple of kvHeads", [](EngineOptions& o) { o.shape.kvHeads = 3; });
  refusedOptions("frequencies", [](EngineOptions& o) { o.frequencies.pop_back(); });
  refusedOptions("no CUDA device 3", [](EngineOptions& o) { o.device = 3; });
  refusedOptions("the shape says", [](EngineOptions& o) { o.shape.vocabulary = 60; });
}
