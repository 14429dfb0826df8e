// y = x · Wᵀ + b, and what is fused with it.
#pragma once
#include "types.h"

namespace pie {

// W is `outputs × inputs`, row-major, as Hugging Face stores it.
template <typename T>
struct Linear {
  const T* weight = nullptr;
  const T* bias = nullptr;  // Of `outputs` values, or null.
  int outputs = 0;
  int inputs = 0;
};

enum class Epilogue {
  Store,   // y: rows × outputs of T
  Wide,    // y: rows × outputs of float (logits)
  SwiGlu,  // Rows 2i and 2i + 1 of W are gate and up i (the engine interleaves them when it loads): y: rows × outputs / 2 of T, silu(gate) * up
  Add,     // y += ..., of T: low-rank changes
};

// Auto: see linear-choice.h. The others are for measuring and for tests; what one does not take (linearSupports) goes to Plain.
enum class LinearKernel {
  Auto,
  Plain,   // Any shape and both types, without tensor cores; a value does not depend on the number of rows.
  Vector,  // Up to 4 rows, bf16: warps stream W.
  Skinny,  // Up to 32 rows, bf16: tensor cores fed straight from memory; for few outputs.
  Tiles,   // Any number of rows, bf16 tensor cores.
  Cublas,
};

// What one may fix by hand when measuring; the values given here leave the choice to linear-choice.h.
struct LinearTuning {
  LinearKernel kernel = LinearKernel::Auto;
  int tile = -1;    // Tiles: index into LINEAR_TILES.
  int blocks = 0;   // Tiles: thread blocks; where they do not share the tiles evenly, tiles are split over the inputs.
  int splits = 0;   // Vector: warps that share a pair of outputs: 1, 2, 4 or 8.
  int columns = 0;  // Skinny: eighths of the outputs of a block: 2 to 6.
};

// Device memory and libraries that products work with; one per stream, made by the engine.
struct LinearContext {
  float* workspace = nullptr;  // Partial sums of products that are split over the inputs. Zeroed when it is made: it holds counters, and every product
                               // leaves them at zero.
  size_t workspaceBytes = 0;
  int multiprocessors = 132;
  struct CublasLt* cublas = nullptr;  // Null where the library is not found or not wanted.
  LinearTuning tuning;
};

// Bytes of workspace with which no product of up to `maxRows` rows is slower than it need be.
size_t linearWorkspaceBytes(int maxRows, int maxOutputs, int multiprocessors);

// True when `kernel` takes this product.
template <typename T>
bool linearSupports(LinearKernel kernel, const Linear<T>& linear, const T* x, size_t xStride, int rows, const LinearContext& context);

// Chooses by rows: vector products for one or two, tensor cores in small tiles up to 128 (both bound by reading W once), in large ones past that (cuBLASLt
// where it is there). `xStride` and `yStride` are distances of rows in values; x and y must not overlap. The fast kernels want W and x at
// multiples of 16 bytes and `inputs` and `xStride` at multiples of 8; all else is slow and right. May be captured into a graph: what it launches depends
// on the arguments alone.
template <typename T>
void launchLinear(const Linear<T>& linear, const T* x, size_t xStride, void* y, size_t yStride, int rows, Epilogue epilogue, const LinearContext& context,
                  cudaStream_t stream);

// Opens cuBLASLt when it can be found (PIE_CUBLASLT names a file; else the loader's path); null when it cannot.
struct CublasLt* openCublasLt();
void closeCublasLt(struct CublasLt*);

}  // namespace pie
