// Memory that the engine allocates and frees, and its behaviour when the device fails.
#include <algorithm>
#include <cstring>
#include <memory>
#include "../device/capability.h"
#include "../device/device.h"
#include "../testing/engine.h"
#ifdef PIE_EMULATED
#include "../emulation/faults.h"

using namespace pie;
using testing::Random;

namespace {

std::unique_ptr<Engine> make(const TinyModel& model) { return Engine::create(model.options, model.source()); }

// Restores the emulated device at the end of a case.
struct Restored {
  emulation::Device device = emulation::device();
  ~Restored() {
    emulation::restoreDevice();
    emulation::setDevice(device);
    emulation::slowDown(0);
  }
};

struct Taken {
  size_t bytes = emulation::deviceBytes(), blocks = emulation::deviceAllocations(), pinned = emulation::pinnedAllocations();
  bool operator==(const Taken& o) const { return bytes == o.bytes && blocks == o.blocks && pinned == o.pinned; }
};

std::string codeOf(const std::function<void()>& work, std::string* message = nullptr) {
  try {
    work();
  } catch (const EngineError& error) {
    if (message) *message = error.what();
    return error.code;
  }
  return "";
}

}  // namespace

TEST("an engine allocates at start what it reports, and frees all of it") {
  const Restored restored;
  const Taken before;
  TinyModel model = tinyModel(31);
  {
    const auto engine = make(model);
    const MemoryReport report = engine->memory();
    CHECK_EQUAL(report.total, report.weights + report.pool + report.scratch);
    CHECK_EQUAL(emulation::deviceBytes() - before.bytes, report.total);
    // The pool's memory would hold at least the requested number of pages.
    CHECK(report.pagesThatFit >= 24);
    Random random(1);
    for (int i = 0; i < 4; i++) {
      const Call first = makeCall(randomTokens(random, 1 + i), {}, range(0, 1 + i));
      runCalls(*engine, {first, makeCall(randomTokens(random, 40)), makeCall(randomTokens(random, 50))});
    }
    CHECK_EQUAL(emulation::deviceBytes() - before.bytes, report.total);
    const std::vector<float> a(32 * 2), b(32 * 2);
    auto adapter = engine->loadAdapter({{0, "q_proj", 2, 32, 32, a.data(), b.data()}});
    CHECK_EQUAL(emulation::deviceBytes() - before.bytes, report.total + adapter->bytes());
    runCalls(*engine, {makeCall({1, 2})}, 32, adapter.get());
    runCalls(*engine, {makeCall({1, 2})}, 32, adapter.get());
    adapter.reset();
    CHECK_EQUAL(emulation::deviceBytes() - before.bytes, report.total);
    submitCalls(*engine, {makeCall(randomTokens(random, 30))});  // The test does not wait for this step.
  }
  CHECK(Taken() == before);
}

