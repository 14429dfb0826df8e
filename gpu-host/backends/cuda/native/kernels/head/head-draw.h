// Draws that match `gpu-host/backends/draw.ts` bit for bit: JavaScript numbers are doubles; each operation is rounded once, in the order of the
// source.
#pragma once
#include "head-rows.h"

namespace pie {

// Operations that the compiler must not contract into fused multiply-adds.
#ifdef __CUDA_ARCH__
__device__ __forceinline__ double times(double a, double b) { return __dmul_rn(a, b); }
__device__ __forceinline__ double plus(double a, double b) { return __dadd_rn(a, b); }
#else
inline double times(double a, double b) { return a * b; }
inline double plus(double a, double b) { return a + b; }
#endif
__device__ __forceinline__ double minus(double a, double b) { return plus(a, -b); }

__device__ __forceinline__ double powerOfTwo(int exponent) { return __longlong_as_double(static_cast<long long>(exponent + 1023) << 52); }

// exp as V8 computes it: the method of Sun's fdlibm (Ng, 1993; e_exp.c), so that both round the same way. x = k ln 2 + r with |r| <= ln 2 / 2, and
// e^r is a rational function of r.
__device__ __forceinline__ double exactExp(double x) {
  if (x != x) return x;
  if (x > 709.782712893383973096) return INFINITY;
  if (x < -745.13321910194110842) return 0;
  const double size = fabs(x);
  if (size < 0x1p-28) return plus(1, x);
  if (x == 1) return 2.718281828459045235360;
  constexpr double LN2_HIGH = 6.93147180369123816490e-01, LN2_LOW = 1.90821492927058770002e-10, PER_LN2 = 1.44269504088896338700;
  double high = x, low = 0, r = x;
  int k = 0;
  // fdlibm compares only the upper words: these constants are 0.5 ln 2 and 1.5 ln 2, truncated to 20 fraction bits.
  const uint32_t upper = static_cast<uint32_t>(static_cast<unsigned long long>(__double_as_longlong(size)) >> 32);
  if (upper > 0x3fd62e42u) {
    if (upper < 0x3ff0a2b2u)
      k = x < 0 ? -1 : 1;
    else
      k = static_cast<int>(plus(times(PER_LN2, x), x < 0 ? -0.5 : 0.5));
    high = minus(x, times(k, LN2_HIGH));
    low = times(k, LN2_LOW);
    r = minus(high, low);
  }
  const double t = times(r, r);
  double c = 4.13813679705723846039e-08;
  c = plus(-1.65339022054652515390e-06, times(t, c));
  c = plus(6.61375632143793436117e-05, times(t, c));
  c = plus(-2.77777777770155933842e-03, times(t, c));
  c = plus(1.66666666666666019037e-01, times(t, c));
  c = minus(r, times(t, c));
  if (k == 0) return minus(1, minus(times(r, c) / minus(c, 2), r));
  const double y = minus(1, minus(minus(low, times(r, c) / minus(2, c)), high));
  if (k >= -1021) return k == 1024 ? times(times(y, 2), powerOfTwo(1023)) : times(y, powerOfTwo(k));
  return times(times(y, powerOfTwo(k + 1000)), powerOfTwo(-1000));
}

// The finalizer of MurmurHash3 (Appleby, 2011).
__device__ __forceinline__ uint32_t mixed(uint32_t h) {
  h = (h ^ h >> 16) * 0x85ebca6bu;
  h = (h ^ h >> 13) * 0xc2b2ae35u;
  return h ^ h >> 16;
}

// A number in [0, 1) with 53 random bits.
__device__ __forceinline__ double uniformOf(uint32_t seed, uint32_t position) {
  const uint32_t a = mixed(mixed(seed ^ 0x9e3779b9u) ^ position);
  const uint32_t b = mixed(mixed(a ^ 0x85ebca6bu) ^ seed);
  return (static_cast<double>(a >> 5) * 0x1p26 + (b >> 6)) * 0x1p-53;
}

// Shared memory of a draw.
struct DrawCuts {
  int allowed;    // Number of leading places with a probability above 0.
  int kept;       // Number of leading places that topP keeps.
  int belowMinP;  // The first place whose weight is below minP.
  double target;  // topP × the sum of all weights.
};

// Draws one of `count` places, which are sorted by descending probability. `logProbabilityAt(i)` must return the same value on every call. `weights`
// and `reached` are shared memory of `count` doubles each: `weights` is written while `logProbabilityAt` is still called, `reached` only afterwards.
// All threads of a block call this function; only thread 0 gets the drawn place.
template <int THREADS, typename LogProbabilityAt>
__device__ __forceinline__ uint32_t drawPlace(const Draw& draw, int count, LogProbabilityAt logProbabilityAt, double* weights, double* reached,
                                              DrawCuts& cuts) {
  if (draw.temperature == 0 || count <= 1) return 0;
  const float top = logProbabilityAt(0);
  if (threadIdx.x == 0) cuts = {1, count, count, 0};
  __syncthreads();
  for (int i = threadIdx.x; i < count; i += THREADS) {
    const float logProbability = logProbabilityAt(i);
    const double weight = exactExp(minus(logProbability, top) / draw.temperature);
    // Places are sorted, so those of probability 0 are the last.
    if (logProbability != -INFINITY) atomicMax(&cuts.allowed, i + 1);
    weights[i] = weight;
    if (i > 0 && !(weight >= draw.minP)) atomicMin(&cuts.belowMinP, i);
  }
  __syncthreads();
  // One thread adds in the order of the places, as draw.ts does; each prefix sum in `reached` is also the sum over a cut.
  if (threadIdx.x == 0) {
    double sum = 0;
    for (int i = 0; i < cuts.allowed; i++) reached[i] = sum = plus(sum, weights[i]);
    cuts.kept = cuts.allowed;
    cuts.target = times(draw.topP, sum);
  }
  __syncthreads();
  if (draw.topP < 1) {
    const int allowed = cuts.allowed;
    __syncthreads();
    for (int i = threadIdx.x; i < allowed; i += THREADS)
      if (!(reached[i] < cuts.target)) atomicMin(&cuts.kept, i + 1);
    __syncthreads();
  }
  if (threadIdx.x > 0) return 0;
  const int kept = draw.minP > 0 ? min(cuts.kept, cuts.belowMinP) : cuts.kept;
  double left = times(uniformOf(draw.seed, draw.position), reached[kept - 1]);
  for (int i = 0; i < kept; i++) {
    left = minus(left, weights[i]);
    if (left < 0) return i;
  }
  return kept - 1;
}

}  // namespace pie
