// Launches of a chain of kernels, each of which may begin before the one before it has ended (programmatic dependent launch: CUDA programming guide,
// "Programmatic Dependent Launch and Synchronization"; PTX ISA: griddepcontrol). What a launch costs, and the end of a kernel that leaves most of the card
// idle, are then hidden; a kernel that streams weights, which nobody writes, asks for its first ones while the kernel before it still computes.
//
// Every kernel that LAUNCH_CHAINED starts calls
//   letNextBegin()    once, in every block: small kernels at once, as what comes next needs room that they leave; those that fill the card after they have
//                     waited, so that what comes next does not crowd one part of it. It says nothing of results.
//   waitForEarlier()  in every thread, before it reads or writes anything that another kernel of the chain writes or reads: when it returns the kernel before
//                     has ended, and all that it wrote is there to be read.
// The kernel before ended only after its own wait, so by induction all before it have ended too: what a kernel overwrites, nobody reads any more, however
// far back. One kernel that did not wait would break this for all that follow; the emulation ends the run for a thread that has not.
// What earlier kernels wrote must not be read past the wait as if it were constant (ld.global.nc, __ldg, __restrict__): it changed while this kernel was there.
//
// Copies, events, and launches without the attribute (LAUNCH, cuBLASLt) depend on the whole of what is before them, as ever, and a chained kernel after one of
// them begins at its end.
#pragma once
#include "chain.h"
#include "device.h"

namespace pie {

__device__ __forceinline__ void waitForEarlier() {
#ifdef __CUDACC__
  asm volatile("griddepcontrol.wait;" ::: "memory");
#else
  emulation::waitForGridBefore();
#endif
}
__device__ __forceinline__ void letNextBegin() {
#ifdef __CUDACC__
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#else
  emulation::letNextGridBegin();
#endif
}

// A launch's configuration, as long as the expression that it is in.
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

// As LAUNCH, for a kernel that waits for what is before it by itself.
#define LAUNCH_CHAINED(kernel, grid, block, shared, stream, ...) \
  (void)cudaLaunchKernelEx(::pie::LaunchConfig(grid, block, shared, stream, ::pie::LaunchChain::advance()).get(), kernel, ##__VA_ARGS__)
