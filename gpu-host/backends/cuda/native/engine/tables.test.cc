// Slot tables on the device: after any schedule of batches, each table equals the list that a step without tables uploads, and results are equal bit
// for bit.
#include <algorithm>
#include <memory>
#include "../testing/attention-views.h"
#include "step/plan.h"
#include "../testing/engine.h"

using namespace pie;
using testing::Random;

namespace {

constexpr int PLACES = 6;

// A sequence that decodes or prefills in steps. `slots` has the context, and the slots that later inputs write.
struct Live {
  std::vector<uint32_t> slots;
  int filled = 0;  // Length of the context.
  int place = -1;  // Place of its table, in units of the longest list; -1: none.
  int held = 0;    // Leading slots that the table has.
};

// Sequences that start, grow, fork, share pages, lose their tables to others, and end. Slots of ended sequences are used again.
class Schedule {
 public:
  Schedule(uint64_t seed, int slots, int longest, int mostRows) : random_(seed), slots_(slots), longest_(longest), mostRows_(mostRows) {}

  // Calls of the next batch, with their tables.
  std::vector<Call> next() {
    change();
    used_.clear();
    std::vector<Call> calls;
    std::vector<uint32_t> written;
    for (Live& live : live_) {
      if (random_.uniform() < 0.3) continue;
      const int wanted = random_.uniform() < 0.7 ? 1 : static_cast<int>(random_.integer(2, mostRows_));
      const int rows = std::min(wanted, static_cast<int>(live.slots.size()) - live.filled);
      if (rows < 1) continue;
      // Sequences that share a page do not write it in one batch.
      const auto begin = live.slots.begin() + live.filled;
      if (std::any_of(begin, begin + rows, [&](uint32_t slot) { return std::find(written.begin(), written.end(), slot) != written.end(); })) continue;
      written.insert(written.end(), begin, begin + rows);
      Call call = makeCall(randomTokens(random_, rows), {live.slots.begin(), begin}, {begin, begin + rows});
      const bool keeps = rows > 10 || random_.uniform() < 0.8;
      if (!keeps) call.writes.clear();
      settle(live, call, rows, keeps);
      calls.push_back(std::move(call));
    }
    return calls;
  }

 private:
  void change() {
    if (live_.size() < 5 && random_.uniform() < 0.5) start();
    if (!live_.empty() && random_.uniform() < 0.1) live_.erase(live_.begin() + random_.integer(0, static_cast<int>(live_.size()) - 1));
    if (live_.size() > 1 && random_.uniform() < 0.2) fork();
    // A slot of the context changes: the table stays right only before that slot.
    if (!live_.empty() && random_.uniform() < 0.1) {
      Live& live = any();
      if (live.filled > 0) {
        const int at = static_cast<int>(random_.integer(0, live.filled - 1));
        live.slots[at] = static_cast<uint32_t>(random_.integer(0, slots_ - 1));
        live.held = std::min(live.held, at);
      }
    }
  }

  void start() {
    Live live;
    live.slots = range(0, static_cast<uint32_t>(slots_));
    for (int i = 0; i < longest_; i++) std::swap(live.slots[i], live.slots[random_.integer(i, slots_ - 1)]);
    live.slots.resize(longest_);
    live.filled = static_cast<int>(random_.integer(0, longest_ / 2));
    live_.push_back(std::move(live));
  }

  // Shares the first slots of another sequence.
  void fork() {
    Live forked = any();
    Live& other = any();
    const int shared = std::min(forked.filled, other.filled);
    std::copy_n(forked.slots.begin(), shared, other.slots.begin());
    other.held = 0;
  }

  // Chooses the call's table: none, the sequence's own, or one that is taken from another sequence.
  void settle(Live& live, Call& call, int rows, bool keeps) {
    if (live.place < 0 || random_.uniform() < 0.05) {
      live.place = static_cast<int>(random_.integer(-1, PLACES - 1));
      live.held = 0;
      for (Live& other : live_)
        if (&other != &live && other.place == live.place) other.place = -1;
    }
    // A place that an earlier call of this batch used stays with that call.
    if (std::find(used_.begin(), used_.end(), live.place) != used_.end()) live.place = -1;
    if (live.place >= 0) {
      used_.push_back(live.place);
      call.table = live.place * longest_;
      const int most = std::min(live.held, live.filled);
      call.known = random_.uniform() < 0.8 ? most : static_cast<int>(random_.integer(0, most));
      live.held = live.filled + (keeps ? rows : 0);
    }
    if (keeps) live.filled += rows;
  }

