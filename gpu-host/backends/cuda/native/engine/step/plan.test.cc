// Decodes plans of random batches as the kernels would, and checks the keys that each row sees, the slot that it writes and its outputs.
#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include "../../testing/attention-views.h"
#include "../memory/budget.h"
#include "../memory/copies.h"
#include "masks.h"
#include "plan.h"
#include "../../testing/engine.h"

using namespace pie;
using testing::Random;

namespace {

constexpr int VOCABULARY = 70, HIDDEN = 6;

PlanContext contextOf(bool graphs, bool fast, std::vector<int> windows = {}) {
  EngineOptions options;
  options.traits.windows = std::move(windows);
  options.shape = {HIDDEN, 8, 2, 4, 2, 64, VOCABULARY, 1e-5f};
  options.pageSize = 8;
  options.pageCount = 20;
  options.maxRows = 24;
  options.maxSequences = 5;
  PlanContext context;
  context.limits = stepLimits(options, options.pageCount);
  context.limits.keys = 300;
  context.limits.maskWords = 80 * static_cast<int>(1 + context.limits.windows.size());
  context.limits.allowedRows = 20;
  context.multiprocessors = 4;
  context.fastAttention = fast;
  context.graphs = graphs;
  return context;
}

std::vector<uint32_t> randomSlots(Random& random, int count, int slots) {
  std::vector<uint32_t> all = range(0, slots);
  for (int i = 0; i < count; i++) std::swap(all[i], all[random.integer(i, slots - 1)]);
  all.resize(count);
  return all;
}

Call randomCall(Random& random) {
  const int rows = static_cast<int>(random.uniform() < 0.4 ? 1 : random.integer(1, 40));
  const int context = static_cast<int>(random.uniform() < 0.3 ? 0 : random.integer(0, 100));
  Call call = makeCall(randomTokens(random, rows, VOCABULARY), randomSlots(random, context, 160), {});
  if (rows > 24 || random.uniform() < 0.6) call.writes = randomSlots(random, rows, 160);
  if (random.uniform() < 0.3) {
    call.tokens.clear();
    call.embeds = random.normals<float>(static_cast<size_t>(rows) * HIDDEN);
  } else if (random.uniform() < 0.2) {
    call.picked = std::move(call.tokens);
    call.tokens.clear();
  }
  if (random.uniform() < 0.5) {
    const int kind = static_cast<int>(random.integer(0, 3));
    const double density = kind == 0 ? 0.02 : kind == 1 ? 0.5 : 1;
    call.mask.resize(static_cast<size_t>(rows) * call.keys());
    for (int row = 0; row < rows; row++)
      for (int key = 0; key < call.keys(); key++) {
        // In a long sequence no input sees a later one, because otherwise the sequence could not be cut.
        const bool hidden = key > context + row && (rows > 20 || kind == 3);
        call.mask[row * call.keys() + key] = !hidden && random.uniform() < density ? static_cast<uint8_t>(random.integer(1, 255)) : 0;
      }
  }
  call.outputRows = static_cast<int>(random.integer(0, rows));
  call.topK = static_cast<int>(random.integer(0, 4));
  call.states = random.uniform() < 0.4;
  call.attention = random.uniform() < 0.1;
  if (call.topK > 0 && random.uniform() < 0.4)
    for (int i = 0; i < call.outputRows * 3; i++) call.allowed.push_back(static_cast<uint32_t>(random.bits()));
  if (call.topK > 0 && random.uniform() < 0.4)
    for (int i = 0; i < call.outputRows; i++) call.draws.push_back({1, 1, 0, static_cast<uint32_t>(random.bits()), static_cast<uint32_t>(i)});
  return call;
}

template <typename T>
const T* table(const std::vector<uint8_t>& block, size_t offset) {
  return reinterpret_cast<const T*>(block.data() + offset);
}

// The slots that a row sees according to the items of one KV head, in layers without a window (`kind` 0) or with window `kind` - 1.
std::vector<int> seenBy(const std::vector<uint8_t>& block, const UploadLayout& at, int row, int group, int kvHead, int kind = 0) {
  std::vector<int> slots;
  const AttentionItem* items = table<AttentionItem>(block, at.items[kind]);
  for (int i = 0; i < table<int>(block, at.counts)[kind == 0 ? 0 : 4 + kind]; i++) {
    const AttentionItem& item = items[i];
    if (item.kvHead != kvHead) continue;
    for (const AttentionView& view : viewsOf(item, table<AttentionMember>(block, 0), group)) {
      for (int packed = view.firstRow; packed < view.firstRow + view.rows; packed++) {
        if (packed % group != 0 || view.queryRow + packed / group != row) continue;
        for (int tile = item.firstTile; tile < item.endTile; tile++) {
          if (item.tileWord >= 0 && (table<uint32_t>(block, 0)[item.tileWord + tile / 32] >> (tile % 32) & 1) == 0) continue;
          for (int key = tile * ATTENTION_TILE; key < std::min((tile + 1) * ATTENTION_TILE, item.keys); key++) {
            const uint32_t* words = table<uint32_t>(block, 0) + item.maskWord + static_cast<size_t>(packed / group) * item.maskStride;
            if (item.maskWord < 0 ? key <= item.context + packed / group : (words[key / 32] >> (key % 32) & 1) != 0)
              slots.push_back(table<int>(block, 0)[item.firstKey + key]);
          }
        }
      }
    }
  }
  std::sort(slots.begin(), slots.end());
  return slots;
}

// The slots of a call's inputs: those that it writes, or scratch slots. All parts of a call must use the same scratch slots.
struct Written {
  std::vector<int> slots;
};

class Reading {
 public:
  Reading(const std::vector<Call>& calls, const PlanContext& context)
      : calls_(calls), context_(context), written_(calls.size()), done_(calls.size(), 0) {}

