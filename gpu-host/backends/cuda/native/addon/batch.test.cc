// Tests the parsing of untrusted words (values, refusals, no read past the end), and the packing of results.
#include "batch.h"
#include <sys/mman.h>
#include <unistd.h>
#include <cmath>
#include <cstring>
#include <limits>
#include "../testing/test.h"

using namespace pie;
using namespace pie::batch_words;

namespace {

// hidden, vocabulary, slots, picks, tableSlots.
constexpr BatchLimits LIMITS{4, 70, 50, 3, 40};

// A copy whose last word lies directly before an inaccessible page.
class AtTheEdge {
 public:
  explicit AtTheEdge(const std::vector<uint32_t>& words) : count(words.size()) {
    const size_t page = size_t(sysconf(_SC_PAGESIZE));
    const size_t used = (words.size() * 4 + page - 1) / page * page;
    bytes_ = used + page;
    memory_ = static_cast<char*>(mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    mprotect(memory_ + used, page, PROT_NONE);
    data = reinterpret_cast<uint32_t*>(memory_ + used) - words.size();
    if (!words.empty()) std::memcpy(data, words.data(), words.size() * 4);
  }
  ~AtTheEdge() { munmap(memory_, bytes_); }
  AtTheEdge(const AtTheEdge&) = delete;
  AtTheEdge& operator=(const AtTheEdge&) = delete;

  uint32_t* data;
  size_t count;

 private:
  char* memory_;
  size_t bytes_;
};

uint32_t bitsOf(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  return bits;
}

std::vector<uint32_t> batchOf(const std::vector<std::vector<uint32_t>>& sequences) {
  std::vector<uint32_t> words{MAGIC, 0, uint32_t(sequences.size()), 0};
  for (const std::vector<uint32_t>& sequence : sequences) words.insert(words.end(), sequence.begin(), sequence.end());
  words[1] = uint32_t(words.size());
  return words;
}

// Two tokens over three slots, with writes, a mask, one draw among allowed tokens, states and attention.
std::vector<uint32_t> rich() {
  std::vector<uint32_t> words{2, 3, 1, 8, MASK | WRITES | STATES | ATTENTION | ALLOWED | DRAWS, 0, 0, 5};
  for (const uint32_t word : {69u, 1u, 7u, 8u, 40u, 41u, 49u, 10u, 11u}) words.push_back(word);
  for (const uint32_t word : {0x01000101u, 0x01010100u, 0x00000101u}) words.push_back(word);
  for (const uint32_t word : {~0u, ~0u, 63u}) words.push_back(word);
  for (const uint32_t word : {bitsOf(0.5f), bitsOf(0.9f), bitsOf(0.1f), 1234u, 8u}) words.push_back(word);
  return words;
}

// One row of embeds without writes that wants three tokens with log-probabilities.
std::vector<uint32_t> plain() { return {1, 0, 1, 3, EMBEDS | PROBABILITIES, 0, 0, 0, bitsOf(1.0f), bitsOf(-2.0f), bitsOf(0.0f), bitsOf(4.0f), 0}; }

ParsedBatch parse(const std::vector<uint32_t>& words) {
  const AtTheEdge copy(words);
  return parseBatch(copy.data, copy.count, LIMITS);
}

std::string refusalOf(const std::vector<uint32_t>& words) {
  try {
    parse(words);
  } catch (const EngineError& error) {
    return error.code + ": " + error.what();
  }
  return "";
}

}  // namespace

TEST("batch words: every array that a sequence may have is parsed") {
  const std::vector<uint32_t> words = batchOf({rich(), plain()});
  const ParsedBatch batch = parseBatch(words.data(), words.size(), LIMITS);
  REQUIRE(batch.sequences.size() == 2);
  const Sequence& first = batch.sequences[0];
  CHECK(first.rows == 2 && first.contextCount == 3 && first.outputRows == 1 && first.topK == 8);
  CHECK(first.embeds == nullptr && first.tokens[0] == 69 && first.tokens[1] == 1);
  CHECK(first.positions[1] == 8 && first.context[2] == 49 && first.writes[0] == 10 && first.writes[1] == 11);
  CHECK(first.mask[0] == 1 && first.mask[2] == 0 && first.mask[3] == 1 && first.mask[9] == 1);
  CHECK(first.allowed[2] == 63 && !first.logProbabilities && first.states && first.attention);
  CHECK(first.draws[0].temperature == 0.5f && first.draws[0].minP == 0.1f && first.draws[0].seed == 1234 && first.draws[0].position == 8);
  const Sequence& second = batch.sequences[1];
  CHECK(second.rows == 1 && second.contextCount == 0 && second.tokens == nullptr && second.embeds[1] == -2.0f);
  CHECK(second.mask == nullptr && second.writes == nullptr && second.allowed == nullptr && second.draws == nullptr);
  CHECK(second.logProbabilities && !second.states && !second.attention);
  CHECK(batch.adapters == std::vector<uint32_t>{5, 0});
}

TEST("batch words: tokens picked by the previous batch are inputs") {
  const std::vector<uint32_t> words = batchOf({{2, 0, 1, 1, PICKED, 0, 0, 0, 2, 0, 7, 8}});
  const ParsedBatch batch = parseBatch(words.data(), words.size(), LIMITS);
  const Sequence& only = batch.sequences.at(0);
  CHECK(only.tokens == nullptr && only.embeds == nullptr && only.picked[0] == 2 && only.picked[1] == 0 && only.positions[1] == 8);
}

TEST("batch words: a table brings only the slots that it lacks, and stays within the device's tables") {
  // Five context slots, of which three are known, and one row.
  const auto tabled = [](uint32_t table, uint32_t known, uint32_t flags = TABLE | WRITES) {
    return batchOf({{1, 5, 0, 0, flags, table, known, 0, 69, 5, 8, 9, 10}, {1, 0, 0, 0, 0, 0, 0, 0, 7, 0}});
  };
  const std::vector<uint32_t> words = tabled(34, 3);
  const ParsedBatch batch = parseBatch(words.data(), words.size(), LIMITS);
  const Sequence& first = batch.sequences.at(0);
  CHECK(first.table == 34 && first.known == 3 && first.contextCount == 5 && first.context[0] == 8 && first.context[1] == 9 && first.writes[0] == 10);
  CHECK(batch.sequences.at(1).table == -1 && batch.sequences.at(1).known == 0);
  CHECK(refusalOf(tabled(35, 3)).find("its table is not within 40 slots") != std::string::npos);
  CHECK(refusalOf(tabled(0xffffffff, 3)).find("its table is not within 40 slots") != std::string::npos);
  CHECK(refusalOf(tabled(0, 6)).find("more slots than its context") != std::string::npos);
  CHECK(refusalOf(tabled(0, 3, TABLE | MASK)).find("a table and a mask") != std::string::npos);
}

TEST("batch words: a batch truncated anywhere is refused, and no word past its end is read") {
  const std::vector<uint32_t> whole = batchOf({rich(), plain()});
  for (size_t length = 0; length < whole.size(); length++) {
    std::vector<uint32_t> cut(whole.begin(), whole.begin() + long(length));
    CHECK(refusalOf(cut) != "");
    // The same with a matching word count in the header.
    if (length > 1) cut[1] = uint32_t(length);
    CHECK(refusalOf(cut) != "");
  }
  std::vector<uint32_t> longer = whole;
  longer.push_back(0);
  longer[1]++;
  CHECK(refusalOf(longer).find("after the last sequence") != std::string::npos);
}

TEST("batch words: words changed anywhere are parsed or refused, and nothing outside of them is read") {
  const std::vector<uint32_t> whole = batchOf({rich(), plain()});
  testing::Random random(7);
  int refused = 0;
  for (int i = 0; i < 4000; i++) {
    std::vector<uint32_t> words = whole;
    const int changes = random.integer(1, 3);
    for (int change = 0; change < changes; change++) {
      const uint32_t values[] = {0, 1, 0x7fffffff, 0x80000000, 0xffffffff, uint32_t(random.integer(0, 100)), 0x7fc00000};
      words[size_t(random.integer(0, int(words.size()) - 1))] = values[random.integer(0, 6)];
    }
    refused += refusalOf(words) != "";
  }
  CHECK(refused > 500 && refused < 4000);
}

TEST("batch words: tokens, slots and numbers that the model does not have are refused") {
  const auto changed = [](size_t word, uint32_t value) {
    std::vector<uint32_t> words = batchOf({rich()});
    words[HEADER + word] = value;
    return refusalOf(words);
  };
  CHECK(changed(8, 70).find("token 70 is not below 70") != std::string::npos);
  CHECK(changed(14, 50).find("slot 50") != std::string::npos);
  CHECK(changed(16, 0xffffffff).find("slot 4294967295") != std::string::npos);
  // With PICKED, the inputs are indices into the previous batch's picked tokens.
  CHECK(changed(4, rich()[4] | PICKED).find("the token picked at row 69 is not below 3") != std::string::npos);
  CHECK(changed(4, rich()[4] | PICKED | EMBEDS).find("two kinds") != std::string::npos);
  CHECK(changed(2, 3).find("more output rows") != std::string::npos);
  CHECK(changed(3, 71).find("top tokens") != std::string::npos);
  CHECK(changed(0, 0).find("no inputs") != std::string::npos);
  CHECK(changed(1, 0xfffffffe).find("context") != std::string::npos);
  CHECK(changed(3, 0).find("draw") != std::string::npos);
  CHECK(changed(2, 0).find("no rows") != std::string::npos);
  std::vector<uint32_t> words = batchOf({plain()});
  for (const float value : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
    words[HEADER + 10] = bitsOf(value);
    CHECK(refusalOf(words).find("not finite") != std::string::npos);
  }
  CHECK(refusalOf({MAGIC, 4, 0, 0}).find("invalid") == 0);
  CHECK(refusalOf({MAGIC + 1, 4, 1, 0}).find("not a batch") != std::string::npos);
}

TEST("results: packed by sequence, drawn tokens replace the top tokens") {
  const int hidden = 2;
  const std::vector<ResultShape> shapes{
      {2, 3, true, false, true, 0},   // Two rows of three tokens with log-probabilities, and their states.
      {2, 3, false, true, false, 2},  // Two draws, and attention of two keys.
      {0, 0, false, false, false, 0},
      {1, 1, false, false, false, 0},
      {2, 2, false, false, false, 0},  // The first log-probability of its first row is NaN.
  };
  const std::vector<float> states{1, 2, 3, 4};
  const std::vector<uint32_t> tokens{10, 11, 12, 13, 14, 15, 20, 21, 22, 23, 24, 25, 30, 40, 41, 42, 43};
  std::vector<float> logProbabilities(tokens.size());
  for (size_t i = 0; i < tokens.size(); i++) logProbabilities[i] = -float(i);
  logProbabilities[13] = NAN;
  const std::vector<uint32_t> drawn{2, NOTHING_DRAWN};
  const std::vector<float> attention{0.25f, 0.75f};
  const Results results{states.data(), tokens.data(), logProbabilities.data(), drawn.data(), attention.data(), 0};
  // The first shape's tokens, log-probabilities and states; the second's drawn tokens and attention; the tokens of the last two.
  REQUIRE(resultWords(shapes, hidden) == 6 + 6 + 4 + 2 + 2 + 1 + 4);
  std::vector<uint32_t> packed(25);
  packResults(packed.data(), shapes, results, hidden);
  std::vector<uint32_t> expected{10, 11, 12, 13, 14, 15};
  for (int i = 0; i < 6; i++) expected.push_back(bitsOf(-float(i)));
  for (int i = 1; i <= 4; i++) expected.push_back(bitsOf(float(i)));
  for (const uint32_t word : {22u, NOTHING_DRAWN, bitsOf(0.25f), bitsOf(0.75f), 30u, NOTHING_DRAWN, 41u, 42u, 43u}) expected.push_back(word);
  CHECK(packed == expected);
}
