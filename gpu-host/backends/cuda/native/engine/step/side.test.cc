// Projections and scores of states.
#include <memory>
#include "../../testing/engine.h"

using namespace pie;
using testing::Random;

namespace {

constexpr double TOLERANCE = 1e-4;
constexpr int VOCABULARY = 61;  // The vocabulary of tinyModel.

std::unique_ptr<Engine> make(const TinyModel& model) { return Engine::create(model.options, model.source()); }

}  // namespace

TEST("projection and scores of states equal those of the step that computed the states") {
  const TinyModel model = tinyModel(14);
  const auto engine = make(model);
  Random random(41);
  // The engine has memory for the logits of 128 rows (HEAD_ROWS), so 180 states take two rounds. A step has at most 64 rows, so three steps make
  // the states.
  constexpr int STEPS = 3, ROWS = 60, STATES = STEPS * ROWS;
  std::vector<float> states;
  std::vector<float> expected;
  for (int i = 0; i < STEPS; i++) {
    const Answer answer = runCalls(*engine, {makeCall(randomTokens(random, ROWS))})[0];
    states.insert(states.end(), answer.states.begin(), answer.states.end());
    const std::vector<float> values = byToken(answer, VOCABULARY);
    expected.insert(expected.end(), values.begin(), values.end());
  }
  Answer projected;
  projected.tokens.resize(STATES * VOCABULARY);
  projected.logProbabilities.resize(STATES * VOCABULARY);
  engine->project(states.data(), STATES, VOCABULARY, projected.tokens.data(), projected.logProbabilities.data());
  CHECK(relativeError(byToken(projected, VOCABULARY), expected) < TOLERANCE);
  std::vector<uint32_t> tokens;
  // Lists of 0 to 4 tokens to score, one for each state.
  std::vector<int> first = {0};
  std::vector<float> wanted;
  for (int i = 0; i < STATES; i++) {
    for (const uint32_t token : randomTokens(random, static_cast<int>(random.integer(0, 4)))) {
      tokens.push_back(token);
      wanted.push_back(expected[i * VOCABULARY + token]);
    }
    first.push_back(static_cast<int>(tokens.size()));
  }
  std::vector<float> scores(tokens.size()), entropies(STATES);
  engine->score(states.data(), STATES, tokens.data(), first.data(), scores.data(), entropies.data());
  CHECK(relativeError(scores, wanted) < TOLERANCE);
  for (int i = 0; i < STATES; i++) {
    double entropy = 0;
    for (int t = 0; t < VOCABULARY; t++) entropy -= std::exp(expected[i * VOCABULARY + t]) * expected[i * VOCABULARY + t];
    CHECK_CLOSE(entropies[i], entropy, 1e-4);
  }
  engine->project(nullptr, 0, 4, nullptr, nullptr);
  CHECK_THROWS(engine->project(states.data(), 1, VOCABULARY + 1, projected.tokens.data(), projected.logProbabilities.data()), "62 tokens");
}

TEST("a list of more tokens than one round can score continues in later rounds, and short lists around it are scored, too") {
  const TinyModel model = tinyModel(19);
  const auto engine = make(model);
  Random random(42);
  const Answer answer = runCalls(*engine, {makeCall(randomTokens(random, 3))})[0];
  const std::vector<float> expected = byToken(answer, VOCABULARY);
  // A round scores 2^18 tokens, so the second list, of 2^19 + 5 tokens, takes more than two rounds.
  const std::vector<int> first = {0, 3, 3 + (1 << 19) + 5, 3 + (1 << 19) + 7};
  const std::vector<uint32_t> tokens = randomTokens(random, first[3]);
  std::vector<float> scores(tokens.size()), entropies(3);
  engine->score(answer.states.data(), 3, tokens.data(), first.data(), scores.data(), entropies.data());
  size_t wrong = 0;
  for (int row = 0; row < 3; row++) {
    for (int i = first[row]; i < first[row + 1]; i++) wrong += !(std::fabs(scores[i] - expected[row * VOCABULARY + tokens[i]]) < 1e-4);
    double entropy = 0;
    for (int t = 0; t < VOCABULARY; t++) entropy -= std::exp(expected[row * VOCABULARY + t]) * expected[row * VOCABULARY + t];
    CHECK_CLOSE(entropies[row], entropy, 1e-4);
  }
  CHECK_EQUAL(wrong, 0u);
}
