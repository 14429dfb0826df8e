// The CPU implementation of ../device/mma.h and ../device/copy.h.
#pragma once
#include <cstdint>
#include "vectors.h"

namespace emulation {

void multiplyAdd(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], const char* file = __builtin_FILE(), int line = __builtin_LINE());
void multiplyAddHalves(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], const char* file = __builtin_FILE(), int line = __builtin_LINE());
void loadMatrices(uint32_t* matrices, int count, bool transposed, const void* row, const char* file = __builtin_FILE(), int line = __builtin_LINE());

// Copies `bytes` bytes and fills the rest of `size` with zeros. The destination is NaN until the wait, so a thread that reads too early gets NaN.
void copyAsync(void* shared, const void* global, unsigned bytes, unsigned size);
void commitCopies();
void waitForCopies(unsigned left);

uint4 load16(const void* global);
uint2 load8(const void* global);

}  // namespace emulation