  void part(const Part& part, const StepPlan& plan, const std::vector<uint8_t>& block) {
    const UploadLayout& at = plan.upload;
    int row = 0;
    // Scratch slots in use: two sequences of a part never share one.
    std::set<int> taken;
    for (const Piece& piece : part.pieces) {
      CHECK_EQUAL(done_[piece.sequence], piece.firstRow);
      for (int i = 0; i < piece.rows; i++, row++) inputs(piece, piece.firstRow + i, row, at, block);
    }
    CHECK_EQUAL(row, part.rows);
    for (; row < plan.shape.rows; row++) {
      CHECK_EQUAL(table<int>(block, at.slots)[row], context_.limits.trashSlot());
      CHECK_EQUAL(table<int>(block, at.tokens)[row], 0);
      CHECK(seenBy(block, at, row, 2, 0).empty());
    }
    row = 0;
    for (const Piece& piece : part.pieces) {
      for (int i = 0; i < piece.rows; i++, row++) {
        CHECK(seenBy(block, at, row, 2, 0) == expected(piece, piece.firstRow + i));
        CHECK(seenBy(block, at, row, 2, 1) == expected(piece, piece.firstRow + i));
      }
      windows(piece, row - piece.rows, at, block);
      const Call& call = calls_[piece.sequence];
      if (call.writes.empty())
        for (int i = 0; i < piece.firstRow + piece.rows; i++) CHECK(taken.insert(written_[piece.sequence].slots[i]).second);
    }
    outputs(part, plan, block);
  }

  std::map<int, int> positions;  // By slot.
  int masked = 0;                // Rows from which a window hides keys.

  void end() const {
    for (size_t i = 0; i < calls_.size(); i++) CHECK_EQUAL(done_[i], calls_[i].rows());
  }

 private:
  void inputs(const Piece& piece, int input, int row, const UploadLayout& at, const std::vector<uint8_t>& block) {
    const Call& call = calls_[piece.sequence];
    const int token = table<int>(block, at.tokens)[row];
    if (!call.picked.empty()) {
      CHECK_EQUAL(token, -2 - static_cast<int>(call.picked[input]));
    } else if (call.embeds.empty()) {
      CHECK_EQUAL(token, static_cast<int>(call.tokens[input]));
    } else {
      CHECK_EQUAL(token, -1);
      const float* embed = table<float>(block, 0) + static_cast<size_t>(table<int>(block, at.embedRows)[row]) * HIDDEN;
      CHECK(std::equal(embed, embed + HIDDEN, call.embeds.begin() + static_cast<ptrdiff_t>(input) * HIDDEN));
    }
    CHECK_EQUAL(table<int>(block, at.positions)[row], static_cast<int>(call.positions[input]));
    const int slot = table<int>(block, at.slots)[row];
    if (call.writes.empty()) CHECK(slot >= context_.limits.slots && slot < context_.limits.trashSlot());
    else CHECK_EQUAL(slot, static_cast<int>(call.writes[input]));
    written_[piece.sequence].slots.push_back(slot);
    done_[piece.sequence]++;
  }

