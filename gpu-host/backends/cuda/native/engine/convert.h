// Numbers of safetensors to the engine's, on the host. Loops that a compiler turns into vector code.
#pragma once
#include <cstddef>
#include "../kernels/types.h"
#include "engine.h"

namespace pie {

size_t elementBytes(HostTensor::Type type);

// `from` may lie at any address. Rounds to nearest even.
template <typename T>
void convertNumbers(T* to, HostTensor::Type type, const void* from, size_t count);

}  // namespace pie
