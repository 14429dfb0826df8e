#include "matrices.h"

#include <cstring>
#include "copies.h"
#include "float16.h"
#include "threads.h"

namespace emulation {

namespace {

typedef float Four __attribute__((vector_size(16)));

// Decodes the two halves of an operand register.
struct Bfloat16 {
  static float low(uint32_t pair) { return number(pair << 16); }
  static float high(uint32_t pair) { return number(pair & 0xffff0000u); }

 private:
  static float number(uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
  }
};
struct Float16 {
  static float low(uint32_t pair) { return fromHalf(static_cast<uint16_t>(pair)); }
  static float high(uint32_t pair) { return fromHalf(static_cast<uint16_t>(pair >> 16)); }
};

void wantWholeWarp(unsigned lanes, const char* what) {
  if (lanes != ~0u) kernelFault("%s needs all lanes of a warp, but has %08x", what, lanes);
}

struct Product {
  float* c;
  const uint32_t *a, *b;
};

template <typename Format>
void completeProduct(void* const operands[32], unsigned lanes) {
  wantWholeWarp(lanes, "mma");
  float a[16][16];
  union {
    float values[16][8];
    Four fours[16][2];
  } b, c;
  for (int lane = 0; lane < 32; lane++) {
    const auto& one = *static_cast<const Product*>(operands[lane]);
    const int g = lane / 4, t = 2 * (lane % 4);
    for (int i = 0; i < 4; i++) {
      const int row = g + 8 * (i % 2), column = t + 8 * (i / 2);
      a[row][column] = Format::low(one.a[i]);
      a[row][column + 1] = Format::high(one.a[i]);
      c.values[g + 8 * (i / 2)][t + i % 2] = one.c[i];
    }
    for (int i = 0; i < 2; i++) {
      b.values[t + 8 * i][g] = Format::low(one.b[i]);
      b.values[t + 8 * i + 1][g] = Format::high(one.b[i]);
    }
  }
  for (int row = 0; row < 16; row++) {
    for (int k = 0; k < 16; k++) {
      c.fours[row][0] += a[row][k] * b.fours[k][0];
      c.fours[row][1] += a[row][k] * b.fours[k][1];
    }
  }
  for (int lane = 0; lane < 32; lane++) {
    const auto& one = *static_cast<const Product*>(operands[lane]);
    for (int i = 0; i < 4; i++) one.c[i] = c.values[lane / 4 + 8 * (i / 2)][2 * (lane % 4) + i % 2];
  }
}

struct Load {
  uint32_t* matrices;
  const void* row;
};

template <int COUNT, bool TRANSPOSED>
void completeLoad(void* const operands[32], unsigned lanes) {
  wantWholeWarp(lanes, "ldmatrix");
  for (int i = 0; i < COUNT; i++) {
    uint16_t matrix[8][8];
    for (int row = 0; row < 8; row++) {
      const void* from = static_cast<const Load*>(operands[8 * i + row])->row;
      wantShared(from, 16, "ldmatrix");
      std::memcpy(matrix[row], from, 16);
    }
    for (int lane = 0; lane < 32; lane++) {
      const int g = lane / 4, t = 2 * (lane % 4);
      const uint32_t first = TRANSPOSED ? matrix[t][g] : matrix[g][t], second = TRANSPOSED ? matrix[t + 1][g] : matrix[g][t + 1];
      static_cast<const Load*>(operands[lane])->matrices[i] = first | second << 16;
    }
  }
}

void wantAligned(const void* address, unsigned bytes, const char* what) {
  if (reinterpret_cast<uintptr_t>(address) % bytes != 0) kernelFault("%s at %p, which is no multiple of %u", what, address, bytes);
}

// Performs the oldest `count` copies.
void perform(AsyncCopies& all, size_t count) {
  for (size_t i = 0; i < count; i++) {
    const AsyncCopy& copy = all.copies[i];
    std::memset(copy.to, 0, copy.size);
    std::memcpy(copy.to, copy.from, copy.bytes);
  }
  all.copies.erase(all.copies.begin(), all.copies.begin() + static_cast<long>(count));
}

}  // namespace

void multiplyAdd(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], const char* file, int line) {
  Product product{c, a, b};
  warpCollective(~0u, completeProduct<Bfloat16>, &product, {"mma", file, line});
}

void multiplyAddHalves(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], const char* file, int line) {
  Product product{c, a, b};
  warpCollective(~0u, completeProduct<Float16>, &product, {"mma", file, line});
}

void loadMatrices(uint32_t* matrices, int count, bool transposed, const void* row, const char* file, int line) {
  Load load{matrices, row};
  const Completion complete = transposed ? count == 1 ? completeLoad<1, true> : count == 2 ? completeLoad<2, true> : completeLoad<4, true>
                              : count == 1 ? completeLoad<1, false> : count == 2 ? completeLoad<2, false> : completeLoad<4, false>;
  warpCollective(~0u, complete, &load, {"ldmatrix", file, line});
}

void copyAsync(void* shared, const void* global, unsigned bytes, unsigned size) {
  wantShared(shared, size, "cp.async to");
  wantAligned(global, size, "cp.async from");
  std::memset(shared, 0xff, size);
  current->copies->copies.push_back({shared, global, bytes, size});
}

void commitCopies() {
  AsyncCopies& all = *current->copies;
  size_t grouped = 0;
  for (const size_t group : all.groups) grouped += group;
  all.groups.push_back(all.copies.size() - grouped);
}

void waitForCopies(unsigned left) {
  AsyncCopies& all = *current->copies;
  size_t count = 0;
  while (all.groups.size() > left) {
    count += all.groups.front();
    all.groups.erase(all.groups.begin());
  }
  perform(all, count);
}

uint4 load16(const void* global) {
  wantAligned(global, 16, "a load of 16 bytes");
  uint4 value;
  std::memcpy(&value, global, 16);
  return value;
}

uint2 load8(const void* global) {
  wantAligned(global, 8, "a load of 8 bytes");
  uint2 value;
  std::memcpy(&value, global, 8);
  return value;
}

}  // namespace emulation
