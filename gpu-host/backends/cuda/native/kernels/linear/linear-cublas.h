// cuBLASLt, loaded at run time, so that the build does not need it. Names and numbers are those of cublasLt.h, unchanged since version 11.
#pragma once
#include "linear.h"

namespace pie {

struct CublasLtHeuristic {
  uint64_t algorithm[8];
  size_t workspaceBytes;
  int status;
  float waves;
  int reserved[4];
};
static_assert(sizeof(CublasLtHeuristic) == 96, "must match cublasLtMatmulHeuristicResult_t");

// Handles are opaque; every function returns 0 on success.
struct CublasLtFunctions {
  int (*create)(void** handle);
  int (*destroy)(void* handle);
  int (*matmul)(void* handle, void* operation, const void* alpha, const void* a, void* layoutA, const void* b, void* layoutB, const void* beta, const void* c,
                void* layoutC, void* d, void* layoutD, const void* algorithm, void* workspace, size_t workspaceBytes, cudaStream_t stream);
  int (*createOperation)(void** operation, int computeType, int scaleType);
  int (*destroyOperation)(void* operation);
  int (*setOperation)(void* operation, int attribute, const void* value, size_t bytes);
  int (*createLayout)(void** layout, int type, uint64_t rows, uint64_t columns, int64_t leadingDimension);
  int (*destroyLayout)(void* layout);
  int (*createPreference)(void** preference);
  int (*destroyPreference)(void* preference);
  int (*setPreference)(void* preference, int attribute, const void* value, size_t bytes);
  int (*heuristic)(void* handle, void* operation, void* layoutA, void* layoutB, void* layoutC, void* layoutD, void* preference, int wanted,
                   CublasLtHeuristic* results, int* found);
};

namespace cublaslt {
constexpr int COMPUTE_32F = 68, R_32F = 0, R_16BF = 14, TRANSPOSE = 1;
constexpr int OPERATION_TRANSA = 3, OPERATION_EPILOGUE = 7, OPERATION_BIAS_POINTER = 8, OPERATION_BIAS_TYPE = 26;
constexpr int EPILOGUE_BIAS = 4;
// The statuses by which the library refuses a product itself. Others, such as that of a failed allocation or launch, may not recur.
constexpr int INVALID_VALUE = 7, ARCHITECTURE_MISMATCH = 8, NOT_SUPPORTED = 15;
constexpr int PREFERENCE_WORKSPACE = 1, PREFERENCE_ALIGNMENT_A = 5;  // The alignments of B, C and D have the next numbers.
}  // namespace cublaslt

// Returns null if the library creates no handle. closeCublasLt also closes `library`.
struct CublasLt* makeCublasLt(const CublasLtFunctions& functions, void* library);

// Runs a product with its bias and the epilogue Store or Wide. Returns false without launching anything if the library has no algorithm for this
// product.
bool launchLinearCublas(struct CublasLt* cublas, const Linear<bf16>& linear, const bf16* x, size_t xStride, void* y, size_t yStride, int rows,
                        Epilogue epilogue, void* workspace, size_t workspaceBytes, cudaStream_t stream);

}  // namespace pie