  // A piece sees the positions of the keys that it and earlier pieces wrote.
  void windows(const Piece& piece, int firstRow, const UploadLayout& at, const std::vector<uint8_t>& block) {
    const Call& call = calls_[piece.sequence];
    for (int i = 0; i < piece.rows; i++) positions[written_[piece.sequence].slots[piece.firstRow + i]] = call.positions[piece.firstRow + i];
    for (size_t w = 0; w < context_.limits.windows.size(); w++)
      for (int i = 0; i < piece.rows; i++) {
        std::vector<int> slots;
        for (const int slot : expected(piece, piece.firstRow + i))
          if (static_cast<int>(call.positions[piece.firstRow + i]) - positions[slot] < context_.limits.windows[w]) slots.push_back(slot);
        CHECK(seenBy(block, at, firstRow + i, 2, 0, static_cast<int>(1 + w)) == slots);
        CHECK(seenBy(block, at, firstRow + i, 2, 1, static_cast<int>(1 + w)) == slots);
        masked += slots.size() < expected(piece, piece.firstRow + i).size();
      }
  }

  std::vector<int> expected(const Piece& piece, int input) const {
    const Call& call = calls_[piece.sequence];
    std::vector<int> slots;
    const int context = static_cast<int>(call.context.size());
    for (int key = 0; key < call.keys(); key++) {
      if (!call.sees(input, key)) continue;
      slots.push_back(key < context ? static_cast<int>(call.context[key]) : written_[piece.sequence].slots[key - context]);
    }
    std::sort(slots.begin(), slots.end());
    return slots;
  }

  static int rowOf(const StepPlan& plan, const std::vector<uint8_t>& block, int pick) {
    return plan.shape.last > 0 ? table<int>(block, plan.upload.lastPick)[pick] : pick;
  }

  void outputs(const Part& part, const StepPlan& plan, const std::vector<uint8_t>& block) const {
    const UploadLayout& at = plan.upload;
    int row = 0, head = 0, state = 0, draw = 0, result = 0, wanted = 0;
    size_t received = 0;
    for (const Piece& piece : part.pieces) {
      const Call& call = calls_[piece.sequence];
      for (int i = 0; i < piece.rows; i++, row++) {
        const int output = piece.firstRow + i - (call.rows() - call.outputRows);
        if (output < 0) continue;
        if (call.states) CHECK_EQUAL(rowOf(plan, block, table<int>(block, at.statePick)[state++]), row);
        wanted += call.states || call.topK > 0;
        if (call.topK == 0) continue;
        CHECK_EQUAL(rowOf(plan, block, table<int>(block, at.headPick)[head]), row);
        const HeadRow& wanted = table<HeadRow>(block, at.headRows)[head++];
        CHECK_EQUAL(wanted.topK, call.topK);
        CHECK_EQUAL(wanted.firstResult, result);
        result += call.topK;
        if (call.allowed.empty()) CHECK_EQUAL(wanted.allowedWord, -1);
        else CHECK(std::equal(&call.allowed[output * 3], &call.allowed[output * 3] + 3, table<uint32_t>(block, 0) + wanted.allowedWord));
        CHECK_EQUAL(wanted.draw, call.draws.empty() ? -1 : draw);
        if (!call.draws.empty()) CHECK_EQUAL(table<Draw>(block, at.draws)[draw++].seed, call.draws[output].seed);
      }
      if (!call.attention) continue;
      REQUIRE(received < plan.received.size());
      CHECK_EQUAL(plan.received[received].sequence.keys, static_cast<int>(call.context.size()) + piece.firstRow + piece.rows);
      received++;
    }
    CHECK_EQUAL(head, part.heads);
    CHECK_EQUAL(wanted, part.wanted);
    CHECK(plan.shape.last == 0 || plan.shape.last == wanted);
    CHECK_EQUAL(state, part.states);
    CHECK_EQUAL(draw, part.draws);
    CHECK_EQUAL(static_cast<int64_t>(result), part.results);
    CHECK_EQUAL(received, plan.received.size());
    for (; head < plan.shape.heads; head++) CHECK_EQUAL(table<HeadRow>(block, at.headRows)[head].topK, 0);
    for (; state < plan.shape.states; state++) CHECK_EQUAL(table<int>(block, at.statePick)[state], 0);
  }

