// Copies of slots, and pages moved to and from the host.
#include <algorithm>
#include <cstring>
#include <memory>
#include "../../testing/engine.h"

using namespace pie;
using testing::Random;

namespace {

constexpr double TOLERANCE = 1e-4;

std::unique_ptr<Engine> make(const TinyModel& model) { return Engine::create(model.options, model.source()); }

double difference(const Answer& a, const Answer& b) {
  return std::max(relativeError(a.states, b.states), relativeError(byToken(a, 61), byToken(b, 61)));
}

std::vector<uint32_t> shuffled(Random& random, std::vector<uint32_t> values) {
  for (size_t i = values.size(); i > 1; i--) std::swap(values[i - 1], values[random.integer(0, static_cast<int64_t>(i) - 1)]);
  return values;
}

}  // namespace

TEST("copied slots equal their sources, in any order and number; shifts rotate keys") {
  const TinyModel model = tinyModel(21);
  const auto engine = make(model);
  Random random(5);
  const std::vector<uint32_t> tokens = randomTokens(random, 60), question = randomTokens(random, 2);
  runCalls(*engine, {makeCall(tokens, {}, range(0, 60))});
  const auto ask = [&](const std::vector<uint32_t>& context, uint32_t start) {
    Call call = makeCall(question, context);
    call.positions = {start, start + 1};
    return runCalls(*engine, {call})[0];
  };
  const Answer original = ask(range(0, 60), 60);
  const std::vector<uint32_t> sources = range(0, 60), away = shuffled(random, range(100, 160));
  engine->copySlots(sources.data(), away.data(), nullptr, 60);
  CHECK(difference(ask(away, 60), original) < TOLERANCE);
  // Copies the slots one to the right over themselves, then permutes the whole pool.
  const std::vector<uint32_t> right = range(1, 61);
  engine->copySlots(sources.data(), right.data(), nullptr, 60);
  CHECK(difference(ask(right, 60), original) < TOLERANCE);
  const std::vector<uint32_t> everything = range(0, 192);
  const std::vector<uint32_t> turned = shuffled(random, everything);
  engine->copySlots(everything.data(), turned.data(), nullptr, 192);
  std::vector<uint32_t> now;
  for (const uint32_t slot : right) now.push_back(turned[slot]);
  CHECK(difference(ask(now, 60), original) < TOLERANCE);

  for (const int32_t shift : {7, -30, 50000}) {
    Call prefill = makeCall(std::vector<uint32_t>(tokens.begin(), tokens.begin() + 9), {}, range(0, 9));
    prefill.positions = range(30, 39);
    runCalls(*engine, {prefill});
    const std::vector<uint32_t> to = range(40, 49);
    const std::vector<int32_t> shifts(9, shift);
    engine->copySlots(sources.data(), to.data(), shifts.data(), 9);
    prefill.positions = range(30 + shift, 39 + shift);
    prefill.writes = range(20, 29);
    runCalls(*engine, {prefill});
    CHECK(difference(ask(to, 39 + shift), ask(range(20, 29), 39 + shift)) < TOLERANCE);
  }
}

TEST("copies that need several rounds give the same result") {
  // The slots are large compared with the scratch memory: a round holds 64.
  TinyModel model = tinyModel(22, {.heads = 16, .kvHeads = 16, .headDim = 16, .intermediate = 8, .vocabulary = 3, .layers = 6});
  model.options.pageCount = 72;
  const auto engine = make(model);
  Random random(6);
  std::vector<uint8_t> pool(engine->pageBytes() * 72), after(pool.size());
  std::vector<int> pages;
  for (int i = 0; i < 72; i++) pages.push_back(i);
  for (size_t i = 0; i < pool.size(); i += 4) {
    const float value = static_cast<float>(random.normal());
    std::memcpy(pool.data() + i, &value, 4);
  }
  engine->writePages(pages.data(), 72, pool.data());
  const std::vector<uint32_t> sources = range(0, 576), destinations = shuffled(random, sources);
  engine->copySlots(sources.data(), destinations.data(), nullptr, 576);
  engine->readPages(pages.data(), 72, after.data());
  const size_t slotBytes = engine->pageBytes() / 8 / 6, layerBytes = engine->pageBytes() / 6;
  size_t wrong = 0;
  const auto at = [&](std::vector<uint8_t>& bytes, uint32_t slot, int layer) {
    return bytes.data() + slot / 8 * engine->pageBytes() + layer * layerBytes + slot % 8 * slotBytes;
  };
  for (uint32_t i = 0; i < 576; i++)
    for (int layer = 0; layer < 6; layer++) wrong += std::memcmp(at(pool, i, layer), at(after, destinations[i], layer), slotBytes) != 0;
  CHECK_EQUAL(wrong, 0u);
}