TEST("a pool that does not fit is refused with the number of pages that fit, and a pool of that number fits") {
  const Restored restored;
  const Taken before;
  TinyModel model = tinyModel(32);
  model.options.pageCount = 0;
  model.options.memoryBytes = 8 << 20;
  int fits = 0;
  {
    const auto engine = make(model);
    fits = engine->pageCount();
    CHECK(fits > 100);
    CHECK_EQUAL(engine->memory().pagesThatFit, fits);
    CHECK(engine->memory().total <= model.options.memoryBytes);
    const std::vector<float> a(32 * 2), b(32 * 2);
    const auto load = [&] {
      std::vector<std::unique_ptr<Adapter>> all;
      for (int i = 0; i < 2000; i++) all.push_back(engine->loadAdapter({{0, "q_proj", 2, 32, 32, a.data(), b.data()}}));
    };
    std::string message;
    CHECK_EQUAL(codeOf(load, &message), "out-of-memory");
    CHECK(message.find("may take") != std::string::npos);
    CHECK(emulation::deviceBytes() - before.bytes <= model.options.memoryBytes);
    const auto answers = runCalls(*engine, {makeCall({1, 2})});
    CHECK(answers[0].states.size() == 64);
  }
  CHECK(Taken() == before);
  model.options.pageCount = fits;
  make(model);
  model.options.pageCount = fits + 1;
  std::string message;
  CHECK_EQUAL(codeOf([&] { make(model); }, &message), "out-of-memory");
  CHECK(message.find(" " + std::to_string(fits) + " pages would fit") != std::string::npos);
  CHECK(message.find("for weights") != std::string::npos && message.find("scratch") != std::string::npos);
  // The same if the device's free memory, less the spare for the driver, is the limit.
  emulation::Device small = emulation::device();
  small.memoryBytes = emulation::deviceBytes() + (8 << 20);
  emulation::setDevice(small);
  model.options.memoryBytes = 0;
  CHECK_EQUAL(codeOf([&] { make(model); }, &message), "out-of-memory");
  CHECK(message.find("that are free") != std::string::npos);
  model.options.pageCount = 0;
  CHECK(make(model)->pageCount() < fits);
  model.options.memoryBytes = 100 << 20;
  CHECK(make(model)->pageCount() <= fits);
  model.options.memoryBytes = 1000;
  CHECK_EQUAL(codeOf([&] { make(model); }, &message), "out-of-memory");
  CHECK(message.find("0 pages would fit") != std::string::npos);
  CHECK(Taken() == before);
}

TEST("any failing call at start leaves no memory behind") {
  const Restored restored;
  const TinyModel model = tinyModel(33);
  const Taken before;
  int failed = 0;
  for (const cudaError_t error : {cudaErrorMemoryAllocation, cudaErrorIllegalAddress}) {
    for (int after = 0; after < 200; after += 1 + after / 6) {
      // Fails only once: memory of a device that stays lost is not freed before the process ends.
      emulation::failCall("any", error, after, false);
      std::string message;
      std::unique_ptr<Engine> engine;
      const std::string code = codeOf([&] { engine = make(model); }, &message);
      emulation::restoreDevice();
      engine.reset();
      CHECK(Taken() == before);
      if (code.empty()) continue;
      failed++;
      CHECK(code == "cuda" || code == "out-of-memory" || code == "no-device");
      if (code == "cuda") CHECK(message.find("start: cuda") == 0);
    }
  }
  CHECK(failed > 30);
  // An exception of the weight source reaches the caller.
  const WeightSource source = [&](const std::string& name) -> HostTensor {
    if (name == "model.layers.1.mlp.up_proj.weight") throw std::runtime_error("the file is gone");
    return model.source()(name);
  };
  CHECK_THROWS(Engine::create(model.options, source), "the file is gone");
  CHECK(Taken() == before);
  emulation::Device none = emulation::device();
  none.count = 0;
  emulation::setDevice(none);
  CHECK_EQUAL(codeOf([&] { make(model); }), "no-device");
  CHECK(devices().empty());
}

TEST("only cards that the kernels are built for are usable: their capability, or a later one of the generation") {
  const Restored restored;
  const TinyModel model = tinyModel(37);
  const auto errorFor = [&](int capability) {
    emulation::Device other = emulation::device();
    other.capability = capability;
    emulation::setDevice(other);
    std::string message;
    const std::string code = codeOf([&] { make(model); }, &message);
    CHECK_EQUAL(devices()[0].usable, code.empty());
    CHECK(code.empty() || (code == "no-device" && message.find("npm run build:cuda -- --help") != std::string::npos));
    return code;
  };
  CHECK_EQUAL(errorFor(PIE_CAPABILITY), "");
  CHECK_EQUAL(errorFor(PIE_CAPABILITY + 1), PIE_CAPABILITY % 10 == 9 ? "no-device" : "");
  CHECK_EQUAL(errorFor(PIE_CAPABILITY - 1), "no-device");
  CHECK_EQUAL(errorFor(PIE_CAPABILITY + 10), "no-device");
}

