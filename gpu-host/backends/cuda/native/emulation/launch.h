// A launch as a closure: as in CUDA, arguments are converted to the kernel's parameter types and stored by value.
#pragma once
#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>
#include "runtime.h"

namespace emulation {

cudaError_t launch(const cudaLaunchConfig_t& config, const void* kernel, const char* name, std::function<void()> body);

template <typename... P, typename... A>
cudaError_t launchKernel(const cudaLaunchConfig_t* config, void (*kernel)(P...), const char* name, A&&... arguments) {
  static_assert(sizeof...(P) == sizeof...(A), "a kernel has no default arguments");
  static_assert((std::is_trivially_copyable_v<P> && ...), "a kernel's parameters are copied byte by byte");
  static_assert((!std::is_reference_v<P> && ...), "a kernel's parameters are values");
  return launch(*config, reinterpret_cast<const void*>(kernel), name,
                [kernel, values = std::tuple<P...>(std::forward<A>(arguments)...)] { std::apply(kernel, values); });
}

template <typename... P, typename... A>
void launchPlain(void (*kernel)(P...), const char* name, dim3 grid, dim3 block, size_t shared, cudaStream_t stream, A&&... arguments) {
  const cudaLaunchConfig_t config{grid, block, shared, stream, nullptr, 0};
  (void)launchKernel(&config, kernel, name, std::forward<A>(arguments)...);
}

}  // namespace emulation

#define LAUNCH(kernel, grid, block, shared, stream, ...) ::emulation::launchPlain(kernel, #kernel, grid, block, shared, stream, ##__VA_ARGS__)
// A macro, so that fault messages can name the kernel.
#define cudaLaunchKernelEx(config, kernel, ...) ::emulation::launchKernel(config, kernel, #kernel, ##__VA_ARGS__)
#define DYNAMIC_SHARED(T, name) T* name = reinterpret_cast<T*>(::emulation::dynamicShared())
