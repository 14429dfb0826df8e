#include "head.h"
#include <algorithm>
#include "../../testing/device.h"
#include "../../testing/test.h"

using namespace pie;
using testing::DeviceArray;
using testing::Random;

namespace {

constexpr uint32_t POISON = 0xabababab;
const float INFINITE = INFINITY;

// One row and its request.
struct Case {
  std::vector<float> logits;
  int topK = 1;
  std::vector<uint32_t> allowed = {};  // Mask words; empty: all tokens.
  bool isDrawn = false;
  Draw draw = {};
};

struct Top {
  std::vector<uint32_t> tokens;
  std::vector<float> logProbabilities;
  uint32_t drawnPlace = POISON;
};

// One launch for all rows. Results lie in reverse row order; the kernels must not write the one unused place between the results of two rows.
std::vector<Top> run(const std::vector<Case>& cases, int maxTopK = 0) {
  const int count = static_cast<int>(cases.size()), vocabulary = static_cast<int>(cases[0].logits.size());
  std::vector<float> logits;
  std::vector<uint32_t> allowed = {0};
  std::vector<HeadRow> rows(count);
  std::vector<Draw> draws;
  int places = 1;
  for (int r = count - 1; r >= 0; r--) {
    rows[r] = {cases[r].topK, -1, places, -1};
    places += cases[r].topK + 1;
    maxTopK = std::max(maxTopK, cases[r].topK);
  }
  for (int r = 0; r < count; r++) {
    logits.insert(logits.end(), cases[r].logits.begin(), cases[r].logits.end());
    if (!cases[r].allowed.empty()) {
      rows[r].allowedWord = static_cast<int>(allowed.size());
      allowed.insert(allowed.end(), cases[r].allowed.begin(), cases[r].allowed.end());
    }
    if (cases[r].isDrawn) {
      rows[r].draw = static_cast<int>(draws.size());
      draws.push_back(cases[r].draw);
    }
  }
  DeviceArray<uint32_t> tokens(std::vector<uint32_t>(places, POISON)), drawn(std::vector<uint32_t>(draws.size() + 1, POISON)),
      picked(std::vector<uint32_t>(count + 1, POISON));
  DeviceArray<float> logProbabilities(std::vector<float>(places, 123));
  DeviceArray<float> onDevice(logits);
  DeviceArray<HeadRow> wanted(rows);
  DeviceArray<uint32_t> masks(allowed);
  DeviceArray<Draw> drawing(draws);
  DeviceArray<unsigned char> workspace(headWorkspaceBytes(count, vocabulary));
  launchTop({tokens, logProbabilities, drawn, picked}, onDevice, wanted, masks, drawing, count, vocabulary, maxTopK, workspace, nullptr);
  const auto t = tokens.host(), d = drawn.host(), p = picked.host();
  const auto l = logProbabilities.host();
  std::vector<Top> tops(count);
  CHECK_EQUAL(t[0], POISON);
  for (int r = 0; r < count; r++) {
    const int first = rows[r].firstResult, end = first + rows[r].topK;
    tops[r].tokens.assign(t.begin() + first, t.begin() + end);
    tops[r].logProbabilities.assign(l.begin() + first, l.begin() + end);
    CHECK_EQUAL(t[end], POISON);
    CHECK_EQUAL(l[end], 123.0f);
    if (rows[r].topK == 0) {
      CHECK_EQUAL(p[r], POISON);
      continue;
    }
    const bool noNumber = std::isnan(tops[r].logProbabilities[0]);
    const bool isDrawn = rows[r].draw >= 0;
    if (isDrawn) {
      tops[r].drawnPlace = d[rows[r].draw];
      CHECK_EQUAL(tops[r].drawnPlace == NOTHING_DRAWN, noNumber);
    }
    CHECK_EQUAL(p[r], noNumber ? 0u : tops[r].tokens[isDrawn ? tops[r].drawnPlace : 0]);
  }
  CHECK_EQUAL(d.back(), POISON);
  CHECK_EQUAL(p.back(), POISON);
  return tops;
}

bool isAllowed(const Case& one, uint32_t token) { return one.allowed.empty() || (one.allowed[token / 32] >> (token % 32) & 1); }

// Compares tokens exactly. A log-probability is the difference of two floats and a logarithm, each rounded to float; the tolerance covers this
// rounding.
void checkTop(const Case& one, const Top& top) {
  std::vector<uint32_t> order;
  const auto logit = [&](uint32_t token) { return std::isnan(one.logits[token]) ? -INFINITE : one.logits[token]; };
  for (uint32_t token = 0; token < one.logits.size(); token++)
    if (isAllowed(one, token)) order.push_back(token);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return logit(a) > logit(b); });
  double sum = 0;
  for (const uint32_t token : order)
    if (logit(token) > -INFINITE) sum += std::exp(static_cast<double>(logit(token)) - logit(order[0]));
  for (int place = 0; place < one.topK; place++) {
    const bool exists = place < static_cast<int>(order.size());
    CHECK_EQUAL(top.tokens[place], exists ? order[place] : 0u);
    const double expected = exists && logit(order[place]) > -INFINITE ? static_cast<double>(logit(order[place])) - logit(order[0]) - std::log(sum) : -INFINITE;
    CHECK_CLOSE(top.logProbabilities[place], expected, 1e-5 + 1e-7 * std::fabs(expected == -INFINITE ? 0 : expected));
  }
}

