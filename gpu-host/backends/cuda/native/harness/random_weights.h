// Random values at any size for little: one block, again and again. How long a step takes does not depend on what the weights say.
#pragma once
#include <memory>
#include <vector>
#include "measure.h"
#include "shapes.h"

namespace pie::harness {

// bf16 words of normal values of the given deviation.
std::vector<uint16_t> randomBlock(size_t count, float deviation, uint64_t seed);

// Gives every matrix the same host memory, and ones to norms.
WeightSource randomWeights(const NamedShape& named);

// Slots of float8: codes of up to 1.875, none of which is NaN, and scales of 1.
std::vector<uint8_t> randomFloat8Slots(const ModelShape& shape, size_t slots);

// Fills device memory with bf16 values of such a block.
void fillRandom(const DeviceBytes& memory, float deviation, uint64_t seed);

}  // namespace pie::harness
