// Compares the top tokens after changes of logits with a sort of the changed row. The device rounds a changed logit once, and once more if the token
// was picked; the expected row is rounded the same way, so tokens must be equal, and log-probabilities have the bound of head.test.cc.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include "../../testing/device.h"
#include "../../testing/test.h"
#include "head.h"

using namespace pie;
using testing::DeviceArray;
using testing::Random;

namespace {

const float INFINITE = INFINITY;

struct Row {
  std::vector<float> logits;
  int topK = 1;
  bool isChanged = false;
  std::map<uint32_t, float> changes;  // By token, with CHOSEN_TOKEN.
  int picked = -1;
  float frequency = 0, presence = 0;
  std::vector<uint32_t> allowed = {};  // Mask words; empty: all tokens.
};

struct Top {
  std::vector<uint32_t> tokens;
  std::vector<float> logProbabilities;
  uint32_t drawn, picked;
};

// Launches all rows; each draws at temperature 0, so that the drawn token is the most probable one.
std::vector<Top> run(const std::vector<Row>& rows, const std::vector<uint32_t>& picked) {
  const int count = static_cast<int>(rows.size()), vocabulary = static_cast<int>(rows[0].logits.size());
  std::vector<float> logits;
  std::vector<uint32_t> words = {0};
  std::vector<HeadRow> requests;
  std::vector<HeadChange> changes;
  int places = 0, maxTopK = 0;
  for (const Row& row : rows) {
    logits.insert(logits.end(), row.logits.begin(), row.logits.end());
    requests.push_back({row.topK, row.allowed.empty() ? -1 : static_cast<int>(words.size()), places, static_cast<int>(requests.size()),
                        row.isChanged ? static_cast<int>(changes.size()) : -1});
    words.insert(words.end(), row.allowed.begin(), row.allowed.end());
    places += row.topK;
    maxTopK = std::max(maxTopK, row.topK);
    if (!row.isChanged) continue;
    changes.push_back({static_cast<int>(words.size()), static_cast<int>(row.changes.size()), row.picked, row.frequency, row.presence});
    for (const auto& [token, value] : row.changes) words.push_back(token);
    for (const auto& [token, value] : row.changes) {
      uint32_t bits;
      std::memcpy(&bits, &value, sizeof bits);
      words.push_back(bits);
    }
  }
  const DeviceArray<float> onDevice(logits), logProbabilities(places);
  const DeviceArray<HeadRow> wanted(requests);
  const DeviceArray<HeadChange> changing(changes);
  const DeviceArray<uint32_t> lists(words), before(picked), tokens(places), drawn(count), chosen(count);
  const DeviceArray<Draw> draws(std::vector<Draw>(count, Draw{0, 1, 0, 0, 0}));
  const DeviceArray<unsigned char> workspace(headWorkspaceBytes(count, vocabulary));
  launchChange(onDevice, wanted, changing, lists, before, count, vocabulary, nullptr);
  launchTop({tokens, logProbabilities, drawn, chosen}, onDevice, wanted, lists, draws, count, vocabulary, maxTopK, workspace, nullptr);
  const auto t = tokens.host(), d = drawn.host(), p = chosen.host();
  const auto l = logProbabilities.host();
  std::vector<Top> tops;
  for (int r = 0; r < count; r++) {
    const int first = requests[r].firstResult, end = first + requests[r].topK;
    tops.push_back({{t.begin() + first, t.begin() + end}, {l.begin() + first, l.begin() + end}, d[r], p[r]});
  }
  return tops;
}

void check(const Row& row, const std::vector<uint32_t>& picked, const Top& top) {
  std::vector<float> logits = row.logits;
  bool isChosen = false;
  for (const auto& [token, value] : row.changes) {
    float& logit = logits[token & ~CHOSEN_TOKEN];
    logit = static_cast<float>(static_cast<double>(logit) + value);
    isChosen = isChosen || (row.picked >= 0 && token == (picked[row.picked] | CHOSEN_TOKEN));
  }
  if (row.picked >= 0) {
    float& logit = logits[picked[row.picked]];
    logit = static_cast<float>(static_cast<double>(logit) - row.frequency - (isChosen ? 0 : row.presence));
  }
  std::vector<uint32_t> order;
  for (uint32_t token = 0; token < logits.size(); token++)
    if ((row.allowed.empty() || (row.allowed[token / 32] >> (token % 32) & 1)) && !(row.isChanged && logits[token] == -INFINITE)) order.push_back(token);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return logits[a] > logits[b]; });
  double sum = 0;
  for (const uint32_t token : order) sum += std::exp(static_cast<double>(logits[token]) - logits[order[0]]);
  for (int place = 0; place < row.topK; place++) {
    const bool exists = place < static_cast<int>(order.size());
    CHECK_EQUAL(top.tokens[place], exists ? order[place] : 0u);
    const double expected = exists ? static_cast<double>(logits[order[place]]) - logits[order[0]] - std::log(sum) : -INFINITE;
    CHECK_CLOSE(top.logProbabilities[place], expected, 1e-5 + (exists ? 1e-7 * std::fabs(expected) : 0));
  }
  CHECK_EQUAL(top.drawn, order.empty() ? NOTHING_DRAWN : 0u);
  CHECK_EQUAL(top.picked, order.empty() ? 0u : order[0]);
}

}  // namespace