  Live& any() { return live_[static_cast<size_t>(random_.integer(0, static_cast<int>(live_.size()) - 1))]; }

  Random random_;
  int slots_, longest_, mostRows_;
  std::vector<Live> live_;
  std::vector<int> used_;  // Places of the batch.
};

}  // namespace

TEST("slot tables: after random schedules, each table on the device is the list built from scratch") {
  EngineOptions options;
  options.shape = {6, 8, 2, 4, 2, 64, 61, 1e-5f};
  options.pageSize = 8;
  options.pageCount = 400;
  options.maxRows = 24;
  options.maxSequences = 5;
  PlanContext context;
  context.limits = stepLimits(options, options.pageCount);
  context.multiprocessors = 4;
  constexpr int LONGEST = 2600;  // More than two table writes of up to TABLE_WRITE_SLOTS (1024).
  context.limits.tableSlots = PLACES * LONGEST;
  size_t tables = 0, known = 0, listed = 0, brought = 0, shared = 0;
  for (int seed = 0; seed < 12; seed++) {
    context.graphs = seed % 2 == 0;
    context.fastAttention = seed % 3 > 0;
    context.sharedPrefixes = seed % 4 > 0;
    Planner planner(context);
    Schedule schedule(seed, 3200, LONGEST, 40);
    std::vector<int> device(context.limits.tableSlots, -7);
    for (int round = 0; round < 60; round++) {
      const std::vector<Call> calls = schedule.next();
      if (calls.empty()) continue;
      const std::vector<Sequence> sequences = views(calls);
      const Batch batch{sequences.data(), static_cast<int>(sequences.size())};
      for (const Part& part : splitBatch(batch, context.limits)) {
        std::vector<uint8_t> block(uploadBound(part, context), 0xcd);
        const int blockWord = context.limits.tableSlots + 64;
        const StepPlan plan = planner.plan(batch, part, block.data(), blockWord);
        CHECK(plan.upload.bytes <= block.size() && block.size() <= mostUploadBytes(context));
        const int* words = reinterpret_cast<const int*>(block.data());
        const int* counts = words + plan.upload.counts / sizeof(int);
        for (int i = 0; i < counts[1]; i++) {
          const TableWrite write = reinterpret_cast<const TableWrite*>(words + counts[2])[i];
          REQUIRE(write.count > 0 && write.count <= TABLE_WRITE_SLOTS && write.to >= 0 && write.to + write.count <= context.limits.tableSlots);
          REQUIRE(write.from >= 0 && (write.from + write.count) * sizeof(int) <= plan.upload.bytes);
          std::copy_n(words + write.from, write.count, device.begin() + write.to);
          brought += write.count;
        }
        for (int i = 0; i < counts[0]; i++) {
          const AttentionItem& item = reinterpret_cast<const AttentionItem*>(block.data() + plan.upload.items[0])[i];
          if (item.kvHead > 0) continue;
          const bool isShared = item.merge == ATTENTION_SHARED;
          for (const AttentionView& view : viewsOf(item, reinterpret_cast<const AttentionMember*>(block.data()), 2)) {
            int row = 0;
            const Piece* piece = nullptr;
            for (const Piece& each : part.pieces) {
              if (row == view.queryRow) piece = &each;
              row += each.rows;
            }
            REQUIRE(piece != nullptr);
            const Call& call = calls[piece->sequence];
            const int* list = item.firstKey >= blockWord ? words + (item.firstKey - blockWord) : &device[item.firstKey];
            CHECK(isShared || (call.table < 0 ? item.firstKey >= blockWord : item.firstKey == call.table));
            std::vector<int> expected(call.context.begin(), call.context.end());
            for (int k = 0; k < piece->firstRow + piece->rows; k++)
              expected.push_back(call.writes.empty() ? context.limits.slots + piece->scratch + k : static_cast<int>(call.writes[k]));
            // A shared item reads the first keys of each of its sequences, and never all of them.
            const int end = isShared ? item.endTile * ATTENTION_TILE : item.keys;
            CHECK(isShared ? end < static_cast<int>(expected.size()) : end == static_cast<int>(expected.size()));
            CHECK(std::equal(expected.begin(), expected.begin() + end, list));
            tables += call.table >= 0;
            known += call.known > 0;
            shared += isShared;
            listed += item.keys;
          }
        }
      }
    }
  }
  CHECK(tables > 300 && known > 100 && shared > 50 && brought > 0 && brought < listed);
}

