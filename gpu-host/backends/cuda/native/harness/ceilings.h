// Upper limits of the device, measured in the same run as the results that are compared with them.
#pragma once
#include "json.h"

namespace pie::harness {

// Bytes read plus bytes written per second by a large copy within the device.
JsonObject measureCopy(size_t bytes, int times);

// A square bf16 product of random values, by cuBLASLt if it is found and by this project's tile kernel.
JsonObject measureMatmul(int size, int times);

}  // namespace pie::harness