TEST("changed logits: biases, bans and penalties, beside unchanged rows, for one token and for many") {
  Random random(31);
  for (const int vocabulary : {61, 4100, 9001}) {
    for (const int topK : {1, 40, 300}) {
      const std::vector<uint32_t> picked = {3, 17, 60, 33};
      std::vector<Row> rows;
      for (int r = 0; r < 12; r++) {
        Row row;
        row.logits = random.normals<float>(vocabulary, 3);
        row.topK = r % 3 == 0 ? 1 : std::min(topK, vocabulary);
        row.isChanged = r % 4 != 3;
        if (r % 5 == 4) row.allowed.assign((vocabulary + 31) / 32, 0x5a5a5a5au | 1u);
        if (row.isChanged) {
          // Also more tokens than the kernel has threads.
          const int64_t count = r % 2 == 0 ? random.integer(0, 20) : std::min(vocabulary, 700);
          for (int64_t i = 0; i < count; i++) {
            const uint32_t token = static_cast<uint32_t>(random.integer(0, vocabulary - 1));
            if (row.changes.count(token) || row.changes.count(token | CHOSEN_TOKEN)) continue;
            const double kind = random.uniform();
            row.changes[kind < 0.4 ? token | CHOSEN_TOKEN : token] =
                kind > 0.9 ? -INFINITE : static_cast<float>(kind > 0.8 ? random.uniform(8, 12) : random.normal() * 2);
          }
          if (random.uniform() < 0.6) row.picked = static_cast<int>(random.integer(0, 3));
          row.frequency = 0.7f, row.presence = 1.3f;
        }
        rows.push_back(row);
      }
      const std::vector<Top> tops = run(rows, picked);
      for (size_t r = 0; r < rows.size(); r++) check(rows[r], picked, tops[r]);
    }
  }
}

TEST("changed logits: a picked token gets only the frequency penalty if it was chosen before, otherwise both penalties") {
  Row row;
  row.logits = {0, 1, 2, 3};
  row.topK = 4;
  row.isChanged = true;
  row.frequency = 0.5f, row.presence = 8;
  row.picked = 0;
  for (const bool before : {false, true}) {
    row.changes = {{before ? 3 | CHOSEN_TOKEN : 3, 0.25f}};
    const Top top = run({row}, {3})[0];
    CHECK_EQUAL(top.tokens[0], before ? 3u : 2u);
    check(row, {3}, top);
  }
}

TEST("changed logits: a row whose changes leave no token draws nothing, and one without changes keeps its infinite logits") {
  Row banned, infinite;
  banned.logits = infinite.logits = std::vector<float>(40, -INFINITE);
  banned.logits.assign(40, 1.0f);
  for (uint32_t token = 0; token < 40; token++) banned.changes[token] = -INFINITE;
  banned.isChanged = true;
  for (const int topK : {1, 3}) {
    banned.topK = infinite.topK = topK;
    const std::vector<Top> tops = run({banned, infinite}, {0});
    check(banned, {0}, tops[0]);
    CHECK_EQUAL(tops[1].drawn, 0u);
  }
}

TEST("logits are scaled, then capped") {
  Random random(12);
  const int count = 3, vocabulary = 700;
  const auto logits = random.normals<float>(count * vocabulary, 20);
  for (const float cap : {0.0f, 30.0f}) {
    DeviceArray<float> onDevice(logits);
    launchCap(onDevice, 0.5f, cap, count, vocabulary, nullptr);
    const auto capped = onDevice.host();
    for (size_t i = 0; i < capped.size(); i++) {
      const double scaled = logits[i] * 0.5;
      CHECK_CLOSE(capped[i], cap > 0 ? cap * std::tanh(scaled / cap) : scaled, 1e-5);
    }
  }
}
