// Ways to move 16 bytes: from global to shared memory behind the threads' backs (PTX ISA: cp.async), and loads that say what the caches should keep.
// Addresses are multiples of 16.
#pragma once
#include <cstdint>
#include "device.h"

namespace pie {

// Starts a copy to shared memory past L1. Nothing may be read there, by this thread, before it has waited, nor by others before they meet it at a
// barrier after that.
__device__ __forceinline__ void copyAsync16(void* shared, const void* global) {
#ifdef __CUDACC__
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(static_cast<uint32_t>(__cvta_generic_to_shared(shared))), "l"(global) : "memory");
#else
  emulation::copyAsync(shared, global, 16, 16);
#endif
}
// The same; where not `valid` nothing is read and zeros are written. `global` must be an address that exists all the same.
__device__ __forceinline__ void copyAsync16(void* shared, const void* global, bool valid) {
#ifdef __CUDACC__
  const uint32_t to = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(global), "r"(valid ? 16 : 0) : "memory");
#else
  emulation::copyAsync(shared, global, valid ? 16 : 0, 16);
#endif
}
// The same of 4 bytes at a multiple of 4, through L1.
__device__ __forceinline__ void copyAsync4(void* shared, const void* global, bool valid) {
#ifdef __CUDACC__
  const uint32_t to = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(global), "r"(valid ? 4 : 0) : "memory");
#else
  emulation::copyAsync(shared, global, valid ? 4 : 0, 4);
#endif
}
// Ends a group of copies: those that this thread started since the last.
__device__ __forceinline__ void commitCopies() {
#ifdef __CUDACC__
  asm volatile("cp.async.commit_group;" ::: "memory");
#else
  emulation::commitCopies();
#endif
}
// Waits until of this thread's groups at most the newest `LEFT` are under way.
template <int LEFT>
__device__ __forceinline__ void waitForCopies() {
#ifdef __CUDACC__
  asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
#else
  emulation::waitForCopies(LEFT);
#endif
}

// Of memory that no one writes while the kernel runs and that is read once (weights): it leaves L1 to others. Not ld.global.nc: ptxas moves that past
// waitForEarlier (launch.h), before which the first weights are asked for.
__device__ __forceinline__ uint4 loadOnce16(const void* global) {
#ifdef __CUDACC__
  uint4 v;
  asm volatile("ld.global.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(global));
  return v;
#else
  return emulation::load16(global);
#endif
}
// Of memory that others of the block read too, and that no one writes any more; the kernel before may have (see launch.h).
__device__ __forceinline__ uint4 loadKept16(const void* global) {
#ifdef __CUDACC__
  uint4 v;
  asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(global));
  return v;
#else
  return emulation::load16(global);
#endif
}
// Of memory that other blocks may have written during the kernel (after a fence and an atomic): past L1.
__device__ __forceinline__ uint4 loadFresh16(const void* global) {
#ifdef __CUDACC__
  return __ldcg(static_cast<const uint4*>(global));
#else
  return emulation::load16(global);
#endif
}
// Brings a line into L2.
__device__ __forceinline__ void prefetch(const void* global) {
#ifdef __CUDACC__
  asm volatile("prefetch.global.L2 [%0];" ::"l"(global));
#else
  (void)global;
#endif
}

// Eight bf16 as floats.
__device__ __forceinline__ void widen8(float (&to)[8], const uint4& from) {
  const uint32_t words[4] = {from.x, from.y, from.z, from.w};
#pragma unroll
  for (int i = 0; i < 4; i++) {
    to[2 * i] = __uint_as_float(words[i] << 16);
    to[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
  }
}

}  // namespace pie