TEST("a device that fails is lost: the error names the call and the step, later calls repeat it, and all memory is freed") {
  const Restored restored;
  const TinyModel model = tinyModel(34);
  const Taken before;
  Random random(2);
  const std::vector<Call> calls = {makeCall(randomTokens(random, 2), {}, range(0, 2)), makeCall(randomTokens(random, 1))};
  std::string message, again;
  int lost = 0;
  for (int after = 0; after < 160; after += 7) {
    auto engine = make(model);
    for (int i = 0; i < 3; i++) runCalls(*engine, calls);
    emulation::failCall("any", cudaErrorLaunchFailure, after);
    const std::string code = codeOf([&] {
      for (int i = 0; i < 4; i++) {
        runCalls(*engine, calls);
        const uint32_t slots[] = {0, 8};
        engine->copySlots(slots, slots + 1, nullptr, 1);
        std::vector<uint8_t> page(engine->pageBytes());
        engine->readPage(1, page.data());
        const float state[32] = {1};
        uint32_t token;
        float logProbability;
        engine->project(state, 1, 1, &token, &logProbability);
      }
    }, &message);
    if (!code.empty()) {
      lost++;
      CHECK_EQUAL(code, "cuda");
      CHECK(message.find("(719)") != std::string::npos);
      // The engine stays lost even if the device would respond again.
      emulation::restoreDevice();
      for (int i = 0; i < 6; i++) {
        CHECK_EQUAL(codeOf([&] {
          std::vector<uint8_t> page(engine->pageBytes());
          float value = 0;
          const int first[] = {0, 0};
          const uint32_t slot = 0;
          if (i == 0) submitCalls(*engine, calls);
          if (i == 1) engine->wait(1);
          if (i == 2) engine->score(&value, 0, &slot, first, &value, &value);
          if (i == 3) engine->copySlots(&slot, &slot, nullptr, 1);
          if (i == 4) engine->writePage(0, page.data());
          if (i == 5) engine->loadAdapter({});
        }, &again), "cuda");
        CHECK_EQUAL(again, message);
      }
    }
    engine.reset();
    emulation::restoreDevice();
    CHECK(Taken() == before);
  }
  CHECK(lost > 15);
  // A failing kernel is reported to the caller that waits.
  {
    const auto engine = make(model);
    emulation::failKernel(5);
    CHECK_EQUAL(codeOf([&] { runCalls(*engine, calls); }, &message), "cuda");
    CHECK(message.find("step 1, ") == 0);
    emulation::restoreDevice();
  }
  CHECK(Taken() == before);
}

TEST("a device without memory refuses an adapter, and still computes") {
  const Restored restored;
  const TinyModel model = tinyModel(34);
  const auto engine = make(model);
  Random random(6);
  const std::vector<Call> calls = {makeCall(randomTokens(random, 3))};
  const Answer first = runCalls(*engine, calls)[0];
  // A full device cannot create a stream, either; an adapter must load without a new one.
  for (const char* call : {"cudaMalloc", "cudaStreamCreate"}) {
    emulation::failCall(call, cudaErrorMemoryAllocation, 0, false);
    const std::string code = codeOf([&] { engine->loadAdapter({}); });
    CHECK(code == (call == std::string("cudaMalloc") ? "out-of-memory" : ""));
    emulation::restoreDevice();
    CHECK(runCalls(*engine, calls)[0].states == first.states);
  }
}

