#include "session.h"
#include <algorithm>
#include <cstring>
#include <numeric>
#include "../engine/memory/memory.h"
#include "random_weights.h"

namespace pie::harness {

namespace {

constexpr int PAGE_SIZE = 16;
// Steps before the first measured one, during which graphs are captured.
constexpr int WARM_STEPS = 6;

PinnedBlock pinnedRandom(size_t bytes) {
  PinnedBlock pinned(bytes);
  const std::vector<uint16_t> block = randomBlock(bytes / 2, 1, 11);
  std::memcpy(pinned.get(), block.data(), bytes / 2 * 2);
  return pinned;
}

int pagesOf(int tokens) { return (tokens + PAGE_SIZE - 1) / PAGE_SIZE; }

}  // namespace

// The arrays that a batch points to.
struct Session::Inputs {
  std::vector<std::vector<uint32_t>> slots;
  std::vector<uint32_t> tokens, positions;
  std::vector<uint32_t> picked;  // If not empty: rows of the previous step whose tokens are the inputs.
  std::vector<Draw> draws;
  std::vector<Sequence> sequences;
};

Session::Session(const NamedShape& named, const SessionOptions& options) : named(named), options(options) {
  EngineOptions engineOptions;
  engineOptions.shape = named.shape;
  engineOptions.tiedEmbeddings = named.tied;
  engineOptions.frequencies = plainFrequencies(named);
  engineOptions.pageSize = PAGE_SIZE;
  if (options.prefix % PAGE_SIZE != 0 || options.prefix > options.context) throw std::invalid_argument("prefix must be whole pages of the context");
  if (options.room < 1) throw std::invalid_argument("room must be at least 1: a step writes one token after each context");
  prefixPages = options.prefix / PAGE_SIZE;
  pagesPerSequence = pagesOf(options.context - options.prefix + options.room);
  engineOptions.pageCount = std::max(prefixPages + options.sequences * pagesPerSequence, pagesOf(options.rows));
  engineOptions.maxRows = options.rows;
  engineOptions.maxSequences = options.sequences;
  engineOptions.scratchSlots = PAGE_SIZE;
  engineOptions.graphs = options.graphs;
  engineOptions.dependentLaunch = options.dependent;
  engineOptions.spinUs = options.spinUs;
  engineOptions.cublas = options.cublas;
  engineOptions.sharedPrefixes = options.sharedPrefixes;
  engineOptions.timing = true;
  engineOptions.precision = precisionNamed(options.precision);
  if (options.narrowKv) engineOptions.kv = KvPrecision::Fp8;
  const double began = nowMs();
  engine = Engine::create(engineOptions, randomWeights(named));
  loadMs = nowMs() - began;
  pageOrder.resize(engineOptions.pageCount);
  for (size_t i = 0; i < pageOrder.size(); i++) pageOrder[i] = static_cast<int>(i);
  uint64_t state = 3;
  for (size_t i = pageOrder.size() - 1; i > 0; i--) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    std::swap(pageOrder[i], pageOrder[(state >> 33) % (i + 1)]);
  }
  fillPool();
  loadAdapters();
}

void Session::loadAdapters() {
  const ModelShape& shape = named.shape;
  const struct { const char* projection; int inputs, outputs; } projections[] = {
      {"q_proj", shape.hidden, shape.queryWidth()}, {"k_proj", shape.hidden, shape.kvWidth()},       {"v_proj", shape.hidden, shape.kvWidth()},
      {"o_proj", shape.queryWidth(), shape.hidden}, {"gate_proj", shape.hidden, shape.intermediate}, {"up_proj", shape.hidden, shape.intermediate},
      {"down_proj", shape.intermediate, shape.hidden}};
  // All matrices have the same values, which do not change the times.
  const size_t widest = std::max({shape.hidden, shape.queryWidth(), shape.intermediate});
  std::vector<float> values(widest * options.rank);
  for (size_t i = 0; i < values.size(); i++) values[i] = static_cast<float>(static_cast<int>(i * 7919 % 2001) - 1000) * 1e-5f;
  std::vector<AdapterMatrices> matrices;
  for (int layer = 0; layer < shape.layers; layer++)
    for (const auto& each : projections)
      matrices.push_back({layer, each.projection, options.rank, each.inputs, each.outputs, values.data(), values.data()});
  for (int i = 0; i < options.adapters; i++) adapters.push_back(engine->loadAdapter(matrices));
}

