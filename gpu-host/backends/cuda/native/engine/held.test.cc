// Calls that must not wait for the device, on a device that stands still.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include "../device/device.h"
#include "../testing/engine.h"
#ifdef PIE_EMULATED
#include "../emulation/faults.h"
#include "../emulation/hold.h"

using namespace pie;
using testing::Random;

namespace {

std::unique_ptr<Engine> make(const TinyModel& model) { return Engine::create(model.options, model.source()); }

void readSettled(Engine& engine, int page, uint8_t* into) {
  std::fill_n(into, engine.pageBytes(), uint8_t{7});
  engine.queueReadPage(page, into);
  engine.settlePages();
}

}  // namespace

TEST("graphs are evicted and steps submitted while the device stands still") {
  const TinyModel model = tinyModel(51);
  const auto engine = make(model);
  Random random(8);
  const Call first = makeCall({1, 2, 3});
  for (int i = 0; i < 6; i++) runCalls(*engine, {first});
  CHECK_EQUAL(engine->graphs().captured, 2u);
  // Batches of many shapes, of which each is used once: tokens of some rows, states of others.
  std::vector<std::vector<Call>> shapes;
  for (const int rows : {8, 12, 16, 24, 32})
    for (const int heads : {1, 2, 4, 8})
      for (const int states : {0, 1, 2, 4, 8})
        for (const int topK : {1, 61}) {
          Call tokens = makeCall(randomTokens(random, rows)), kept = makeCall(randomTokens(random, rows));
          tokens.outputRows = heads;
          tokens.topK = topK;
          tokens.states = false;
          kept.outputRows = states;
          kept.topK = 0;
          kept.states = states > 0;
          shapes.push_back({tokens, kept});
        }
  size_t next = 0;
  // Runs new shapes until one evicts the oldest graph.
  while (next < shapes.size() && engine->graphs().captured == 2) runCalls(*engine, shapes[next++]);
  REQUIRE(next + 2 < shapes.size());
  CHECK_EQUAL(engine->graphs().captured, 1u);
  std::vector<uint64_t> steps;
  {
    const emulation::Hold hold;
    for (int i = 0; i < 2; i++) steps.push_back(submitCalls(*engine, shapes[next + i]));
    CHECK_EQUAL(engine->graphs().captured, 0u);
  }
  for (const uint64_t step : steps) engine->wait(step);
  CHECK_EQUAL(runCalls(*engine, {first})[0].tokens.size(), 3u * 61u);
}

TEST("steps are submitted while a projection and a scoring wait for the device, with the same results") {
  const TinyModel model = tinyModel(52);
  const auto engine = make(model);
  Random random(9);
  const Call call = makeCall({1, 2, 3});
  const std::vector<float> states = random.normals<float>(3 * 32);
  const std::vector<uint32_t> asked = randomTokens(random, 5);
  const std::vector<int> first = {0, 2, 2, 5};
  struct Found {
    std::vector<uint32_t> tokens = std::vector<uint32_t>(3 * 4);
    std::vector<float> tops = std::vector<float>(3 * 4), scores = std::vector<float>(5), entropies = std::vector<float>(3);
  };
  const auto project = [&](Found& found) { engine->project(states.data(), 3, 4, found.tokens.data(), found.tops.data()); };
  const auto score = [&](Found& found) { engine->score(states.data(), 3, asked.data(), first.data(), found.scores.data(), found.entropies.data()); };
  Found expected, actual;
  project(expected);
  score(expected);
  const std::vector<Answer> alone = runCalls(*engine, {call});
  std::thread side;
  std::vector<uint64_t> steps;
  {
    const emulation::Hold hold;
    std::atomic<bool> begun{false};
    side = std::thread([&] {
      begun = true;
      project(actual);
      score(actual);
    });
    while (!begun) std::this_thread::yield();
    // The second step is most likely submitted after the projection is queued.
    for (int i = 0; i < 2; i++) {
      steps.push_back(submitCalls(*engine, {call}));
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
    }
  }
  for (const uint64_t step : steps) CHECK(answersOf(engine->wait(step), {call}, 32)[0].states == alone[0].states);
  side.join();
  CHECK(actual.tokens == expected.tokens && actual.tops == expected.tops);
  CHECK(actual.scores == expected.scores && actual.entropies == expected.entropies);
}

