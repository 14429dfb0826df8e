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

inline int __float_as_int(float v) { return emulation::sameBits<int>(v); }
inline unsigned __float_as_uint(float v) { return emulation::sameBits<unsigned>(v); }
inline float __int_as_float(int v) { return emulation::sameBits<float>(v); }
inline float __uint_as_float(unsigned v) { return emulation::sameBits<float>(v); }
inline long long __double_as_longlong(double v) { return emulation::sameBits<long long>(v); }
inline double __longlong_as_double(long long v) { return emulation::sameBits<double>(v); }

inline float __expf(float v) { return expf(v); }
inline float __exp10f(float v) { return powf(10, v); }
inline float __logf(float v) { return logf(v); }
inline float __log2f(float v) { return log2f(v); }
inline float __sinf(float v) { return sinf(v); }
inline float __cosf(float v) { return cosf(v); }
inline float __powf(float a, float b) { return powf(a, b); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline float __fsqrt_rn(float v) { return sqrtf(v); }
inline float __frcp_rn(float v) { return 1 / v; }
inline float __frsqrt_rn(float v) { return static_cast<float>(1 / std::sqrt(static_cast<double>(v))); }
inline float rsqrtf(float v) { return __frsqrt_rn(v); }
inline double rsqrt(double v) { return 1 / std::sqrt(v); }
inline float __saturatef(float v) { return std::isnan(v) ? 0 : std::min(std::max(v, 0.0f), 1.0f); }
inline float __tanhf(float v) { return tanhf(v); }
inline int __float2int_rn(float v) { return static_cast<int>(std::nearbyint(v)); }
inline int __float2int_rz(float v) { return static_cast<int>(v); }
inline int __float2int_rd(float v) { return static_cast<int>(std::floor(v)); }
inline int __float2int_ru(float v) { return static_cast<int>(std::ceil(v)); }
inline unsigned __float2uint_rn(float v) { return static_cast<unsigned>(std::nearbyint(v)); }
inline unsigned __float2uint_rz(float v) { return static_cast<unsigned>(v); }
inline float __int2float_rn(int v) { return static_cast<float>(v); }
inline float __uint2float_rn(unsigned v) { return static_cast<float>(v); }
inline float __double2float_rn(double v) { return static_cast<float>(v); }
inline void sincospif(float v, float* s, float* c) {
  *s = static_cast<float>(std::sin(v * 3.14159265358979323846));
  *c = static_cast<float>(std::cos(v * 3.14159265358979323846));
}
#ifndef __GLIBC__
inline void sincosf(float v, float* s, float* c) { *s = std::sin(v), *c = std::cos(v); }
inline void sincos(double v, double* s, double* c) { *s = std::sin(v), *c = std::cos(v); }
#endif

inline int __popc(unsigned v) { return __builtin_popcount(v); }
inline int __popcll(unsigned long long v) { return __builtin_popcountll(v); }
inline int __ffs(int v) { return __builtin_ffs(v); }
inline int __ffsll(long long v) { return __builtin_ffsll(v); }
inline int __clz(int v) { return v == 0 ? 32 : __builtin_clz(static_cast<unsigned>(v)); }
inline int __clzll(long long v) { return v == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(v)); }
inline unsigned __brev(unsigned v) {
  unsigned r = 0;
  for (int i = 0; i < 32; i++) r |= ((v >> i) & 1u) << (31 - i);
  return r;
}
inline unsigned __umulhi(unsigned a, unsigned b) { return static_cast<unsigned>((static_cast<uint64_t>(a) * b) >> 32); }
inline int __mulhi(int a, int b) { return static_cast<int>((static_cast<int64_t>(a) * b) >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return static_cast<unsigned long long>((static_cast<unsigned __int128>(a) * b) >> 64);
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>(((static_cast<uint64_t>(high) << 32 | low) << (shift & 31)) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>((static_cast<uint64_t>(high) << 32 | low) >> (shift & 31));
}
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
