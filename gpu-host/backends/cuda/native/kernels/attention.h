// Attention of query rows over arbitrary lists of slots (PagedAttention: Kwon et al., SOSP '23; FlashAttention-2: Dao, 2023; Flash-Decoding: Dao et
// al., 2023). The query heads of a group share one KV head, so their rows are packed: packed row p of a sequence is its input p / group, query head p
// % group of the group. The planner splits packed rows × keys into work items, which blocks claim dynamically. Rows of several sequences whose lists
// begin with the same slots may share an item, which loads these keys once for all of them (Hydragen: Juravsky et al., 2024; ChunkAttention: Ye et
// al., 2024).
#pragma once
#include <vector>
#include "types.h"

namespace pie {

// Keys per tile.
constexpr int ATTENTION_TILE = 64;
// Extra floats of a partial-result row: headDim unnormalised outputs are followed by the statistics and padding (rows begin at 32-byte sectors).
constexpr int ATTENTION_PARTIAL_EXTRA = 8;

// One sequence of a step. Its keys in the step's slot list: the slots of its context, then those of its own inputs.
struct AttentionSequence {
  int firstRow;    // First query row among the step's rows.
  int rows;        // Number of inputs.
  int firstKey;    // Index of its first key among `AttentionTables::slots`.
  int keys;        // Context length + rows.
  int maskWord;    // First word of its mask in the step's mask words, or -1: causal, input i sees keys[0 .. keys - rows + i].
  int maskStride;  // Words per mask row: ceil(keys / 32). Bit k % 32 of word k / 32: key k is visible. Bits past the last key are ignored.
};

// Work of one block: packed rows of one sequence and KV head over tiles of its keys. The item repeats the sequence's fields in 64 bytes, so that a
// block needs no dependent lookups.
struct alignas(16) AttentionItem {
  int queryRow;      // The step's row of the sequence's first input.
  int kvHead;
  int firstRow;      // First packed row within the sequence.
  int rows;
  int firstKey;      // Of the sequence, in the slot list.
  int keys;          // Of the sequence, like the next three fields.
  int context;       // keys - inputs.
  int maskWord;
  int maskStride;
  int firstTile;     // Tiles [firstTile, endTile) of the sequence's keys.
  int endTile;
  int tileWord;      // -1: all of these tiles. Otherwise tile t is included if bit t % 32 of `tileWords`[tileWord + t / 32] is set.
  int part;          // Index of this part among `parts`. If parts is 1, the block writes the rows' outputs itself.
  int parts;
  int firstPartial;  // Part q writes its partial results to rows firstPartial + q × rows and following.
  int merge;         // Counter by which the last block to finish a part is found; that block merges all parts in order.
};
// Value of `merge` in an item of rows / group sequences. Each has one input, and in these tiles the same slots as the item's sequence. `firstPartial` is
// the index of their first AttentionMember; the members replace queryRow, parts (2 here), firstPartial and merge.
constexpr int ATTENTION_SHARED = -2;

// A sequence of one input with shared keys. Its parts are those of the shared keys, then those of its own keys, whose items have the same fields.
struct alignas(16) AttentionMember {
  int queryRow;
  int firstPartial;  // Of KV head 0; those of the next head begin parts × group rows later.
  int parts;
  int merge;         // Of KV head 0; the next head's is the next counter.
};

struct AttentionPlan {
  std::vector<AttentionItem> items;  // In descending order of cost.
  std::vector<uint32_t> tileWords;   // Never more words than the mask has.
  std::vector<AttentionMember> members;  // At most one per sequence.
  int merges = 0;
  int partialRows = 0;
  // Estimates in one arbitrary unit: the longest queue of a block, and the total cost of all items divided by the number of blocks.
  int64_t makespan = 0;
  int64_t evenShare = 0;
};

// Splits a step into work items. Splits over the keys only where whole rows would leave multiprocessors idle. Skips tiles that no row of an item
// sees, by causality and by `mask` (the step's words on the host; null: ignored). `fast` is the result of attentionIsFast. `slots` has each sequence's
// slots on the host: sequences that begin with the same slots share items where this costs less, if they are causal, have one input, and `fast`. Null
// shares nothing. A pure function of its arguments.
AttentionPlan planAttention(const AttentionSequence* sequences, int count, const uint32_t* mask, const ModelShape& shape, int multiprocessors, bool fast,
                            const int* const* slots = nullptr);

// Upper bounds on the output of planAttention for steps of up to `maxRows` rows, for allocation at start.
struct AttentionBounds {
  int items;
  int counters;         // Ints; initially zero. Every launch leaves them zero.
  size_t partialBytes;  // Device memory; needs no initialisation.
};
AttentionBounds attentionBounds(int maxRows, int maxSequences, const ModelShape& shape, int multiprocessors, bool fast);

// A step's tables in device memory. The kernels read all counts from there, so a captured launch with a fixed number of blocks serves any step.
struct AttentionTables {
  const AttentionItem* items = nullptr;
  const int* itemCount = nullptr;
  const int* slots = nullptr;           // Of all keys. An earlier kernel of the chain may write them, so they are not read through the read-only path.
  const uint32_t* mask = nullptr;       // Null if no sequence has a mask.
  const uint32_t* tileWords = nullptr;  // May be null if `mask` is.
  const AttentionMember* members = nullptr;
  float* partials = nullptr;
  int* counters = nullptr;
  // Null, or rows × heads statistics for launchReceived; x: largest score × log2(e) / √headDim, y: sum of 2^(score − x).
  float2* statistics = nullptr;
};

// True if the tensor-core kernel supports this shape. The plain kernel serves all others; it supports any even headDim.
template <typename T>
bool attentionIsFast(const ModelShape& shape);
// Number of blocks that are resident at once.
int attentionBlocks(const ModelShape& shape, int multiprocessors, bool fast);

// out, queries: rows × heads × headDim. Rows that belong to no item are not written; a row that sees no key gets zeros. `blocks` is the result of
// attentionBlocks; any number of blocks gives the same bits. K is T, or float8 with T = bf16. With float8 the tensor cores multiply float16: queries
// with magnitudes from 2^-14 to 65504 are exact, larger ones are clamped to 65504. May be captured.
template <typename T, typename K>
void launchAttention(T* out, const T* queries, KvLayer<K> layer, const AttentionTables& tables, const ModelShape& shape, int blocks, cudaStream_t stream);

// received[k] += the attention weights that key k of one sequence got from all its rows and heads (the sum over k is rows × heads). Runs after
// launchAttention with the same queries and its `statistics`. `sequence` is read on the host during the call; all other pointers are device memory.
// Deterministic; not for the hot path.
template <typename T, typename K>
void launchReceived(float* received, const T* queries, KvLayer<K> layer, const AttentionSequence& sequence, const int* slots, const uint32_t* mask,
                    const float2* statistics, const ModelShape& shape, cudaStream_t stream);

}  // namespace pie
