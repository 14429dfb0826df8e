// A launch as a closure: arguments are converted to the kernel's parameter types and kept by value, as on the card.
#pragma once
#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>
#include "runtime.h"

namespace emulation {

void launch(const void* kernel, const char* name, dim3 grid, dim3 block, size_t shared, cudaStream_t stream, std::function<void()> body);

template <typename... P, typename... A>
void launchKernel(void (*kernel)(P...), const char* name, dim3 grid, dim3 block, size_t shared, cudaStream_t stream, A&&... arguments) {
  static_assert(sizeof...(P) == sizeof...(A), "a kernel has no default arguments");
  static_assert((std::is_trivially_copyable_v<P> && ...), "a kernel's parameters are copied byte by byte");
  static_assert((!std::is_reference_v<P> && ...), "a kernel's parameters are values");
  launch(reinterpret_cast<const void*>(kernel), name, grid, block, shared, stream,
         [kernel, values = std::tuple<P...>(std::forward<A>(arguments)...)] { std::apply(kernel, values); });
}

}  // namespace emulation

#define LAUNCH(kernel, grid, block, shared, stream, ...) ::emulation::launchKernel(kernel, #kernel, grid, block, shared, stream, ##__VA_ARGS__)
#define DYNAMIC_SHARED(T, name) T* name = reinterpret_cast<T*>(::emulation::dynamicShared())
