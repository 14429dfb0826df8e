// CUDA's vector types, with its alignments.
#pragma once
#include <cstdint>

#define EMULATED_VECTORS(name, T, alignment2, alignment4)                                                   \
  struct name##1 { T x; };                                                                                \
  struct alignas(alignment2) name##2 { T x, y; };                                                           \
  struct name##3 { T x, y, z; };                                                                            \
  struct alignas(alignment4) name##4 { T x, y, z, w; };                                                     \
  inline name##1 make_##name##1(T x) { return {x}; }                                                        \
  inline name##2 make_##name##2(T x, T y) { return {x, y}; }                                                \
  inline name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; }                                        \
  inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }

EMULATED_VECTORS(char, signed char, 2, 4)
EMULATED_VECTORS(uchar, unsigned char, 2, 4)
EMULATED_VECTORS(short, short, 4, 8)
EMULATED_VECTORS(ushort, unsigned short, 4, 8)
EMULATED_VECTORS(int, int, 8, 16)
EMULATED_VECTORS(uint, unsigned int, 8, 16)
EMULATED_VECTORS(longlong, long long, 16, 16)
EMULATED_VECTORS(ulonglong, unsigned long long, 16, 16)
EMULATED_VECTORS(float, float, 8, 16)
EMULATED_VECTORS(double, double, 16, 16)
#undef EMULATED_VECTORS

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
  constexpr operator uint3() const { return {x, y, z}; }
};
