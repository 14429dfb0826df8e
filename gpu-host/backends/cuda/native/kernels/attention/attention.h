// Attention of query rows over arbitrary lists of slots (PagedAttention: Kwon et al., SOSP '23; FlashAttention-2: Dao, 2023; Flash-Decoding: Dao et
// al., 2023). The query heads that share one KV head form a group; `group` is their number, heads / kvHeads. The rows of a group are packed: packed
// row p of a sequence is its input p / group, and query head p % group of the group. The planner splits packed rows × keys into work items, which
// blocks claim dynamically. Rows of several sequences whose lists begin with the same slots may share an item, which loads these keys once for all of
// them (Hydragen: Juravsky et al., 2024; ChunkAttention: Ye et al., 2024).
#pragma once
#include <vector>
#include "../types.h"

namespace pie {

// Keys per tile.
constexpr int ATTENTION_TILE = 64;
// A row of partial results has headDim unnormalised outputs and these extra floats: two statistics, then padding, so that rows begin at 32-byte
// sectors.
constexpr int ATTENTION_PARTIAL_EXTRA = 8;

// One sequence of a step. Its keys in the step's slot list: the slots of its context, then those of its own inputs.
struct AttentionSequence {
  int firstRow;    // First query row among the step's rows.
  int rows;        // Number of inputs.
  int firstKey;    // Index of its first key among `AttentionTables::slots`.
  int keys;        // Context length + rows.
  int maskWord;    // First word of its mask in the step's mask words, or -1: causal, input i sees keys 0 to keys - rows + i, inclusive.
  int maskStride;  // Words per mask row: ceil(keys / 32). Bit k % 32 of word k / 32: key k is visible. Bits past the last key are ignored.
};

// A unit of a block's work: packed rows of one sequence and KV head over tiles of its keys. The item repeats the sequence's fields in 64 bytes, so
// that a block needs no dependent lookups. Items with `merge` = ATTENTION_SHARED differ, see there.
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
  int tileWord;      // -1: the item visits all of these tiles. Otherwise it visits t only if bit t % 32 of `tileWords`[tileWord + t / 32] is set.
  int part;          // Index of this item among the items into which the keys of these rows are split.
  int parts;         // Number of these items. With one part, the block writes the rows' outputs itself.
  int firstPartial;  // With several parts: part q writes `rows` partial results, from row firstPartial + q × rows of `partials` on.
  int merge;         // With several parts: index of a counter of finished parts. The block that finishes the last part merges all of them in order.
};
// Value of `merge` that marks a shared item. Its rows belong to rows / group sequences, `group` rows each. Every one of them has one input, and the
// same slots in the item's tiles as the sequence that the item describes. In such an item, firstPartial is not a row but an index into `members`:
// sequence i of the item is members[firstPartial + i]. That member has the sequence's queryRow, parts, firstPartial and merge. `part` is the same for
// all of them. `parts` is 2, only to say that there are several.
constexpr int ATTENTION_SHARED = -2;

// A sequence of one input that is in shared items. Its parts are those shared items, and after them the items of its own keys. The latter are
// ordinary items: they have the same queryRow and parts as the member, and its firstPartial and merge, moved on to their KV head.
struct alignas(16) AttentionMember {
  int queryRow;
  int firstPartial;  // Row for KV head 0. The rows of each further head begin parts × group rows later.
  int parts;
  int merge;         // Counter for KV head 0. Each further head has the next counter.
};

struct AttentionPlan {
  std::vector<AttentionItem> items;  // In descending order of cost.
  std::vector<uint32_t> tileWords;   // See AttentionItem::tileWord. Never more words than the mask has.
  std::vector<AttentionMember> members;  // See ATTENTION_SHARED. At most one per sequence.
  int merges = 0;       // Number of counters to which `merge` refers.
  int partialRows = 0;  // Number of rows of partial results.
  // Estimated costs in one arbitrary unit. makespan: the items of the block that takes longest. evenShare: all items, divided by the number of
  // blocks.
  int64_t makespan = 0;
  int64_t evenShare = 0;
};

// Splits a step into work items. Splits over the keys only where whole rows would leave multiprocessors idle. Skips tiles that no row of an item
// sees. A pure function of its arguments.
//   mask   The step's mask words on the host. Null: tiles are skipped by causality only.
//   fast   The result of attentionIsFast. If it is false, `mask` and `slots` are ignored.
//   slots  By sequence, its slots on the host, or null. Causal sequences of one input that begin with the same slots share items where this
//          costs less. A null table: no items are shared.
AttentionPlan planAttention(const AttentionSequence* sequences, int count, const uint32_t* mask, const ModelShape& shape, int multiprocessors, bool fast,
                            const int* const* slots = nullptr);

// Upper bounds on the output of planAttention for steps of up to `maxRows` rows, for allocation at start.
struct AttentionBounds {
  int items;
  int counters;         // Number of ints for `AttentionTables::counters`.
  size_t partialBytes;  // Device memory; needs no initialisation.
};
AttentionBounds attentionBounds(int maxRows, int maxSequences, const ModelShape& shape, int multiprocessors, bool fast);

// A step's tables in device memory. The kernels read all counts from there, so a captured launch with a fixed number of blocks serves any step.
struct AttentionTables {
  const AttentionItem* items = nullptr;
  const int* itemCount = nullptr;
  const int* slots = nullptr;           // Of all keys. Not read through the read-only path, because an earlier kernel of the chain may write them.
  const uint32_t* mask = nullptr;       // May be null if no sequence has a mask.
  const uint32_t* tileWords = nullptr;  // May be null if `mask` is.
  const AttentionMember* members = nullptr;  // Of the shared items.
  float* partials = nullptr;            // Need no initialisation.
  int* counters = nullptr;              // Must be zero before the first launch. Every launch leaves them zero.
  // Null, or rows × heads pairs, which launchAttention writes for launchReceived. A score is a product of query and key × log2(e) × the shape's scale.
  // x: the largest score of a row, y: the row's sum of 2^(score − x).
  float2* statistics = nullptr;
};

// True if the tensor-core kernel supports this shape. The plain kernel serves all others; it supports any even headDim, and softcaps.
template <typename T>
bool attentionIsFast(const ModelShape& shape);
// Number of blocks that all multiprocessors together hold at once.
int attentionBlocks(const ModelShape& shape, int multiprocessors, bool fast);

// out, queries: rows × heads × headDim. Rows that belong to no item are not written; a row that sees no key gets zeros. `blocks` is the result of
// attentionBlocks; any number of blocks gives the same bits. K is T, or float8 with T = bf16. With float8 the tensor cores multiply float16: queries
// with magnitudes from 2^-14 to 65504 are exact, larger ones are clamped to 65504. May be captured in a CUDA graph.
template <typename T, typename K>
void launchAttention(T* out, const T* queries, KvLayer<K> layer, const AttentionTables& tables, const ModelShape& shape, int blocks, cudaStream_t stream);

// received[k] += the attention weights that key k of one sequence got from all its rows and heads (the sum over k is rows × heads). Runs after
// launchAttention with the same queries and its `statistics`. `sequence` is read on the host during the call; all other pointers are device memory.
// Deterministic; not for the hot path.
template <typename T, typename K>
void launchReceived(float* received, const T* queries, KvLayer<K> layer, const AttentionSequence& sequence, const int* slots, const uint32_t* mask,
                    const float2* statistics, const ModelShape& shape, cudaStream_t stream);

}  // namespace pie
