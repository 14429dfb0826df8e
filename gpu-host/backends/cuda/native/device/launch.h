// Launches of a chain of kernels, each of which may begin before the previous one has ended (programmatic dependent launch: CUDA programming guide,
// "Programmatic Dependent Launch and Synchronization"; PTX ISA: griddepcontrol). This hides the launch latency and the tail of a kernel that leaves
// most of the device idle; a kernel that streams weights, which no kernel writes, issues its first loads while the previous kernel still computes.
//
// Every kernel launched with LAUNCH_CHAINED calls
//   letNextBegin()    in at least one thread of every block. Small kernels call it at once, because the next kernel can use the multiprocessors that
//                     they leave idle. Tensor-core kernels call it when only results are left to be written: with an earlier call, blocks of
//                     the next kernel would crowd onto the multiprocessors that are free first, which costs a step of an 8B model on an H100 6 % at
//                     batch 32 and 1 % at batch 1. Products on CUDA cores call it after the wait. The call orders no memory accesses.
//   waitForEarlier()  in every thread, before the thread reads or writes memory that another kernel of the chain writes or reads. When it
//                     returns, the previous kernel has ended and all its writes are visible.
// The previous kernel ended only after its own wait, so by induction all earlier kernels have ended too, and a kernel may overwrite what any of them
// read. A single kernel that did not wait would break this for all that follow; the emulation ends the run if a thread did not wait.
// Output of earlier kernels must not be read after the wait through the read-only path (ld.global.nc, __ldg, __restrict__), because it changed during
// the lifetime of this kernel. Tables that a copy writes between two chains may be read before the wait, but only past L1 (__ldcg): until the wait,
// L1 may hold lines of an earlier step's tables.
//
// Products call letNextBegin only after their wait. So when the kernel after a product begins, every block of the product has waited, and all kernels
// before the product have ended. The kernel after the product and later kernels therefore need no wait to read, bypassing L1, data that kernels
// before the product wrote, or to overwrite data that kernels before the product read (low-rank.cu and attention-item.h do).
// linear-finish.cu, which lets the next kernel begin at once, keeps this promise because it follows a product that does.
//
// Copies, events and ordinary launches (LAUNCH, cuBLASLt) wait for all preceding work of the stream, as usual, and a chained kernel that follows one
// of them begins when that work has ended. Cards before capability 9.0 have no chained launches: there every kernel begins when the previous one
// ends.
#pragma once
#include "capability.h"
#include "chain.h"
#include "device.h"

namespace pie {

__device__ __forceinline__ void waitForEarlier() {
#ifndef __CUDACC__
  emulation::waitForPreviousGrid();
#elif PIE_CAPABILITY >= 90
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ __forceinline__ void letNextBegin() {
#ifndef __CUDACC__
  emulation::letNextGridBegin();
#elif PIE_CAPABILITY >= 90
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// A launch's configuration; lives as long as the launch expression.
class LaunchConfig {
 public:
  LaunchConfig(dim3 grid, dim3 block, size_t shared, cudaStream_t stream, bool early) : config_{grid, block, shared, stream, &attribute_, early ? 1u : 0u} {
    attribute_.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute_.val.programmaticStreamSerializationAllowed = 1;
  }
  LaunchConfig(const LaunchConfig&) = delete;
  LaunchConfig& operator=(const LaunchConfig&) = delete;
  const cudaLaunchConfig_t* get() const { return &config_; }

 private:
  cudaLaunchAttribute attribute_{};
  cudaLaunchConfig_t config_;
};

}  // namespace pie

// LAUNCH for a kernel that calls waitForEarlier itself.
#define LAUNCH_CHAINED(kernel, grid, block, shared, stream, ...) \
  (void)cudaLaunchKernelEx(::pie::LaunchConfig(grid, block, shared, stream, ::pie::LaunchChain::advance()).get(), kernel, ##__VA_ARGS__)