void checkAll(const std::vector<Case>& cases, int maxTopK = 0) {
  const auto tops = run(cases, maxTopK);
  for (size_t r = 0; r < cases.size(); r++) checkTop(cases[r], tops[r]);
}

std::vector<uint32_t> maskOf(int vocabulary, const std::vector<int>& tokens) {
  std::vector<uint32_t> words((vocabulary + 31) / 32, 0);
  for (const int token : tokens) words[token / 32] |= 1u << (token % 32);
  return words;
}

// Sets bits past the vocabulary too, which the kernels must ignore.
std::vector<uint32_t> randomMask(Random& random, int vocabulary) {
  std::vector<uint32_t> words((vocabulary + 31) / 32);
  for (uint32_t& word : words) word = random.integer(0, 3) == 0 ? 0 : static_cast<uint32_t>(random.bits());
  words.back() |= 0x80000000u;
  return words;
}

// Few distinct values, so that there are many ties.
std::vector<float> coarse(Random& random, int count, int values) {
  std::vector<float> logits(count);
  for (float& logit : logits) logit = static_cast<float>(random.integer(-values / 2, values / 2)) * 0.5f;
  return logits;
}

// The reference of the draws: `pick` of gpu-host/handlers/calls/checks.ts.
uint32_t pick(const Draw& sampler, const std::vector<float>& logProbabilities, double uniform) {
  const int count = static_cast<int>(logProbabilities.size());
  if (sampler.temperature == 0 || count <= 1) return 0;
  int kept = count;
  while (kept > 1 && logProbabilities[kept - 1] == -INFINITE) kept--;
  std::vector<double> weights(kept);
  double sum = 0;
  for (int i = 0; i < kept; i++) {
    weights[i] = std::exp((static_cast<double>(logProbabilities[i]) - logProbabilities[0]) / sampler.temperature);
    sum += weights[i];
  }
  if (sampler.topP < 1) {
    const double target = sampler.topP * sum;
    double reached = 0;
    int prefix = 0;
    while (prefix < kept && reached < target) reached += weights[prefix++];
    kept = std::max(1, prefix);
    sum = reached;
  }
  if (sampler.minP > 0) {
    int prefix = 1;
    sum = weights[0];
    while (prefix < kept && weights[prefix] >= sampler.minP) sum += weights[prefix++];
    kept = prefix;
  }
  double left = uniform * sum;
  for (int i = 0; i < kept; i++) {
    left -= weights[i];
    if (left < 0) return i;
  }
  return kept - 1;
}

uint32_t mix(uint32_t h) {
  h = (h ^ (h >> 16)) * 0x85ebca6bu;
  h = (h ^ (h >> 13)) * 0xc2b2ae35u;
  return h ^ (h >> 16);
}
double uniform(uint32_t seed, uint32_t position) {
  const uint32_t a = mix(mix(seed ^ 0x9e3779b9u) ^ position), b = mix(mix(a ^ 0x85ebca6bu) ^ seed);
  return ((a >> 5) * 67108864.0 + (b >> 6)) / 9007199254740992.0;
}

}  // namespace