  const std::vector<Call>& calls_;
  const PlanContext& context_;
  std::vector<Written> written_;
  std::vector<int> done_;
};

}  // namespace

TEST("plans of random batches encode the keys, the slot and the outputs of each row, for whole and for split batches") {
  size_t split = 0, padded = 0, shortened = 0;
  for (int seed = 0; seed < 120; seed++) {
    Random random(seed);
    const PlanContext context = contextOf(seed % 2 == 0, seed % 3 != 0);
    std::vector<Call> calls;
    for (int i = static_cast<int>(random.integer(1, 7)); i > 0; i--) calls.push_back(randomCall(random));
    const std::vector<Sequence> sequences = views(calls);
    const Batch batch{sequences.data(), static_cast<int>(sequences.size())};
    Planner planner(context);
    Reading reading(calls, context);
    const std::vector<Part> parts = splitBatch(batch, context.limits);
    split += parts.size() > 1;
    for (const Part& part : parts) {
      CHECK(part.rows <= context.limits.rows && static_cast<int>(part.pieces.size()) <= context.limits.sequences);
      CHECK(part.keys <= context.limits.keys && part.maskWords <= context.limits.maskWords && part.results <= context.limits.results);
      CHECK(part.allowedRows <= 20);
      const size_t bound = uploadBound(part, context);
      CHECK(bound <= mostUploadBytes(context));
      std::vector<uint8_t> block(bound, 0xcd);
      const StepPlan plan = planner.plan(batch, part, block.data());
      CHECK(plan.upload.bytes <= bound);
      CHECK(plan.results.bytes <= mostResultBytes(context));
      CHECK_EQUAL(plan.shape.padded, context.graphs && !part.wantsAttention);
      padded += plan.shape.padded;
      shortened += plan.shape.last > 0;
      reading.part(part, plan, block);
    }
    reading.end();
  }
  CHECK(split > 20 && padded > 50 && shortened > 20);
}

TEST("plans for layers with windows show each row the keys within the window, of whole and of split batches") {
  int masked = 0, split = 0;
  for (int seed = 0; seed < 60; seed++) {
    Random random(1000 + seed);
    const PlanContext context = contextOf(seed % 2 == 0, seed % 3 != 0, {seed % 5 == 0 ? 200 : 70, 9});
    std::vector<Call> calls;
    for (int i = static_cast<int>(random.integer(1, 7)); i > 0; i--) {
      calls.push_back(randomCall(random));
      // Some positions jump, and some come twice.
      if (random.uniform() < 0.3)
        for (uint32_t& position : calls.back().positions) position = static_cast<uint32_t>(random.integer(0, 150));
    }
    const std::vector<Sequence> sequences = views(calls);
    const Batch batch{sequences.data(), static_cast<int>(sequences.size())};
    Planner planner(context);
    Reading reading(calls, context);
    const bool ordered = random.uniform() < 0.5;
    for (int slot = 0; slot < context.limits.slots; slot++) {
      const uint32_t position = ordered ? slot : static_cast<uint32_t>(random.integer(0, 150));
      planner.positions().write(&slot, &position, 1);
      reading.positions[slot] = static_cast<int>(position);
    }
    const std::vector<Part> parts = splitBatch(batch, context.limits);
    split += parts.size() > 1;
    for (const Part& part : parts) {
      CHECK(part.maskWords <= context.limits.maskWords);
      const size_t bound = uploadBound(part, context);
      CHECK(bound <= mostUploadBytes(context));
      std::vector<uint8_t> block(bound, 0xcd);
      const StepPlan plan = planner.plan(batch, part, block.data());
      CHECK(plan.upload.bytes <= bound);
      reading.part(part, plan, block);
    }
    reading.end();
    masked += reading.masked;
  }
  CHECK(masked > 300 && split > 10);
}

TEST("a causal decode in a window lists the end of its slots, without a mask") {
  const PlanContext context = contextOf(false, true, {16, 0});
  Planner planner(context);
  const Call call = makeCall({1}, range(0, 100), {}, 1);
  const std::vector<uint32_t> positions = range(0, 100);
  for (int slot = 0; slot < 100; slot++) planner.positions().write(&slot, &positions[slot], 1);
  const Sequence sequence = call.view();
  const std::vector<Part> parts = splitBatch({&sequence, 1}, context.limits);
  std::vector<uint8_t> block(uploadBound(parts[0], context));
  const StepPlan plan = planner.plan({&sequence, 1}, parts[0], block.data());
  const AttentionItem& whole = *table<AttentionItem>(block, plan.upload.items[0]);
  const AttentionItem& item = *table<AttentionItem>(block, plan.upload.items[1]);
  CHECK_EQUAL(item.keys, 16);
  CHECK_EQUAL(item.maskWord, -1);
  CHECK_EQUAL(item.firstKey, whole.firstKey + 101 - 16);
}

