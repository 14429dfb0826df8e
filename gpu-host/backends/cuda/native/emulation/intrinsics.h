// Barriers, warp collectives, atomics, loads with cache hints.
#pragma once
#include <cstdint>
#include <cstring>
#include <type_traits>
#include "bf16.h"
#include "threads.h"

#define EMULATED_SITE const char *file = __builtin_FILE(), int line = __builtin_LINE()

inline void __syncthreads(EMULATED_SITE) { emulation::syncThreads({"__syncthreads", file, line}); }

namespace emulation {

struct ShuffleOperand {
  uint64_t value;
  uint64_t result;
  unsigned source;
};

// On hardware, the value of a lane that does not take part is undefined; the emulation returns all bits set, which is NaN as a float.
inline void completeShuffle(void* const operands[32], unsigned lanes) {
  for (unsigned lane = 0; lane < 32; lane++) {
    if (!(lanes >> lane & 1)) continue;
    auto* mine = static_cast<ShuffleOperand*>(operands[lane]);
    const auto* other = static_cast<const ShuffleOperand*>(operands[mine->source & 31]);
    mine->result = other ? other->value : ~uint64_t{0};
  }
}

template <typename T>
T shuffle(unsigned mask, T value, unsigned source, const Site& site) {
  static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>, "at most 64 bits");
  ShuffleOperand operand{0, 0, source};
  std::memcpy(&operand.value, &value, sizeof value);
  warpCollective(mask, completeShuffle, &operand, site);
  std::memcpy(&value, &operand.result, sizeof value);
  return value;
}

struct VoteOperand {
  unsigned value;
  unsigned result;
};
template <typename Reduce>
void completeVote(void* const operands[32], unsigned lanes) {
  bool first = true;
  unsigned all = 0;
  for (unsigned lane = 0; lane < 32; lane++) {
    if (!(lanes >> lane & 1)) continue;
    const unsigned value = static_cast<const VoteOperand*>(operands[lane])->value;
    all = Reduce::join(first, all, value, lane);
    first = false;
  }
  for (unsigned lane = 0; lane < 32; lane++)
    if (lanes >> lane & 1) static_cast<VoteOperand*>(operands[lane])->result = all;
}
template <typename Reduce>
unsigned vote(unsigned mask, unsigned value, const Site& site) {
  VoteOperand operand{value, 0};
  warpCollective(mask, completeVote<Reduce>, &operand, site);
  return operand.result;
}
struct Ballot { static unsigned join(bool, unsigned all, unsigned v, unsigned lane) { return all | (v != 0 ? 1u << lane : 0u); } };
struct AnyOf { static unsigned join(bool, unsigned all, unsigned v, unsigned) { return all | (v != 0); } };
struct AllOf { static unsigned join(bool first, unsigned all, unsigned v, unsigned) { return first ? v != 0 : all & (v != 0); } };
struct AddUp { static unsigned join(bool, unsigned all, unsigned v, unsigned) { return all + v; } };
struct LeastUnsigned { static unsigned join(bool first, unsigned all, unsigned v, unsigned) { return first || v < all ? v : all; } };
struct MostUnsigned { static unsigned join(bool first, unsigned all, unsigned v, unsigned) { return first || v > all ? v : all; } };
struct LeastSigned { static unsigned join(bool first, unsigned all, unsigned v, unsigned) { return first || int(v) < int(all) ? v : all; } };
struct MostSigned { static unsigned join(bool first, unsigned all, unsigned v, unsigned) { return first || int(v) > int(all) ? v : all; } };
struct AndBits { static unsigned join(bool first, unsigned all, unsigned v, unsigned) { return first ? v : all & v; } };

struct MatchOperand {
  uint64_t value;
  unsigned result;
};
inline void completeMatch(void* const operands[32], unsigned lanes) {
  for (unsigned i = 0; i < 32; i++) {
    if (!(lanes >> i & 1)) continue;
    auto* mine = static_cast<MatchOperand*>(operands[i]);
    mine->result = 0;
    for (unsigned j = 0; j < 32; j++)
      if ((lanes >> j & 1) && static_cast<const MatchOperand*>(operands[j])->value == mine->value) mine->result |= 1u << j;
  }
}
inline void completeBarrier(void* const*, unsigned) {}
inline unsigned lane() { return current->linear & 31u; }

}  // namespace emulation

inline void __syncwarp(unsigned mask = ~0u, EMULATED_SITE) {
  emulation::warpCollective(mask, emulation::completeBarrier, nullptr, {"__syncwarp", file, line});
}

