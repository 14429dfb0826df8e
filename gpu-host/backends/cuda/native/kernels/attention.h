// Attention of query rows over arbitrary lists of slots (PagedAttention: Kwon et al., SOSP '23; FlashAttention-2: Dao, 2023; Flash-Decoding: Dao et
// al., 2023). A query head and the others of its group read the same keys, so rows are packed: packed row p of a sequence is its input p / group,
// query head p % group of the group. The planner cuts packed rows × keys into items; blocks take items until none is left.
#pragma once
#include <vector>
#include "types.h"

namespace pie {

// Keys go by tiles of this many.
constexpr int ATTENTION_TILE = 64;
// A row of partial results: headDim unnormalised outputs, then its statistics and padding (rows begin at whole sectors of 32 bytes).
constexpr int ATTENTION_PARTIAL_EXTRA = 8;

// One sequence of a step. Its keys are `contextCount` slots and then its own inputs', all in the step's slot list.
struct AttentionSequence {
  int firstRow;    // Of its queries among the step's rows.
  int rows;        // Its inputs.
  int firstKey;    // Of its keys in the slot list.
  int keys;        // contextCount + rows.
  int maskWord;    // First word of its mask in the step's mask words, or -1: causal, input i sees keys[0 .. keys - rows + i].
  int maskStride;  // Words of one mask row: ceil(keys / 32). Bit k % 32 of word k / 32: key k is visible. Bits past the keys mean nothing.
};

// Work of one block: packed rows of one sequence and key head over tiles of its keys. All that a block has to know, in one piece of 64 bytes: what it
// would have to look up elsewhere it would wait for.
struct alignas(16) AttentionItem {
  int queryRow;      // Step's row of the sequence's first input.
  int kvHead;
  int firstRow;      // Packed, within the sequence.
  int rows;
  int firstKey;      // Of the sequence in the slot list.
  int keys;          // Of the sequence.
  int context;       // keys less inputs.
  int maskWord;      // As the sequence's.
  int maskStride;
  int firstTile;     // Its tiles: [firstTile, endTile) of the sequence's keys,
  int endTile;
  int tileWord;      // all of them (-1), or those whose bit (t % 32 of word tileWord + t / 32 of `tileWords`) is set.
  int part;          // Which of `parts` this is; with one part the block writes the rows' outputs itself.
  int parts;
  int firstPartial;  // Partial results of part q are rows firstPartial + q × rows and on. Who finishes last among the parts merges them in order,
  int merge;         // which it knows by this counter.
};

struct AttentionPlan {
  std::vector<AttentionItem> items;  // The dearest first.
  std::vector<uint32_t> tileWords;   // Never more than there are mask words.
  int merges = 0;
  int partialRows = 0;
  // Estimates in one arbitrary unit: the longest queue of a block, and the sum over all items divided by the blocks.
  int64_t makespan = 0;
  int64_t evenShare = 0;
};

// Splits a step into items: over the keys where whole rows would leave the device idle, not where the batch alone fills it. Tiles of keys that no row of
// an item sees are left out, by causality and by `mask` (the step's words on the host; null: not looked at). `fast` as attentionIsFast says.
// A pure function of its arguments.
AttentionPlan planAttention(const AttentionSequence* sequences, int count, const uint32_t* mask, const ModelShape& shape, int multiprocessors, bool fast);

// Bounds of what planAttention gives for steps of up to `maxRows` rows: for allocations at start.
struct AttentionBounds {
  int items;
  int counters;         // Ints; zero at first. Every launch leaves them zero.
  size_t partialBytes;  // Device memory that needs no initial value.
};
AttentionBounds attentionBounds(int maxRows, int maxSequences, const ModelShape& shape, int multiprocessors, bool fast);

// A step's tables in device memory. All counts are read from there, so that a captured launch of a fixed number of blocks serves any step.
struct AttentionTables {
  const AttentionItem* items = nullptr;
  const int* itemCount = nullptr;
  const int* slots = nullptr;           // Of all keys.
  const uint32_t* mask = nullptr;       // Words; null where no sequence has a mask.
  const uint32_t* tileWords = nullptr;  // May be null where the mask is.
  float* partials = nullptr;
  int* counters = nullptr;
  // rows × heads, or null: what launchReceived needs; x: largest score × log2(e) / √headDim, y: sum of 2^(score − x).
  float2* statistics = nullptr;
};

// Whether the tensor-core kernel takes this shape; others run on a plain one, which takes any even headDim.
template <typename T>
bool attentionIsFast(const ModelShape& shape);
// How many blocks run at once.
int attentionBlocks(const ModelShape& shape, int multiprocessors, bool fast);

// out, queries: rows × heads × headDim. Rows of no item are left alone; a row that sees no key gives zeros. `blocks` as attentionBlocks says; every
// number gives the same bits. Keys and values are of T, or of float8 beside bf16: then the tensor cores multiply float16, which holds all bits of queries
// from 2^-14 to 65504, and what is larger is cut there. May be captured.
template <typename T, typename K>
void launchAttention(T* out, const T* queries, KvLayer<K> layer, const AttentionTables& tables, const ModelShape& shape, int blocks, cudaStream_t stream);

// received[k] += what key k of one sequence got of all its rows and heads (the sum over k is rows × heads). Runs after launchAttention with the same
// queries and `statistics`. `sequence` is read now, on the host; the rest is device memory. Not for the hot path; the same bits every time.
template <typename T, typename K>
void launchReceived(float* received, const T* queries, KvLayer<K> layer, const AttentionSequence& sequence, const int* slots, const uint32_t* mask,
                    const float2* statistics, const ModelShape& shape, cudaStream_t stream);

}  // namespace pie