// Runs random schedules, with lists of up to `longest` slots, on an engine with tables and on one without. Both must give the same bits. Returns the
// number of calls that relied on a table.
static size_t compareTables(const TinyModel& model, int slots, int longest, int rounds) {
  const auto with = Engine::create(model.options, model.source()), without = Engine::create(model.options, model.source());
  REQUIRE(with->tableSlots() >= PLACES * longest);
  const int hidden = model.options.shape.hidden;
  size_t known = 0;
  for (int seed = 0; seed < 4; seed++) {
    Schedule schedule(100 + seed, slots, longest, 16);
    // Each step is waited for after the next one is submitted.
    uint64_t under = 0;
    std::vector<Call> calls, before;
    std::vector<Answer> expected, expectedBefore;
    for (int round = 0; round < rounds; round++) {
      calls = schedule.next();
      if (calls.empty()) continue;
      const uint64_t step = submitCalls(*with, calls);
      for (Call& call : calls) {
        known += call.known > 0;
        call.table = -1;
        call.known = 0;
      }
      expected = runCalls(*without, calls, hidden);
      const auto check = [&](uint64_t id, const std::vector<Call>& asked, const std::vector<Answer>& wanted) {
        const std::vector<Answer> answers = answersOf(with->wait(id), asked, hidden);
        for (size_t i = 0; i < answers.size(); i++)
          CHECK(answers[i].states == wanted[i].states && answers[i].logProbabilities == wanted[i].logProbabilities);
      };
      if (under > 0) check(under, before, expectedBefore);
      under = step;
      before = calls;
      expectedBefore = expected;
    }
    (void)with->wait(under);
  }
  CHECK(with->graphs().captured > 0);
  return known;
}

TEST("slot tables: random schedules give the same bits with tables as without, with graphs and two steps in flight") {
  TinyModel model = tinyModel(41);
  model.options.maxRows = 12;
  model.options.maxSequences = 4;
  CHECK(compareTables(model, 180, 60, 40) > 60);
}

TEST("slot tables: random schedules give the same bits with tables as without, where sequences share the keys that they begin with") {
  TinyModel model = tinyModel(43, {.heads = 4, .kvHeads = 1, .headDim = 64});
  model.options.precision = Precision::Bf16;
  model.options.pageCount = 200;
  CHECK(compareTables(model, 1500, 700, 25) > 40);
}

TEST("slot tables: a batch is refused if a table lies outside the tables' memory, tables overlap, or known slots have no table") {
  const TinyModel model = tinyModel(42);
  const auto engine = Engine::create(model.options, model.source());
  const auto refusal = [&](const std::vector<Call>& calls) {
    try {
      runCalls(*engine, calls);
    } catch (const EngineError& error) {
      return error.code + ": " + error.what();
    }
    return std::string();
  };
  const auto tabled = [](int table, int known) {
    Call call = makeCall({1, 2}, range(0, 10), {});
    call.table = table;
    call.known = known;
    return call;
  };
  const int most = engine->tableSlots() - 12;
  CHECK_EQUAL(refusal({tabled(most, 0), tabled(most - 12, 0)}), "");
  CHECK(refusal({tabled(most + 1, 0)}).find("invalid: Sequence 0 has a table of 12 slots at place") == 0);
  CHECK(refusal({tabled(50, 0), tabled(70, 0), tabled(61, 0)}).find("Two sequences have a table at place 61") != std::string::npos);
  CHECK(refusal({tabled(-1, 3)}).find("has no table") != std::string::npos);
  CHECK(refusal({tabled(0, 11)}).find("has no context") != std::string::npos);
  Call masked = tabled(0, 0);
  masked.mask.assign(2 * 12, 1);
  CHECK(refusal({masked}).find("a mask and a table") != std::string::npos);
}