TEST("waitForPages on another thread returns only after the page moves that were queued before") {
  const TinyModel model = tinyModel(54);
  const auto engine = make(model);
  const size_t bytes = engine->pageBytes();
  std::vector<uint8_t> written(bytes);
  for (size_t i = 0; i < bytes; i++) written[i] = static_cast<uint8_t>(i % 251);
  engine->writePage(1, written.data());
  uint8_t* const pinned = static_cast<uint8_t*>(allocatePinned(2 * bytes));
  uint8_t *const first = pinned, *const second = pinned + bytes;
  std::fill_n(pinned, 2 * bytes, uint8_t{7});
  std::atomic<bool> ended{false};
  std::thread waiting;
  {
    const emulation::Hold hold;
    engine->queueReadPage(1, first);
    engine->queueWritePage(2, first);
    engine->queueReadPage(2, second);
    waiting = std::thread([&] {
      engine->waitForPages();
      ended = true;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    CHECK(!ended);
  }
  waiting.join();
  CHECK(std::equal(written.begin(), written.end(), first) && std::equal(written.begin(), written.end(), second));
  engine->waitForPages();
  freePinned(pinned);
}

TEST("page moves are queued while the device stands still, in order with copies of slots, steps and each other") {
  const TinyModel model = tinyModel(53);
  const auto queued = make(model), waited = make(model);
  const size_t bytes = queued->pageBytes();
  struct Pinned {
    explicit Pinned(size_t count) : data(static_cast<uint8_t*>(allocatePinned(count))) { std::fill_n(data, count, uint8_t{7}); }
    ~Pinned() { freePinned(data); }
    uint8_t* data;
  };
  const Call fill = makeCall({1, 2, 3, 4, 5, 6, 7, 8}, {}, range(0, 8));
  const std::vector<uint32_t> from = range(24, 32), to = range(32, 40);
  const Call read = makeCall({9}, range(32, 40), {41}), overwrite = makeCall({4, 3}, {}, {0, 1});
  std::vector<std::vector<uint8_t>> pages;
  std::vector<std::vector<Answer>> answers;
  for (Engine* engine : {queued.get(), waited.get()}) {
    runCalls(*engine, {fill});
    const Pinned first(bytes), second(bytes);
    std::vector<uint64_t> steps;
    {
      std::unique_ptr<emulation::Hold> hold;
      const auto readPage = [&](int page, uint8_t* into) {
        engine == queued.get() ? engine->queueReadPage(page, into) : engine->readPage(page, into);
      };
      const auto writePage = [&](int page, const uint8_t* bytes) {
        engine == queued.get() ? engine->queueWritePage(page, bytes) : engine->writePage(page, bytes);
      };
      if (engine == queued.get()) hold = std::make_unique<emulation::Hold>();
      readPage(0, first.data);
      writePage(3, first.data);
      engine->copySlots(from.data(), to.data(), nullptr, 8);
      steps.push_back(submitCalls(*engine, {read}));
      // This step writes to the page that the first move reads.
      steps.push_back(submitCalls(*engine, {overwrite}));
      readPage(3, second.data);
      // Reuses the host memory of the first move, and writes page 3 a second time.
      readPage(7, first.data);
      writePage(3, first.data);
      writePage(2, second.data);
    }
    std::vector<Answer> all = answersOf(engine->wait(steps[0]), {read}, 32);
    all.push_back(answersOf(engine->wait(steps[1]), {overwrite}, 32)[0]);
    answers.push_back(std::move(all));
    engine->settlePages();
    std::vector<uint8_t> found(6 * bytes);  // The memory of `first` and `second`, then pages 2, 3, 4 and 0.
    std::copy_n(first.data, bytes, found.begin());
    std::copy_n(second.data, bytes, found.begin() + static_cast<long>(bytes));
    // settlePages also waits for a slow move.
    emulation::slowDown(5000);
    readSettled(*engine, 4, second.data);
    emulation::slowDown(0);
    CHECK(std::equal(second.data, second.data + bytes, found.begin() + static_cast<long>(bytes)));
    for (const int page : {0, 2, 3, 4}) engine->readPage(page, &found[static_cast<size_t>(page == 0 ? 5 : page) * bytes]);
    pages.push_back(std::move(found));
  }
  CHECK(pages[0] == pages[1]);
  const auto second = pages[0].begin() + static_cast<long>(bytes);
  CHECK(std::any_of(second, second + static_cast<long>(bytes), [](uint8_t byte) { return byte != 0; }));
  for (size_t i = 0; i < 2; i++) CHECK(answers[0][i].states == answers[1][i].states);
}

#endif
