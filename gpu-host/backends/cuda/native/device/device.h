// One kernel source, two compilers: nvcc for the GPU, or a C++ compiler with ../emulation, which runs blocks on host threads and CUDA threads as
// fibers. The GPU build compiles a file with device code as CUDA, and other files as C++ with PIE_CUDA, which is faster. The emulation defines
// PIE_EMULATED.
#pragma once
#if defined(__CUDACC__) || defined(PIE_CUDA)
#include <cuda_bf16.h>
#include <cuda_runtime.h>
// A launch syntax for both compilers: LAUNCH(kernel, grid, block, dynamic shared bytes, stream, arguments…). Commas in the kernel's template
// arguments need parentheses: LAUNCH((kernel<T, 64>), …).
#define LAUNCH(kernel, grid, block, shared, stream, ...) kernel<<<grid, block, shared, stream>>>(__VA_ARGS__)
// The launch's dynamic shared memory as an array of T.
#define DYNAMIC_SHARED(T, name)                                          \
  extern __shared__ __align__(128) unsigned char dynamic_shared_bytes[]; \
  T* name = reinterpret_cast<T*>(dynamic_shared_bytes)
#else
#include "../emulation/emulation.h"
#endif
