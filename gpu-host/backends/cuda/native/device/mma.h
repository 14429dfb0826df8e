// Warp-level tensor-core products and the loads of their operands from shared memory (PTX ISA: mma.sync.m16n8k16, ldmatrix).
#pragma once
#include <cstdint>
#include "device.h"

namespace pie {

// c += a · b: a is 16 × 16, b 16 × 8, both bf16; c is 16 × 8, float. Elements of lane l, with g = l / 4 and t = l % 4 (of two elements in a
// register, the first is the lower half):
//   a[0]: row g,     columns 2t, 2t + 1      b[0]: rows 2t, 2t + 1, column g      c[0], c[1]: row g,     columns 2t, 2t + 1
//   a[1]: row g + 8, columns 2t, 2t + 1      b[1]: rows 2t + 8, 2t + 9, column g  c[2], c[3]: row g + 8, columns 2t, 2t + 1
//   a[2]: row g,     columns 2t + 8, 2t + 9
//   a[3]: row g + 8, columns 2t + 8, 2t + 9
__device__ __forceinline__ void multiplyAdd(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
#ifdef __CUDACC__
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  emulation::multiplyAdd(c, a, b);
#endif
}

// The same for float16.
__device__ __forceinline__ void multiplyAddHalves(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
#ifdef __CUDACC__
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  emulation::multiplyAddHalves(c, a, b);
#endif
}

#ifdef __CUDACC__
#define PIE_SHARED_ADDRESS(pointer) static_cast<uint32_t>(__cvta_generic_to_shared(pointer))
#endif

// Loads 8 × 8 matrices of bf16 from shared memory. Lanes 8i to 8i + 7 pass the addresses of matrix i's rows (16 bytes each, 16-byte aligned); the
// addresses of lanes past the last matrix are ignored. Lane l receives in matrices[i] two elements of matrix i: row l / 4, columns 2 (l % 4)
// and the next; or, transposed, column l / 4, rows 2 (l % 4) and the next. These are the registers of multiplyAdd: for an a stored row by row, load
// four matrices (rows 0–7, rows 8–15, then columns 8–15 of both); for a b stored by column, load two (rows 0–7, rows 8–15).
__device__ __forceinline__ void loadMatrices(uint32_t (&matrices)[1], const void* row) {
#ifdef __CUDACC__
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(matrices[0]) : "r"(PIE_SHARED_ADDRESS(row)) : "memory");
#else
  emulation::loadMatrices(matrices, 1, false, row);
#endif
}
__device__ __forceinline__ void loadMatrices(uint32_t (&matrices)[2], const void* row) {
#ifdef __CUDACC__
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];" : "=r"(matrices[0]), "=r"(matrices[1]) : "r"(PIE_SHARED_ADDRESS(row)) : "memory");
#else
  emulation::loadMatrices(matrices, 2, false, row);
#endif
}
__device__ __forceinline__ void loadMatrices(uint32_t (&matrices)[4], const void* row) {
#ifdef __CUDACC__
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(matrices[0]), "=r"(matrices[1]), "=r"(matrices[2]), "=r"(matrices[3])
               : "r"(PIE_SHARED_ADDRESS(row))
               : "memory");
#else
  emulation::loadMatrices(matrices, 4, false, row);
#endif
}
__device__ __forceinline__ void loadMatricesTransposed(uint32_t (&matrices)[1], const void* row) {
#ifdef __CUDACC__
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];" : "=r"(matrices[0]) : "r"(PIE_SHARED_ADDRESS(row)) : "memory");
#else
  emulation::loadMatrices(matrices, 1, true, row);
#endif
}
__device__ __forceinline__ void loadMatricesTransposed(uint32_t (&matrices)[2], const void* row) {
#ifdef __CUDACC__
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
               : "=r"(matrices[0]), "=r"(matrices[1])
               : "r"(PIE_SHARED_ADDRESS(row))
               : "memory");
#else
  emulation::loadMatrices(matrices, 2, true, row);
#endif
}
__device__ __forceinline__ void loadMatricesTransposed(uint32_t (&matrices)[4], const void* row) {
#ifdef __CUDACC__
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(matrices[0]), "=r"(matrices[1]), "=r"(matrices[2]), "=r"(matrices[3])
               : "r"(PIE_SHARED_ADDRESS(row))
               : "memory");
#else
  emulation::loadMatrices(matrices, 4, true, row);
#endif
}

// Two floats as bf16 in one register, `low` in the lower half: converts accumulators to an operand.
__device__ __forceinline__ uint32_t packed(float low, float high) {
  const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
  uint32_t bits;
  memcpy(&bits, &both, 4);
  return bits;
}

}  // namespace pie