// Fills the pool with random keys and values, because zeros could change the kernels' timing.
void Session::fillPool() {
  const size_t pageBytes = engine->pageBytes();
  const int several = 32;
  const PinnedBlock block = pinnedRandom(pageBytes * several);
  if (options.narrowKv) {
    const std::vector<uint8_t> slots = randomFloat8Slots(named.shape, pageBytes * several / slotBytes<float8>(named.shape));
    std::memcpy(block.get(), slots.data(), slots.size());
  }
  for (int first = 0; first < static_cast<int>(pageOrder.size()); first += several) {
    const int count = std::min(several, static_cast<int>(pageOrder.size()) - first);
    engine->writePages(&pageOrder[first], count, block.get());
  }
}

std::vector<uint32_t> Session::slotsOf(int sequence, int tokens) const {
  std::vector<uint32_t> slots(tokens);
  for (int i = 0; i < tokens; i++) {
    const int page = i / PAGE_SIZE, before = page < prefixPages ? 0 : sequence * pagesPerSequence;
    slots[i] = static_cast<uint32_t>(pageOrder[before + page] * PAGE_SIZE + i % PAGE_SIZE);
  }
  return slots;
}

Batch Session::batchOf(Inputs& inputs, int batch, int context, int candidates) {
  const int listed = (prefixPages + pagesPerSequence) * PAGE_SIZE;
  known.resize(options.sequences, 0);
  inputs.sequences.assign(batch, Sequence());
  for (int i = 0; i < batch; i++) {
    inputs.positions[i] = static_cast<uint32_t>(context);
    Sequence& sequence = inputs.sequences[i];
    sequence.rows = 1;
    if (inputs.picked.empty()) sequence.tokens = &inputs.tokens[i];
    else sequence.picked = &inputs.picked[i];
    sequence.positions = &inputs.positions[i];
    if ((i + 1) * static_cast<int64_t>(listed) <= engine->tableSlots()) {
      sequence.table = i * listed;
      sequence.known = std::min(known[i], context);
      known[i] = context + 1;
    }
    sequence.context = inputs.slots[i].data() + sequence.known;
    sequence.contextCount = context;
    sequence.writes = &inputs.slots[i][context];
    sequence.outputRows = 1;
    sequence.topK = candidates;
    sequence.logProbabilities = false;
    if (candidates > 1) {
      inputs.draws[i] = {1, 0.95f, 0, static_cast<uint32_t>(i), static_cast<uint32_t>(context)};
      sequence.draws = &inputs.draws[i];
    }
    if (!adapters.empty()) sequence.adapter = adapters[i % adapters.size()].get();
  }
  Batch result;
  result.sequences = inputs.sequences.data();
  result.count = batch;
  return result;
}