TEST("pages are read and written bit for bit, at any host address, during a running step") {
  TinyModel model = tinyModel(23);
  struct Kept {
    Precision precision;
    KvPrecision kv;
    size_t slotBytes;
  };
  // A float8 slot has 32 codes and 2 × 2 scales of 2 bytes, padded to whole sectors of 32 bytes.
  for (const auto& [precision, kv, slotBytes] :
       {Kept{Precision::Float32, KvPrecision::AsComputed, 128}, Kept{Precision::Bf16, KvPrecision::AsComputed, 64},
        Kept{Precision::Bf16, KvPrecision::Fp8, 64}}) {
    model.options.precision = precision, model.options.kv = kv;
    const auto engine = make(model);
    CHECK_EQUAL(engine->pageBytes(), 2 * 8 * slotBytes);
    Random random(7);
    std::vector<uint8_t> bytes(engine->pageBytes() + 3), back(engine->pageBytes() + 3);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random.bits());
    engine->writePage(5, bytes.data() + 3);
    engine->readPage(5, back.data() + 1);
    CHECK(std::memcmp(bytes.data() + 3, back.data() + 1, engine->pageBytes()) == 0);
    std::fill(bytes.begin(), bytes.end(), 0);
    engine->writePage(5, bytes.data());

    const Call prefill = makeCall(randomTokens(random, 20), {}, range(16, 36)), question = makeCall(randomTokens(random, 1), range(16, 36));
    runCalls(*engine, {prefill});
    const Answer before = runCalls(*engine, {question})[0];
    const int pages[] = {2, 3, 4};
    std::vector<uint8_t> out(3 * engine->pageBytes());
    const uint64_t other = submitCalls(*engine, {makeCall(randomTokens(random, 9), {}, range(80, 89))});
    engine->readPages(pages, 3, out.data());
    engine->wait(other);
    Call overwrite = prefill;
    for (uint32_t& token : overwrite.tokens) token = (token + 1) % 61;
    runCalls(*engine, {overwrite});
    CHECK(difference(runCalls(*engine, {question})[0], before) > 1e-3);
    const int elsewhere[] = {20, 3, 21};
    engine->writePages(elsewhere, 3, out.data());
    Call moved = question;
    for (uint32_t& slot : moved.context) slot = slot < 24 ? slot + 144 : slot >= 32 ? slot + 136 : slot;
    CHECK(runCalls(*engine, {moved})[0].states == before.states);
    // A queued copy completes before its page is read.
    const std::vector<uint32_t> from = range(16, 24), to = range(88, 96);
    engine->copySlots(from.data(), to.data(), nullptr, 8);
    std::vector<uint8_t> first(engine->pageBytes()), second(engine->pageBytes());
    engine->readPage(11, first.data());
    engine->readPage(2, second.data());
    CHECK(first == second);
  }
}

TEST("pages are written and read bit for bit if the size of a slot is no multiple of 16 bytes") {
  TinyModel model = tinyModel(25, {.heads = 2, .kvHeads = 1, .headDim = 2});
  model.options.precision = Precision::Bf16;
  const auto engine = make(model);
  CHECK_EQUAL(engine->pageBytes(), size_t{2} * 8 * 8);
  Random random(9);
  std::vector<uint8_t> bytes(2 * engine->pageBytes()), back(bytes.size());
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random.bits());
  const int pages[] = {7, 0};
  engine->writePages(pages, 2, bytes.data());
  engine->readPages(pages, 2, back.data());
  CHECK(bytes == back);
}