template <typename T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32, EMULATED_SITE) {
  const unsigned lane = emulation::lane(), base = lane & ~(unsigned(width) - 1);
  return emulation::shuffle(mask, value, base | (unsigned(source) & (unsigned(width) - 1)), {"__shfl_sync", file, line});
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32, EMULATED_SITE) {
  // xor may not read from a later group of `width` lanes, but it may read from an earlier one.
  const unsigned lane = emulation::lane(), source = lane ^ unsigned(bits);
  const bool reachable = source <= (lane | (unsigned(width) - 1));
  return emulation::shuffle(mask, value, reachable ? source : lane, {"__shfl_xor_sync", file, line});
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, EMULATED_SITE) {
  const unsigned lane = emulation::lane(), inGroup = lane & (unsigned(width) - 1);
  return emulation::shuffle(mask, value, inGroup >= delta ? lane - delta : lane, {"__shfl_up_sync", file, line});
}
template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, EMULATED_SITE) {
  const unsigned lane = emulation::lane(), inGroup = lane & (unsigned(width) - 1);
  return emulation::shuffle(mask, value, inGroup + delta < unsigned(width) ? lane + delta : lane, {"__shfl_down_sync", file, line});
}
inline unsigned __ballot_sync(unsigned mask, int predicate, EMULATED_SITE) {
  return emulation::vote<emulation::Ballot>(mask, predicate != 0, {"__ballot_sync", file, line});
}
inline int __any_sync(unsigned mask, int predicate, EMULATED_SITE) {
  return int(emulation::vote<emulation::AnyOf>(mask, predicate != 0, {"__any_sync", file, line}));
}
inline int __all_sync(unsigned mask, int predicate, EMULATED_SITE) {
  return int(emulation::vote<emulation::AllOf>(mask, predicate != 0, {"__all_sync", file, line}));
}
template <typename T>
unsigned __match_any_sync(unsigned mask, T value, EMULATED_SITE) {
  static_assert(sizeof(T) <= 8, "at most 64 bits");
  emulation::MatchOperand operand{0, 0};
  std::memcpy(&operand.value, &value, sizeof value);
  emulation::warpCollective(mask, emulation::completeMatch, &operand, {"__match_any_sync", file, line});
  return operand.result;
}
#define EMULATED_REDUCTION(name, T, Join)                                                                   \
  inline T name(unsigned mask, T value, EMULATED_SITE) {                                                   \
    return static_cast<T>(emulation::vote<emulation::Join>(mask, static_cast<unsigned>(value), {#name, file, line})); \
  }
EMULATED_REDUCTION(__reduce_add_sync, unsigned, AddUp)
EMULATED_REDUCTION(__reduce_add_sync, int, AddUp)
EMULATED_REDUCTION(__reduce_min_sync, unsigned, LeastUnsigned)
EMULATED_REDUCTION(__reduce_min_sync, int, LeastSigned)
EMULATED_REDUCTION(__reduce_max_sync, unsigned, MostUnsigned)
EMULATED_REDUCTION(__reduce_max_sync, int, MostSigned)
EMULATED_REDUCTION(__reduce_and_sync, unsigned, AndBits)
#undef EMULATED_REDUCTION

// Barrier reductions of the block.
int __syncthreads_count(int predicate, EMULATED_SITE);
int __syncthreads_and(int predicate, EMULATED_SITE);
int __syncthreads_or(int predicate, EMULATED_SITE);

inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

#define EMULATED_ATOMIC(T)                                                                          \
  inline T atomicAdd(T* p, T v) { return __atomic_fetch_add(p, v, __ATOMIC_RELAXED); }             \
  inline T atomicCAS(T* p, T expected, T v) {                                                       \
    __atomic_compare_exchange_n(p, &expected, v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);       \
    return expected;                                                                                \
  }                                                                                                 \
  inline T atomicMax(T* p, T v) {                                                                   \
    T old = __atomic_load_n(p, __ATOMIC_RELAXED);                                                   \
    while (old < v && !__atomic_compare_exchange_n(p, &old, v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {} \
    return old;                                                                                     \
  }                                                                                                 \
  inline T atomicMin(T* p, T v) {                                                                   \
    T old = __atomic_load_n(p, __ATOMIC_RELAXED);                                                   \
    while (v < old && !__atomic_compare_exchange_n(p, &old, v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {} \
    return old;                                                                                     \
  }
EMULATED_ATOMIC(int)
EMULATED_ATOMIC(unsigned)
EMULATED_ATOMIC(unsigned long long)
#undef EMULATED_ATOMIC

inline float atomicAdd(float* p, float v) {
  auto* const place = reinterpret_cast<uint32_t*>(p);
  uint32_t old = __atomic_load_n(place, __ATOMIC_RELAXED);
  for (;;) {
    const float before = __builtin_bit_cast(float, old);
    if (__atomic_compare_exchange_n(place, &old, __builtin_bit_cast(uint32_t, before + v), false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) return before;
  }
}
// Wraps around: a value at or past the limit becomes 0.
inline unsigned atomicInc(unsigned* p, unsigned limit) {
  unsigned old = __atomic_load_n(p, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(p, &old, old >= limit ? 0 : old + 1, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {}
  return old;
}

template <typename T>
T __ldg(const T* p) { return *p; }
template <typename T>
T __ldcg(const T* p) { return *p; }