JsonObject Session::decode(int batch, int context, int steps, int candidates) {
  const int most = std::min(MAX_TOP_K, named.shape.vocabulary);
  if (candidates < 1 || candidates > most) throw std::invalid_argument("candidates: from 1 to " + std::to_string(most));
  if (batch < 1 || batch > options.sequences || context < options.prefix + steps / 2 || context + steps > options.context + options.room)
    throw std::invalid_argument("the pool was made for less: load larger sequences, context or room");
  const int first = context - steps / 2;
  const auto inputsOf = [&] {
    Inputs inputs;
    for (int i = 0; i < batch; i++) {
      inputs.slots.push_back(slotsOf(i, context + steps));
      inputs.tokens.push_back(static_cast<uint32_t>((17 * i + 5) % named.shape.vocabulary));
      inputs.positions.push_back(0);
    }
    inputs.draws.resize(batch);
    return inputs;
  };
  Inputs inputs = inputsOf();
  Samples wallMs, deviceMs, gapMs, submitMs;
  double before = 0;
  for (int step = -WARM_STEPS; step < steps; step++) {
    const Batch next = batchOf(inputs, batch, step < 0 ? first : first + step, candidates);
    const double began = nowMs();
    const uint64_t id = engine->submit(next);
    const double submitted = nowMs();
    const Results results = engine->wait(id);
    for (int i = 0; i < batch; i++) {
      // No token is drawn for a row whose logits are not numbers.
      const uint32_t place = candidates > 1 && results.drawn[i] != NOTHING_DRAWN ? results.drawn[i] : 0;
      inputs.tokens[i] = results.tokens[i * candidates + place];
    }
    const double ended = nowMs();
    // From one step's tokens to the next step's: the latency that a user sees.
    if (step > 0) {
      wallMs.add(ended - before);
      gapMs.add(ended - before - results.deviceMs);
    }
    if (step >= 0) deviceMs.add(results.deviceMs), submitMs.add(submitted - began);
    before = ended;
  }
  // Two steps in flight, as the handlers run them: the next step is submitted while the current one runs, and reads the current one's tokens on the
  // device.
  Inputs both[2] = {inputsOf(), inputsOf()};
  Samples pipelinedMs;
  uint64_t under = engine->submit(batchOf(both[0], batch, first, candidates));
  double last = nowMs();
  for (Inputs& each : both) {
    each.picked.resize(batch);
    std::iota(each.picked.begin(), each.picked.end(), 0u);
  }
  for (int step = 1; step <= steps; step++) {
    const uint64_t next = engine->submit(batchOf(both[step % 2], batch, first + std::min(step, steps - 1), candidates));
    engine->wait(under);
    under = next;
    const double now = nowMs();
    if (step > WARM_STEPS / 2) pipelinedMs.add(now - last);
    last = now;
  }
  engine->wait(under);
  const GraphReport graphs = engine->graphs();
  return JsonObject()
      .set("shape", named.name)
      .set("precision", options.precision)
      .set("kv", options.narrowKv ? "fp8" : "bf16")
      .set("graphsCaptured", graphs.captured)
      .set("graphsRefused", graphs.refused)
      .set("graphsRefusedWhy", graphs.why)
      .set("batch", batch)
      .set("candidates", candidates)
      .set("context", context)
      .set("floorBytes", weightBytes(named.shape, precisionNamed(options.precision)) +
                             contextBytes(named.shape, options.narrowKv, batch, context, options.prefix))
      .set("prefix", options.prefix)
      .set("shared", options.sharedPrefixes)
      .set("adapters", options.adapters)
      .raw("wallMs", wallMs.json())
      .raw("deviceMs", deviceMs.json())
      .raw("hostGapMs", gapMs.json())
      .raw("submitMs", submitMs.json())
      .raw("pipelinedMs", pipelinedMs.json());
}

