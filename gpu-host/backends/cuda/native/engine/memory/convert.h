// Converts the numbers of safetensors files to the engine's types on the host. The loops are written so that compilers vectorise them.
#pragma once
#include <cstddef>
#include "../../kernels/types.h"
#include "../engine.h"

namespace pie {

size_t elementBytes(HostTensor::Type type);

// `from` may be unaligned. Rounds to nearest even.
template <typename T>
void convertNumbers(T* to, HostTensor::Type type, const void* from, size_t count);

}  // namespace pie
