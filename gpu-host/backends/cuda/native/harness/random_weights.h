// Cheap random weights of any size by repetition of one block. A step's duration does not depend on the values of the weights.
#pragma once
#include <memory>
#include <vector>
#include "measure.h"
#include "shapes.h"

namespace pie::harness {

// bf16 words of normally distributed values with the given deviation.
std::vector<uint16_t> randomBlock(size_t count, float deviation, uint64_t seed);

// Gives every matrix the same host memory; norms are ones.
WeightSource randomWeights(const NamedShape& named);

// Float8 slots with codes of magnitude up to 1.875 (no NaN) and scales of 1.
std::vector<uint8_t> randomFloat8Slots(const ModelShape& shape, size_t slots);

// Fills device memory with the repeated bf16 values of a random block.
void fillRandom(const DeviceBytes& memory, float deviation, uint64_t seed);

}  // namespace pie::harness