TEST("a topK of 1 finds the most probable token of rows of any width") {
  for (const int vocabulary : {1, 3, 32, 33, 127, 1000, 4096, 4100, 9001}) {
    Random random(vocabulary);
    std::vector<Case> cases;
    for (int r = 0; r < 6; r++) cases.push_back({r % 2 ? random.normals<float>(vocabulary, 4) : coarse(random, vocabulary, 9), 1});
    cases[4].allowed = randomMask(random, vocabulary);
    checkAll(cases);
    checkAll({cases[0]});
  }
}

TEST("rows of any width get their most probable tokens, each row with its own topK and mask") {
  for (const int vocabulary : {2, 31, 100, 1000, 4100, 9001}) {
    Random random(vocabulary * 3);
    std::vector<Case> cases;
    for (const int topK : {1, 2, 7, 64, 65, 200, 256}) {
      Case one = {random.integer(0, 1) ? random.normals<float>(vocabulary, 3) : coarse(random, vocabulary, 40), std::min(topK, vocabulary)};
      if (topK % 2 == 0) one.allowed = randomMask(random, vocabulary);
      cases.push_back(one);
    }
    checkAll(cases);
  }
}

TEST("a topK above the small kernel's limit finds the most probable tokens") {
  Random random(77);
  for (const int vocabulary : {2500, 9001}) {
    checkAll({{random.normals<float>(vocabulary, 3), 2048},
              {coarse(random, vocabulary, 100), 2048},
              {random.normals<float>(vocabulary, 3), 257, randomMask(random, vocabulary)},
              {random.normals<float>(vocabulary, 3), 1}});
  }
}

TEST("tokens with equal logits come in the order of their ids, even if all logits are equal") {
  const int vocabulary = 9001;
  Random random(4);
  for (const int topK : {1, 64, 256, 2048})
    checkAll({{std::vector<float>(vocabulary, 0.25f), topK},
              {coarse(random, vocabulary, 2), topK},
              {coarse(random, vocabulary, 2), topK, randomMask(random, vocabulary)}});
  std::vector<float> zeros(100, 0.0f);
  for (int i = 0; i < 100; i += 3) zeros[i] = -0.0f;
  checkAll({{zeros, 1}, {zeros, 50}});
}

TEST("the most probable tokens are found if most of them are neighbours") {
  // All candidates lie in a few full groups: the worst case for the number of logits that are read again.
  const int vocabulary = 8200;
  Random random(9);
  std::vector<float> sloping(vocabulary), cliff(vocabulary);
  for (int i = 0; i < vocabulary; i++) {
    sloping[i] = static_cast<float>(i) * 0.001f;
    cliff[i] = i >= 3000 && i < 6000 ? 10 + static_cast<float>(random.uniform()) : -5;
  }
  checkAll({{sloping, 256}, {cliff, 256}});
  checkAll({{sloping, 2048}, {cliff, 2048}});
}

TEST("the last tokens of the largest vocabulary are found") {
  Random random(10);
  std::vector<float> logits = coarse(random, MAX_VOCABULARY, 4000);
  logits[MAX_VOCABULARY - 1] = logits[MAX_VOCABULARY - 2] = 5000;
  checkAll({{logits, 1}});
  checkAll({{logits, 200}});
  checkAll({{logits, 2048}});
  std::vector<float> last(MAX_VOCABULARY, -INFINITE);
  last[MAX_VOCABULARY - 1] = last[5] = 1;
  checkAll({{last, 2, maskOf(MAX_VOCABULARY, {MAX_VOCABULARY - 1, 5})}, {last, 2}});
}

TEST("a mask may allow a few tokens, one token or none") {
  const int vocabulary = 4999;
  Random random(12);
  const auto logits = random.normals<float>(vocabulary, 3);
  for (const int topK : {1, 5, 300}) {
    checkAll({{logits, topK, maskOf(vocabulary, {4998})},
              {logits, topK, maskOf(vocabulary, {17})},
              {logits, topK, maskOf(vocabulary, {})},
              {logits, topK, maskOf(vocabulary, {4990, 1, 64, 63})}});
  }
}