TEST("if the driver refuses a graph, the step is launched directly, or captured without chains if these may be the cause") {
  const Restored restored;
  TinyModel model = tinyModel(36);
  Random random(4);
  const std::vector<Call> calls = {makeCall(randomTokens(random, 3))};
  const std::pair<const char*, cudaError_t> refusals[] = {{"cudaGraphInstantiate", cudaErrorMemoryAllocation},
                                                          {"launch", cudaErrorStreamCaptureUnsupported}};
  for (const bool dependent : {false, true}) {
    model.options.dependentLaunch = dependent;
    const auto engine = make(model);
    const Answer first = runCalls(*engine, calls)[0];
    for (int i = 0; i < 3; i++) runCalls(*engine, calls);
    size_t refused = 0;
    for (const auto& [call, error] : refusals) {
      emulation::failCall(call, error, 0, false);
      CHECK(runCalls(*engine, calls)[0].states == first.states);
      emulation::restoreDevice();
      CHECK_EQUAL(engine->graphs().refused, ++refused);
      CHECK(engine->graphs().why.find("(" + std::to_string(error) + ")") != std::string::npos);
    }
    for (int i = 0; i < 3; i++) CHECK(runCalls(*engine, calls)[0].states == first.states);
    CHECK_EQUAL(engine->graphs().captured, dependent && CHAINS_LAUNCHES ? 1u : 0u);
    CHECK_EQUAL(engine->graphs().refused, refused);
  }
}

TEST("no data is read before it is ready or overwritten while it is read, with any delay of the streams") {
  const Restored restored;
  TinyModel model = tinyModel(35);
  model.options.maxRows = 24;
  const auto engine = make(model);
  Reference reference(model);
  Random random(3);
  emulation::slowDown(200);
  std::vector<std::vector<Call>> batches;
  std::vector<std::vector<Reference::Output>> expected;
  for (int i = 0; i < 6; i++) {
    std::vector<Call> calls = {makeCall(randomTokens(random, 2), range(0, i > 0 ? 8 : 0), range(8 + 2 * i, 10 + 2 * i)),
                               makeCall(randomTokens(random, 3))};
    if (i == 0) calls[0] = makeCall(randomTokens(random, 8), {}, range(0, 8));
    // The third batch needs five device steps.
    if (i == 2)
      for (int k = 0; k < 4; k++) calls.push_back(makeCall(randomTokens(random, 20 + k)));
    if (i == 3) calls.back().attention = true;
    batches.push_back(calls);
    expected.push_back(reference.forward(calls));
  }
  // The eager pass waits for each step after it has submitted the next one. The other pass waits only for the last two steps.
  for (const bool eager : {true, false}) {
    std::vector<uint64_t> steps;
    for (int i = 0; i <= 6; i++) {
      if (i < 6) steps.push_back(submitCalls(*engine, batches[i]));
      if (i > 0 && (eager || i >= 5)) CHECK(errorOf(answersOf(engine->wait(steps[i - 1]), batches[i - 1], 32), expected[i - 1]) < 1e-4);
    }
  }
  // Side work is ordered, too: a copy that is queued behind a step copies what that step wrote, and the page reads see the copy. With 8 slots per
  // page, the step writes slots 4 and 5 of page 12 (100 and 101), and the copy slots 0 and 1 of page 15 (120 and 121).
  const uint64_t writing = submitCalls(*engine, {makeCall(batches[1][0].tokens, {}, range(100, 102))});
  const std::vector<uint32_t> from = range(100, 102), to = range(120, 122);
  engine->copySlots(from.data(), to.data(), nullptr, 2);
  std::vector<uint8_t> first(engine->pageBytes()), second(engine->pageBytes());
  engine->readPage(15, second.data());
  engine->readPage(12, first.data());
  engine->wait(writing);
  const size_t slotBytes = first.size() / 16, layerBytes = first.size() / 2;
  for (int layer = 0; layer < 2; layer++)
    CHECK(std::memcmp(&first[layer * layerBytes + 4 * slotBytes], &second[layer * layerBytes], 2 * slotBytes) == 0);
  CHECK(std::any_of(second.begin(), second.end(), [](uint8_t byte) { return byte != 0; }));
}
#endif