TEST("the positions of slots follow copies with shifts, and pages") {
  const PlanContext context = contextOf(false, true, {16, 0});
  SlotPositions positions(context.limits);
  const int slots[] = {3, 4, 8};
  const uint32_t written[] = {30, 40, 80};
  positions.write(slots, written, 3);
  // The copies swap 3 and 4, as if both were read first; the last of two copies to one slot counts.
  const uint32_t sources[] = {3, 4, 8, 8}, destinations[] = {4, 3, 9, 9};
  const int32_t shifts[] = {0, -100, 5, 7};
  positions.copy(sources, destinations, shifts, 4);
  CHECK_EQUAL(positions.at(4), 30);
  CHECK_EQUAL(positions.at(3), -60);
  CHECK_EQUAL(positions.at(9), 87);
  CHECK_EQUAL(positions.bytes(8), 32u);
  std::vector<uint8_t> page(32);
  positions.readPage(1, 8, page.data());
  positions.writePage(2, 8, page.data());
  CHECK_EQUAL(positions.at(16), 80);
  CHECK_EQUAL(positions.at(17), 87);
  // Numbers from outside are bounded, so that no difference overflows.
  std::fill(page.begin(), page.end(), 0x7f);
  positions.writePage(0, 8, page.data());
  CHECK_EQUAL(positions.at(0), MOST_POSITION);
  CHECK_EQUAL(SlotPositions(contextOf(false, true).limits).bytes(8), 0u);
}

TEST("a sequence that wants more tokens than a step can return is cut among its outputs") {
  StepLimits limits = contextOf(false, false).limits;
  limits.results = 40;
  Call call = makeCall(range(0, 20), {}, range(0, 20), 10);
  call.outputRows = 9;
  const Sequence sequence = call.view();
  const std::vector<Part> parts = splitBatch({&sequence, 1}, limits);
  // The first 11 rows have no outputs; the other 9 want 10 tokens each. A step returns 40 tokens, so 4 outputs.
  REQUIRE(parts.size() == 3);
  CHECK_EQUAL(parts[0].rows, 15);
  CHECK_EQUAL(parts[0].heads, 4);
  CHECK_EQUAL(parts[1].heads, 4);
  CHECK_EQUAL(parts[2].heads, 1);
}

TEST("the logit changes of all runs of a usual decode step fit into one step, so that the runs can decode ahead") {
  // MOST: the largest number of biases and chosen tokens of a run (`penalties.ts`). RUNS: the runs in a full graph of a usual host.
  constexpr int MOST = 1024 + 8192, RUNS = 96;
  EngineOptions options;
  options.shape = {HIDDEN, 8, 2, 1, 1, 64, 32000, 1e-5f};
  options.pageSize = 16;
  options.pageCount = 64;
  const StepLimits limits = stepLimits(options, options.pageCount);
  std::vector<Call> calls(RUNS, makeCall({1}));
  for (Call& call : calls) {
    for (uint32_t token = 0; token < MOST; token++) call.changeTokens.push_back(token);
    call.changeValues.assign(MOST, 1);
    call.changed = true;
    call.outputRows = call.topK = 1;
  }
  const std::vector<Sequence> sequences = views(calls);
  CHECK_EQUAL(splitBatch({sequences.data(), RUNS}, limits).size(), 1u);
}