TEST("-Infinity comes last, and +Infinity counts as the largest float") {
  const int vocabulary = 700;
  Random random(13);
  auto few = std::vector<float>(vocabulary, -INFINITE), half = random.normals<float>(vocabulary, 3);
  few[300] = 1, few[8] = 1, few[699] = -1000;
  for (int i = 0; i < vocabulary; i += 2) half[i] = -INFINITE;
  const auto none = std::vector<float>(vocabulary, -INFINITE);
  for (const int topK : {1, 4, 400})
    checkAll({{few, topK}, {half, topK}, {none, topK}, {none, topK, maskOf(vocabulary, {600})}, {few, topK, maskOf(vocabulary, {5, 600, 300, 2})}});
  // +Infinity counts as the largest float.
  half[100] = INFINITE;
  const auto tops = run({{half, 3}});
  CHECK_EQUAL(tops[0].tokens[0], 100u);
  CHECK_EQUAL(tops[0].logProbabilities[0], 0.0f);
  CHECK(tops[0].logProbabilities[1] < -1e38f);
}

TEST("a NaN counts as -Infinity; a row whose allowed logits are all NaN is reported") {
  const int vocabulary = 700;
  Random random(14);
  auto some = random.normals<float>(vocabulary, 3);
  for (int i = 0; i < vocabulary; i += 3) some[i] = i % 2 ? NAN : -NAN;
  for (const int topK : {1, 300}) {
    checkAll({{some, topK}});
    const Draw draw = {1, 1, 0, 5, 6};
    const std::vector<float> nans(vocabulary, NAN);
    const auto tops = run({{nans, topK, {}, true, draw},
                           {some, topK, maskOf(vocabulary, {0, 3, 6}), true, draw},
                           {some, topK, maskOf(vocabulary, {}), true, draw},
                           {std::vector<float>(vocabulary, -INFINITE), topK, {}, true, draw}});
    for (const int r : {0, 1}) {
      CHECK_EQUAL(tops[r].drawnPlace, NOTHING_DRAWN);
      CHECK(std::isnan(tops[r].logProbabilities[0]));
      CHECK_EQUAL(tops[r].tokens[0], 0u);
    }
    for (const int r : {2, 3}) {
      CHECK_EQUAL(tops[r].drawnPlace, 0u);
      CHECK_EQUAL(tops[r].logProbabilities[0], -INFINITE);
    }
  }
}

TEST("padding rows are not written, and a row does not depend on the others") {
  const int vocabulary = 5000;
  Random random(15);
  std::vector<Case> cases;
  for (int r = 0; r < 5; r++) cases.push_back({random.normals<float>(vocabulary, 3), r % 2 ? 0 : 33, {}, r % 2 == 0, {1, 1, 0, 3, 4}});
  const auto together = run(cases), alone = run({cases[2]}), wider = run({cases[2]}, 2048);
  CHECK(together[2].tokens == alone[0].tokens && together[2].logProbabilities == alone[0].logProbabilities);
  CHECK(together[2].tokens == wider[0].tokens && together[2].logProbabilities == wider[0].logProbabilities);
  CHECK_EQUAL(together[2].drawnPlace, alone[0].drawnPlace);
  CHECK_EQUAL(together[2].drawnPlace, wider[0].drawnPlace);
  cases[2].topK = 1;
  CHECK_EQUAL(run({cases[2]})[0].logProbabilities[0], alone[0].logProbabilities[0]);
  CHECK_EQUAL(run(cases, 1)[2].tokens[0], alone[0].tokens[0]);
}

TEST("a draw picks the token that the sampler picks among the row's tokens") {
  const int vocabulary = 601;
  Random random(16);
  for (const int most : {40, 500}) {
    std::vector<Case> cases;
    for (int r = 0; r < 48; r++) {
      Case one = {random.normals<float>(vocabulary, random.uniform(0.3, 3)), static_cast<int>(random.integer(1, most)), {}, r % 7 != 0, {}};
      if (r % 5 == 0) one.allowed = randomMask(random, vocabulary);
      if (r % 8 == 0) one.allowed = maskOf(vocabulary, {3, 9, 500});
      if (r % 6 == 0) one.logits = coarse(random, vocabulary, 3);
      one.draw = {r % 9 == 0 ? 0 : static_cast<float>(random.uniform(0.2, 2)), r % 3 ? 1 : static_cast<float>(random.uniform(0.1, 1)),
                  r % 4 ? 0 : static_cast<float>(random.uniform(0, 0.5)), static_cast<uint32_t>(random.bits()), static_cast<uint32_t>(random.integer(0, 9999))};
      cases.push_back(one);
    }
    const auto tops = run(cases);
    for (size_t r = 0; r < cases.size(); r++) {
      checkTop(cases[r], tops[r]);
      const Draw& draw = cases[r].draw;
      CHECK_EQUAL(tops[r].drawnPlace, cases[r].isDrawn ? pick(draw, tops[r].logProbabilities, uniform(draw.seed, draw.position)) : POISON);
    }
  }
}

