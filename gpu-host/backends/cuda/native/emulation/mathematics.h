// CUDA's math functions. The fast ones (__expf) are as exact as the precise ones here, so test bounds must allow for the hardware's larger error.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace emulation {
template <typename To, typename From>
inline To sameBits(From from) {
  static_assert(sizeof(To) == sizeof(From), "the same size");
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}
}  // namespace emulation

inline unsigned __float_as_uint(float v) { return emulation::sameBits<unsigned>(v); }
inline float __uint_as_float(unsigned v) { return emulation::sameBits<float>(v); }
inline long long __double_as_longlong(double v) { return emulation::sameBits<long long>(v); }
inline double __longlong_as_double(long long v) { return emulation::sameBits<double>(v); }

inline float __expf(float v) { return expf(v); }
inline float __fdividef(float a, float b) { return a / b; }
inline float rsqrtf(float v) { return static_cast<float>(1 / std::sqrt(static_cast<double>(v))); }
#ifndef __GLIBC__
inline void sincos(double v, double* s, double* c) { *s = std::sin(v), *c = std::cos(v); }
#endif

inline int __popc(unsigned v) { return __builtin_popcount(v); }
inline int __ffs(int v) { return __builtin_ffs(v); }
inline int __clzll(long long v) { return v == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(v)); }
inline unsigned __byte_perm(unsigned low, unsigned high, unsigned selector) {
  const uint64_t both = static_cast<uint64_t>(high) << 32 | low;
  unsigned r = 0;
  for (int i = 0; i < 4; i++) {
    const unsigned nibble = (selector >> (4 * i)) & 15u;
    unsigned byte = static_cast<unsigned>(both >> (8 * (nibble & 7u))) & 0xffu;
    if (nibble & 8u) byte = byte & 0x80u ? 0xffu : 0;
    r |= byte << (8 * i);
  }
  return r;
}

// CUDA provides min and max without std::.
#define EMULATED_MIN_MAX(T)                          \
  inline T min(T a, T b) { return b < a ? b : a; } \
  inline T max(T a, T b) { return a < b ? b : a; }
EMULATED_MIN_MAX(int)
EMULATED_MIN_MAX(unsigned)
EMULATED_MIN_MAX(long)
EMULATED_MIN_MAX(unsigned long)
EMULATED_MIN_MAX(long long)
EMULATED_MIN_MAX(unsigned long long)
#undef EMULATED_MIN_MAX
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }
inline double min(double a, double b) { return fmin(a, b); }
inline double max(double a, double b) { return fmax(a, b); }
inline unsigned min(int a, unsigned b) { return min(static_cast<unsigned>(a), b); }
inline unsigned min(unsigned a, int b) { return min(a, static_cast<unsigned>(b)); }
inline unsigned max(int a, unsigned b) { return max(static_cast<unsigned>(a), b); }
inline unsigned max(unsigned a, int b) { return max(a, static_cast<unsigned>(b)); }
