#include "replay.h"
#include <algorithm>
#include <cstring>
#include "pick.h"

namespace pie::harness {

namespace {

// A draw closer to another outcome than this share of the mass may have either result, because the device sums in another order.
constexpr double DRAW_ROUNDING = 1e-6;

Sequence toSequence(const FixtureSequence& from) {
  Sequence sequence;
  sequence.rows = static_cast<int>(from.rows);
  sequence.tokens = from.embeds.empty() ? from.tokens.data() : nullptr;
  sequence.embeds = from.embeds.empty() ? nullptr : from.embeds.data();
  sequence.positions = from.positions.data();
  sequence.context = from.context.data();
  sequence.contextCount = static_cast<int>(from.context.size());
  sequence.mask = from.mask.empty() ? nullptr : from.mask.data();
  sequence.writes = from.writes.empty() ? nullptr : from.writes.data();
  sequence.outputRows = static_cast<int>(from.outputRows);
  sequence.topK = static_cast<int>(from.topK);
  sequence.logProbabilities = !from.tokensOnly;
  sequence.states = from.wantsStates;
  sequence.attention = from.wantsAttention;
  sequence.allowed = from.allowed.empty() ? nullptr : from.allowed.data();
  sequence.draws = from.draws.empty() ? nullptr : from.draws.data();
  return sequence;
}

void compareAll(RelativeError& error, const float* actual, const std::vector<float>& expected) {
  for (size_t i = 0; i < expected.size(); i++) error.add(actual[i], expected[i]);
}

// Compares one row's most probable tokens with the reference's whole distribution: compares each token's log-probability, and checks that no more
// probable token is missing. Two almost equally probable tokens may be in either order.
void compareTop(RelativeError& error, const uint32_t* tokens, const float* logProbabilities, int topK, const float* expected, int vocabulary) {
  std::vector<float> ordered(expected, expected + vocabulary);
  std::sort(ordered.begin(), ordered.end(), std::greater<float>());
  std::vector<bool> seen(vocabulary, false);
  for (int k = 0; k < topK; k++) {
    const uint32_t token = tokens[k];
    if (std::isinf(ordered[k])) {
      // Past the last allowed token.
      if (token != 0 || (logProbabilities != nullptr && !(logProbabilities[k] == -INFINITY))) error.fail();
      continue;
    }
    if (token >= static_cast<uint32_t>(vocabulary) || seen[token] || std::isinf(expected[token])) {
      error.fail();
      continue;
    }
    seen[token] = true;
    const double misplaced = static_cast<double>(ordered[k]) - expected[token];
    const double wrong = logProbabilities == nullptr ? 0 : static_cast<double>(logProbabilities[k]) - expected[token];
    const double difference = std::fabs(misplaced) > std::fabs(wrong) ? misplaced : wrong;
    error.add(logProbabilities == nullptr ? expected[token] : logProbabilities[k], expected[token], difference);
  }
}

}  // namespace

Replay::Replay(const Fixture& fixture, const EngineOptions& options) : fixture(fixture), engine(Engine::create(options, fixture.weights)) {
  for (const auto& matrices : fixture.adapters) {
    std::vector<AdapterMatrices> views;
    for (const FixtureAdapterMatrices& each : matrices) {
      const int inputs = static_cast<int>(each.a.size()) / each.rank, outputs = static_cast<int>(each.b.size()) / each.rank;
      views.push_back({each.layer, each.projection.c_str(), each.rank, inputs, outputs, each.a.data(), each.b.data()});
    }
    adapters.push_back(engine->loadAdapter(views));
  }
}

void Replay::run() {
  for (const Operation& operation : fixture.operations) {
    switch (operation.kind) {
      case OperationKind::Case:
        kind = operation.label;
        break;
      case OperationKind::Forward:
        forward(operation);
        break;
      case OperationKind::Copy:
        engine->copySlots(operation.sources.data(), operation.destinations.data(), operation.shifts.empty() ? nullptr : operation.shifts.data(),
                          static_cast<int>(operation.sources.size()));
        break;
      case OperationKind::ReadPage:
        readPage(operation);
        break;
      case OperationKind::WritePage:
        writePage(operation);
        break;
      case OperationKind::Project:
        project(operation);
        break;
      case OperationKind::Score:
        score(operation);
        break;
      case OperationKind::Greedy:
        greedy(operation);
        break;
    }
  }
}

void Replay::forward(const Operation& operation) {
  if (operation.sequences.empty()) return;
  std::vector<Sequence> sequences;
  for (const FixtureSequence& each : operation.sequences) {
    sequences.push_back(toSequence(each));
    sequences.back().adapter = each.adapter < 0 ? nullptr : adapters.at(each.adapter).get();
  }
  Batch batch;
  batch.sequences = sequences.data();
  batch.count = static_cast<int>(sequences.size());
  const Results results = engine->wait(engine->submit(batch));

  const int hidden = fixture.options.shape.hidden, vocabulary = fixture.options.shape.vocabulary;
  RelativeError states, tokens, allowed, attention, drawn;
  size_t stateAt = 0, tokenAt = 0, attentionAt = 0, drawAt = 0;
  for (const FixtureSequence& each : operation.sequences) {
    if (each.wantsStates) {
      compareAll(states, results.states + stateAt, each.states);
      stateAt += static_cast<size_t>(each.outputRows) * hidden;
    }
    if (each.wantsTop) {
      for (uint32_t row = 0; row < each.outputRows; row++, tokenAt += each.topK) {
        const float* logProbabilities = results.logProbabilities + tokenAt;
        compareTop(each.allowed.empty() ? tokens : allowed, results.tokens + tokenAt, each.tokensOnly ? nullptr : logProbabilities,
                   static_cast<int>(each.topK), each.logProbabilities.data() + static_cast<size_t>(row) * vocabulary, vocabulary);
        if (each.draws.empty()) continue;
        const Picked picked = pick(each.draws[row], logProbabilities, static_cast<int>(each.topK));
        const bool same = results.drawn[drawAt++] == picked.place;
        drawn.add(same || picked.distance < DRAW_ROUNDING ? 1 : 0, 1);
      }
    }
    if (each.wantsAttention) {
      compareAll(attention, results.attention + attentionAt, each.attention);
      attentionAt += each.attention.size();
    }
  }
  note("states", states);
  note("tokens", tokens);
  note("allowed", allowed);
  note("attention", attention);
  note("draws", drawn);
}

void Replay::project(const Operation& operation) {
  if (operation.count == 0) return;
  const int topK = static_cast<int>(operation.topK), vocabulary = fixture.options.shape.vocabulary;
  std::vector<uint32_t> tokens(static_cast<size_t>(operation.count) * topK);
  std::vector<float> logProbabilities(tokens.size(), NAN);
  engine->project(operation.states.data(), static_cast<int>(operation.count), topK, tokens.data(), logProbabilities.data());
  RelativeError error;
  for (size_t row = 0; row < operation.count; row++)
    compareTop(error, &tokens[row * topK], &logProbabilities[row * topK], topK, &operation.logProbabilities[row * vocabulary], vocabulary);
  note("project", error);
}

void Replay::score(const Operation& operation) {
  if (operation.count == 0) return;
  std::vector<float> logProbabilities(operation.tokens.size() + 1, NAN), entropies(operation.count, NAN);
  engine->score(operation.states.data(), static_cast<int>(operation.count), operation.tokens.data(), operation.first.data(), logProbabilities.data(),
                entropies.data());
  RelativeError scored, spread;
  compareAll(scored, logProbabilities.data(), operation.logProbabilities);
  // Entropies near zero are compared absolutely, on a scale of one nat.
  for (size_t i = 0; i < operation.entropies.size(); i++)
    spread.add(entropies[i], std::fmax(operation.entropies[i], 1.0f), static_cast<double>(entropies[i]) - operation.entropies[i]);
  note("score", scored);
  note("entropy", spread);
}

// Decodes from an empty cache, in slots from 0 on; each token is the next input.
void Replay::greedy(const Operation& operation) {
  std::vector<uint32_t> slots(operation.prompt.size() + operation.tokens.size());
  for (size_t i = 0; i < slots.size(); i++) slots[i] = static_cast<uint32_t>(i);
  std::vector<uint32_t> inputs = operation.prompt;
  RelativeError error;
  size_t at = 0;
  for (const uint32_t expected : operation.tokens) {
    Sequence sequence;
    sequence.rows = static_cast<int>(inputs.size());
    sequence.tokens = inputs.data();
    sequence.positions = &slots[at];
    sequence.context = slots.data();
    sequence.contextCount = static_cast<int>(at);
    sequence.writes = &slots[at];
    sequence.outputRows = 1;
    sequence.topK = 1;
    sequence.logProbabilities = false;
    Batch batch;
    batch.sequences = &sequence;
    batch.count = 1;
    const Results results = engine->wait(engine->submit(batch));
    at += inputs.size();
    inputs = {results.tokens[0]};
    error.add(results.tokens[0] == expected ? 1 : 0, 1);
  }
  note("greedy", error);
}

void Replay::readPage(const Operation& operation) {
  std::vector<uint8_t>& bytes = pages[operation.handle];
  bytes.resize(engine->pageBytes());
  engine->readPage(static_cast<int>(operation.page), bytes.data());
}

void Replay::writePage(const Operation& operation) {
  if (operation.handle >= 0) return engine->writePage(static_cast<int>(operation.page), pages.at(operation.handle).data());
  const std::vector<uint8_t> zeros(engine->pageBytes(), 0);
  engine->writePage(static_cast<int>(operation.page), zeros.data());
}

void Replay::note(const char* handler, const RelativeError& error) {
  if (error.count() > 0) errors.note(handler, kind, error);
}

}  // namespace pie::harness