TEST("the longest sequence that cannot be cut fits whole into a step, whatever outputs it requests") {
  for (const int heads : {1, 6, 32}) {
    // `rows`: the longest sequence that the handlers accept. A step holds as many rows in one case and far more in the other.
    const int rows = static_cast<int>(std::sqrt((64 << 20) / heads));
    for (const int maxRows : {rows, 65536}) {
      EngineOptions options;
      options.shape = {HIDDEN, 8, 2, heads, 1, 64, 128000, 1e-5f};
      options.pageSize = 16;
      options.pageCount = 1024;
      options.maxRows = maxRows;
      options.maxSequences = 5;
      PlanContext context;
      context.limits = stepLimits(options, options.pageCount);
      Call call = makeCall(range(0, rows), {}, {}, CALL_TOP_K);
      call.mask.assign(static_cast<size_t>(rows) * rows, 1);
      call.outputRows = rows;
      call.states = call.attention = true;
      call.draws.assign(rows, {1, 1, 0, 1, 0});
      const uint32_t words = 0;
      Sequence all = call.view();
      all.allowed = &words;  // Splitting does not read the mask words.
      const Call small = makeCall({1, 2});
      const Sequence both[] = {small.view(), all};
      const std::vector<Part> parts = splitBatch({both, 2}, context.limits);
      REQUIRE(parts.back().pieces.back().rows == rows);
      for (const Part& part : parts) {
        CHECK(part.results <= context.limits.results && part.allowedRows <= context.limits.allowedRows);
        CHECK(uploadBound(part, context) <= mostUploadBytes(context));
        CHECK(resultLayout(stepShape(part, context), part, HIDDEN).bytes <= mostResultBytes(context));
      }
      // The upload area has room for the longest uncuttable sequence, not for everything that so many rows could request.
      CHECK(mostUploadBytes(context) < size_t{256} << 20);
    }
  }
}

TEST("steps of one bucket have their tables at the same offsets") {
  const PlanContext context = contextOf(true, true);
  Planner planner(context);
  Random random(4);
  StepPlan first;
  for (int round = 0; round < 20; round++) {
    std::vector<Call> calls;
    for (int i = static_cast<int>(random.integer(3, 4)); i > 0; i--) {
      calls.push_back(makeCall(randomTokens(random, 1, VOCABULARY), range(0, static_cast<uint32_t>(random.integer(0, 70)))));
      calls.back().topK = 1;
      calls.back().states = false;
    }
    const std::vector<Sequence> sequences = views(calls);
    const Batch batch{sequences.data(), static_cast<int>(sequences.size())};
    const std::vector<Part> parts = splitBatch(batch, context.limits);
    REQUIRE(parts.size() == 1);
    std::vector<uint8_t> block(uploadBound(parts[0], context));
    const StepPlan plan = planner.plan(batch, parts[0], block.data());
    if (round == 0) first = plan;
    CHECK(plan.shape == first.shape);
    CHECK_EQUAL(plan.upload.items[0], first.upload.items[0]);
    CHECK_EQUAL(plan.upload.headRows, first.upload.headRows);
    CHECK_EQUAL(plan.upload.draws, first.upload.draws);
    CHECK_EQUAL(plan.results.bytes, first.results.bytes);
  }
}

TEST("masks: nonzero bytes become bits, keys that no row sees are dropped, causal masks are detected") {
  Random random(8);
  for (int round = 0; round < 200; round++) {
    const int rows = static_cast<int>(random.integer(1, 5)), keys = static_cast<int>(random.integer(rows, 100));
    const double density = random.uniform() < 0.5 ? 0.05 : 0.8;
    std::vector<uint8_t> mask(static_cast<size_t>(rows) * keys), columns;
    const bool causal = round % 4 == 0;
    for (int r = 0; r < rows; r++)
      for (int k = 0; k < keys; k++) {
        const bool visible = causal ? k % 7 != 0 && k <= keys - rows + r : random.uniform() < density;
        mask[r * keys + k] = visible ? static_cast<uint8_t>(random.integer(1, 255)) : 0;
      }
    std::vector<int> slots;
    for (int k = 0; k < keys; k++) slots.push_back(1000 + k);
    std::vector<uint32_t> words(static_cast<size_t>(rows) * ((keys + 31) / 32));
    const bool all = round % 5 == 0;
    const VisibleKeys visible = packMask(mask.data(), keys, rows, keys, keys - rows, all, slots.data(), words.data(), columns);
    CHECK(all ? visible.keys == keys : visible.keys >= 1);
    for (int r = 0; r < rows; r++) {
      std::set<int> seen;
      for (int k = 0; k < visible.keys; k++)
        if (visible.causal ? k <= visible.keys - rows + r : (words[r * visible.stride + k / 32] >> (k % 32) & 1) != 0) seen.insert(slots[k] - 1000);
      std::set<int> expected;
      for (int k = 0; k < keys; k++)
        if (mask[r * keys + k]) expected.insert(k);
      CHECK(seen == expected);
    }
    if (rows == 1 && !all && std::count(mask.begin(), mask.end(), 0) < keys) CHECK(visible.causal);
  }
}