TEST("draws over a row follow its probabilities") {
  // Four tokens have the probabilities 1/2, 1/4, 1/8 and 1/8. Chi-squared then has 3 degrees of freedom, and is below 16.3 with probability 0.999.
  const int count = 400;
  Case one = {std::vector<float>(40, -INFINITE), 4, {}, true, {1, 1, 0, 2026, 0}};
  one.logits[7] = std::log(4.0f), one.logits[1] = std::log(2.0f), one.logits[30] = one.logits[31] = 0;
  std::vector<Case> cases(count, one);
  for (int i = 0; i < count; i++) cases[i].draw.position = i;
  double seen[4] = {}, chi = 0;
  for (const Top& top : run(cases)) seen[top.drawnPlace]++;
  const double share[4] = {0.5, 0.25, 0.125, 0.125};
  for (int i = 0; i < 4; i++) chi += std::pow(seen[i] - share[i] * count, 2) / (share[i] * count);
  CHECK(chi < 16.3);
}

TEST("scores are the log-probabilities of listed tokens and the entropy of each row") {
  for (const int vocabulary : {1, 5, 1000, 8193, 20001}) {
    Random random(vocabulary);
    const int count = 5;
    std::vector<float> logits = random.normals<float>(vocabulary * count, 4);
    for (int i = 0; i < vocabulary; i++) logits[i] = 3;               // Uniform.
    for (int i = 0; i < vocabulary; i++) logits[vocabulary + i] = i == vocabulary / 2 ? 500.0f : i % 2 ? -INFINITE : -500.0f;  // Certain.
    for (int i = 0; i < vocabulary; i++) logits[4 * vocabulary + i] = NAN;
    std::vector<uint32_t> tokens;
    std::vector<int> first = {0};
    for (const int listed : {2, 1, 0, 40, 3}) {
      for (int i = 0; i < listed; i++) tokens.push_back(static_cast<uint32_t>(i == 1 ? vocabulary - 1 : random.integer(0, vocabulary - 1)));
      first.push_back(static_cast<int>(tokens.size()));
    }
    tokens[5] = 0xffffffff;
    DeviceArray<float> logProbabilities(std::vector<float>(tokens.size() + 1, 123)), entropies(std::vector<float>(count + 1, 123));
    DeviceArray<float> onDevice(logits);
    DeviceArray<uint32_t> list(tokens);
    DeviceArray<int> starts(first);
    launchScore(logProbabilities, entropies, onDevice, list, starts, count, vocabulary, nullptr);
    const auto l = logProbabilities.host(), e = entropies.host();
    CHECK_EQUAL(l.back(), 123.0f);
    CHECK_EQUAL(e.back(), 123.0f);
    for (int r = 0; r < count; r++) {
      const float* row = logits.data() + r * vocabulary;
      double most = -INFINITE, sum = 0, entropy = 0;
      for (int i = 0; i < vocabulary; i++) most = std::fmax(most, row[i]);
      for (int i = 0; i < vocabulary; i++) sum += std::exp(row[i] - most);
      for (int i = 0; i < vocabulary; i++) {
        const double log = row[i] - most - std::log(sum);
        if (log > -700) entropy -= std::exp(log) * log;
      }
      if (r == 4) entropy = NAN;
      CHECK_CLOSE(e[r], entropy, 1e-5);
      for (int i = first[r]; i < first[r + 1]; i++) {
        const double expected = r == 4 ? NAN : tokens[i] < static_cast<uint32_t>(vocabulary) ? row[tokens[i]] - most - std::log(sum) : -INFINITE;
        // A float near 1,000 has a spacing of 6e-5.
        CHECK_CLOSE(l[i], expected, 1e-5 + 1e-7 * std::fabs(expected == -INFINITE ? 0 : expected));
      }
    }
  }
}
