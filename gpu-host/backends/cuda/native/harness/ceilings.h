// What the card can do at most, measured in the same run as what is held against it.
#pragma once
#include "json.h"

namespace pie::harness {

// Bytes read plus bytes written by a large copy within the device, a second.
JsonObject measureCopy(size_t bytes, int times);

// A square bf16 product of random values, by cuBLASLt where it is found and by our own tiles.
JsonObject measureMatmul(int size, int times);

}  // namespace pie::harness