TEST("copies in rounds have the effect of all copies at once") {
  Random random(9);
  size_t opened = 0;
  for (int round = 0; round < 300; round++) {
    const int slots = 60, spare = 60, capacity = static_cast<int>(random.integer(1, 12)), pairs = static_cast<int>(random.integer(0, 50));
    std::vector<uint32_t> destinations = randomSlots(random, pairs, slots), sources = randomSlots(random, pairs, slots);
    if (round % 3 == 0) sources = destinations, std::rotate(sources.begin(), sources.begin() + pairs / 3, sources.end());
    if (round % 3 == 1)
      for (uint32_t& source : sources) source = static_cast<uint32_t>(random.integer(0, slots - 1));
    std::vector<int32_t> shifts;
    for (int i = 0; i < pairs; i++) shifts.push_back(static_cast<int32_t>(random.integer(-9, 9)));
    std::vector<int> pool(61, -1), expected;
    for (int i = 0; i < slots; i++) pool[i] = 1000 * i;
    expected = pool;
    for (int i = 0; i < pairs; i++) expected[destinations[i]] = pool[sources[i]] + shifts[i];
    for (const CopyRound& each : planCopies(sources.data(), destinations.data(), shifts.data(), pairs, capacity, spare)) {
      CHECK(!each.sources.empty() && static_cast<int>(each.sources.size()) <= capacity);
      const std::vector<int> before = pool;
      for (size_t i = 0; i < each.sources.size(); i++) pool[each.destinations[i]] = before[each.sources[i]] + each.shifts[i];
    }
    opened += pool[spare] != -1;
    pool[spare] = -1;
    CHECK(pool == expected);
  }
  // Some rings of copies were longer than a round, and were opened with the spare slot.
  CHECK(opened > 10);
}

TEST("the memory plan has as many pages as fit, and the error reports what is missing") {
  const auto needFor = [](int pages) { return MemoryNeed{1000, static_cast<size_t>(pages) * 10, 100 + static_cast<size_t>(pages)}; };
  // 1000 + 100 bytes are fixed, and each page needs 10 + 1, so of 2000 bytes (2000 - 1100) / 11 = 81 pages fit.
  const MemoryBudget asked = planMemory(needFor, 20, 1000, 2000, 0, 5000, 5000);
  CHECK_EQUAL(asked.pageCount, 20);
  CHECK_EQUAL(asked.pagesThatFit, 81);
  CHECK_EQUAL(asked.need.total(), 1320u);
  CHECK_EQUAL(planMemory(needFor, 0, 1000, 2000, 0, 5000, 5000).pageCount, 81);
  CHECK_EQUAL(planMemory(needFor, 0, 50, 2000, 0, 5000, 5000).pageCount, 50);
  CHECK_EQUAL(planMemory(needFor, 0, 1000, 2000, 110, 5000, 5000).pageCount, 71);
  // All free memory, less the spare for the driver.
  CHECK_EQUAL(planMemory(needFor, 0, 1000, 0, 0, 3200, 3200).pageCount, (3200 - 100 - 1100) / 11);
  CHECK_EQUAL(planMemory(needFor, 0, 1000, 9999, 0, 3200, 3200).pageCount, (3200 - 100 - 1100) / 11);
  // The spare does not shrink if another model occupies most of the device, or all of it.
  CHECK_EQUAL(planMemory(needFor, 0, 1000, 0, 0, 3200, 6400).pageCount, (3200 - 200 - 1100) / 11);
  CHECK_THROWS(planMemory(needFor, 0, 1000, 0, 0, 50, 3200), "0 pages would fit");
  CHECK_THROWS(planMemory(needFor, 82, 1000, 2000, 0, 5000, 5000), "81 pages would fit");
  CHECK_THROWS(planMemory(needFor, 82, 1000, 2000, 0, 1500, 1500), "32 pages would fit");
  CHECK_THROWS(planMemory(needFor, 0, 1000, 500, 0, 5000, 5000), "1000 bytes for weights");
  try {
    planMemory(needFor, 1001, 1000, 0, 0, 50000, 50000);
    CHECK(false);
  } catch (const EngineError& error) {
    CHECK_EQUAL(error.code, "out-of-memory");
  }
}