JsonObject Session::prefill(int tokens, int times) {
  if (tokens < 1 || pagesOf(tokens) > static_cast<int>(pageOrder.size()))
    throw std::invalid_argument("the pool was made for less: load larger sequences, context or room");
  std::vector<uint32_t> inputs(tokens), positions(tokens), slots(tokens);
  for (int i = 0; i < tokens; i++) {
    inputs[i] = static_cast<uint32_t>((31 * i + 7) % named.shape.vocabulary);
    positions[i] = static_cast<uint32_t>(i);
    slots[i] = static_cast<uint32_t>(pageOrder[i / PAGE_SIZE] * PAGE_SIZE + i % PAGE_SIZE);
  }
  Sequence sequence;
  sequence.rows = tokens;
  sequence.tokens = inputs.data();
  sequence.positions = positions.data();
  sequence.writes = slots.data();
  sequence.outputRows = 1;
  sequence.topK = 1;
  sequence.logProbabilities = false;
  Batch batch;
  batch.sequences = &sequence;
  batch.count = 1;
  Samples wallMs, deviceMs;
  for (int i = -2; i < times; i++) {
    const double began = nowMs();
    const Results results = engine->wait(engine->submit(batch));
    if (i < 0) continue;
    wallMs.add(nowMs() - began);
    deviceMs.add(results.deviceMs);
  }
  const double flops = prefillFlops(named.shape, tokens);
  return JsonObject()
      .set("shape", named.name)
      .set("tokens", tokens)
      .set("rowsPerStep", options.rows)
      .set("flops", flops)
      .raw("wallMs", wallMs.json())
      .raw("deviceMs", deviceMs.json())
      .set("flopsPerSecond", flops / (1e-3 * wallMs.median()));
}

JsonObject Session::swap(int tokens, int times) {
  const int count = pagesOf(tokens);
  if (count < 1 || count > static_cast<int>(pageOrder.size()))
    throw std::invalid_argument("the pool was made for less: load larger sequences, context or room");
  const size_t bytes = count * engine->pageBytes();
  const PinnedBlock host = pinnedRandom(bytes);
  // Pages at the pool's end, which the step below does not read.
  const int* pages = &pageOrder[pageOrder.size() - count];
  Samples inMs, outMs, stepMs, overlappedMs;
  Inputs inputs;
  // As many sequences as fit before those pages.
  const int batch = std::min({options.sequences, 32, (static_cast<int>(pageOrder.size()) - count - prefixPages) / pagesPerSequence});
  for (int i = 0; i < batch; i++) {
    inputs.slots.push_back(slotsOf(i, options.context + 1));
    inputs.tokens.push_back(static_cast<uint32_t>(i));
    inputs.positions.push_back(0);
  }
  for (int i = -2; i < times; i++) {
    const double began = nowMs();
    engine->readPages(pages, count, host.get());
    const double out = nowMs();
    engine->writePages(pages, count, host.get());
    const double in = nowMs();
    if (i >= 0) outMs.add(out - began), inMs.add(in - out);
    if (batch < 1) continue;
    engine->wait(engine->submit(batchOf(inputs, batch, options.context)));
    const double stepped = nowMs();
    const uint64_t under = engine->submit(batchOf(inputs, batch, options.context));
    engine->writePages(pages, count, host.get());
    engine->wait(under);
    if (i >= 0) stepMs.add(stepped - in), overlappedMs.add(nowMs() - stepped);
  }
  JsonObject result = prefill(tokens, times);
  return JsonObject()
      .set("shape", named.name)
      .set("tokens", tokens)
      .set("bytes", bytes)
      .raw("swapInMs", inMs.json())
      .raw("swapOutMs", outMs.json())
      .set("bytesPerSecondIn", static_cast<double>(bytes) / (1e-3 * inMs.median()))
      .set("stepBatch", batch)
      .raw("stepMs", stepMs.json())
      .raw("stepWithSwapInMs", overlappedMs.json())
      .raw("prefill", result.text());
}

JsonObject Session::describe() const {
  const MemoryReport memory = engine->memory();
  return JsonObject()
      .set("shape", named.name)
      .set("precision", options.precision)
      .set("kv", options.narrowKv ? "fp8" : "bf16")
      .set("graphs", options.graphs)
      .set("dependent", options.dependent)
      .set("spinUs", options.spinUs)
      .set("cublas", options.cublas)
      .set("shared", options.sharedPrefixes)
      .set("prefix", options.prefix)
      .set("rows", options.rows)
      .set("pages", static_cast<int>(pageOrder.size()))
      .set("loadMs", loadMs)
      .set("weights", memory.weights)
      .set("pool", memory.pool)
      .set("scratch", memory.scratch)
      .set("total", memory.total);
}

}  // namespace pie::harness
