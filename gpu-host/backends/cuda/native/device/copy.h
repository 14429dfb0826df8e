// Transfers of 16 bytes, some of 4 or 8: asynchronous copies from global to shared memory (PTX ISA: cp.async), and loads with cache hints. Every
// address must be a multiple of the transfer's size.
#pragma once
#include <cstdint>
#include "device.h"

namespace pie {

// Starts an asynchronous copy to shared memory that bypasses L1. This thread must call waitForCopies before it reads the destination; other threads
// must also pass a barrier after that wait.
__device__ __forceinline__ void copyAsync16(void* shared, const void* global) {
#ifdef __CUDACC__
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(static_cast<uint32_t>(__cvta_generic_to_shared(shared))), "l"(global) : "memory");
#else
  emulation::copyAsync(shared, global, 16, 16);
#endif
}
// The same, but if not `valid` the copy reads nothing and writes zeros. `global` must be a valid address in any case.
__device__ __forceinline__ void copyAsync16(void* shared, const void* global, bool valid) {
#ifdef __CUDACC__
  const uint32_t to = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(global), "r"(valid ? 16 : 0) : "memory");
#else
  emulation::copyAsync(shared, global, valid ? 16 : 0, 16);
#endif
}
// The same for 4 bytes at a multiple of 4, through L1.
__device__ __forceinline__ void copyAsync4(void* shared, const void* global, bool valid) {
#ifdef __CUDACC__
  const uint32_t to = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(global), "r"(valid ? 4 : 0) : "memory");
#else
  emulation::copyAsync(shared, global, valid ? 4 : 0, 4);
#endif
}
// Combines the copies that this thread started since its last commit into a group.
__device__ __forceinline__ void commitCopies() {
#ifdef __CUDACC__
  asm volatile("cp.async.commit_group;" ::: "memory");
#else
  emulation::commitCopies();
#endif
}
// Waits until at most the newest `LEFT` groups of this thread are in flight.
template <int LEFT>
__device__ __forceinline__ void waitForCopies() {
#ifdef __CUDACC__
  asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
#else
  emulation::waitForCopies(LEFT);
#endif
}

// Loads memory that no kernel writes meanwhile and that is read once (weights), without allocating in L1. Does not use ld.global.nc, because ptxas
// may move such loads down past waitForEarlier (launch.h), and the first weights must be loaded before that wait.
__device__ __forceinline__ uint4 loadOnce16(const void* global) {
#ifdef __CUDACC__
  uint4 v;
  asm volatile("ld.global.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(global));
  return v;
#else
  return emulation::load16(global);
#endif
}
// The same for 8 bytes.
__device__ __forceinline__ uint2 loadOnce8(const void* global) {
#ifdef __CUDACC__
  uint2 v;
  asm volatile("ld.global.L1::no_allocate.L2::128B.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(global));
  return v;
#else
  return emulation::load8(global);
#endif
}
// Loads memory that several threads of the block read and that no kernel writes meanwhile. The previous kernel may have written it (see launch.h).
__device__ __forceinline__ uint4 loadKept16(const void* global) {
#ifdef __CUDACC__
  uint4 v;
  asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(global));
  return v;
#else
  return emulation::load16(global);
#endif
}
// Loads, bypassing L1, memory that other blocks may have written during this kernel (followed by a fence and an atomic).
__device__ __forceinline__ uint4 loadFresh16(const void* global) {
#ifdef __CUDACC__
  return __ldcg(static_cast<const uint4*>(global));
#else
  return emulation::load16(global);
#endif
}
// Prefetches a line into L2.
__device__ __forceinline__ void prefetch(const void* global) {
#ifdef __CUDACC__
  asm volatile("prefetch.global.L2 [%0];" ::"l"(global));
#else
  (void)global;
#endif
}

}  // namespace pie
