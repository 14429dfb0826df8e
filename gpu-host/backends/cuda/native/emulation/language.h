// CUDA's keywords for a C++ compiler.
#pragma once

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
// A block runs on one host thread from start to end, so its shared variables are thread-local variables.
#define __shared__ static thread_local
