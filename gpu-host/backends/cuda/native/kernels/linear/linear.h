// y = x · Wᵀ + b, and the operations fused with it.
#pragma once
#include "../types.h"

namespace pie {

// W is `outputs × inputs`, row-major, as Hugging Face stores it.
template <typename T>
struct Linear {
  const T* weight = nullptr;
  const T* bias = nullptr;  // `outputs` values, or null.
  int outputs = 0;
  int inputs = 0;
};

enum class Epilogue {
  Store,   // y: rows × outputs of T
  Wide,    // y: rows × outputs of float (logits)
  SwiGlu,  // y: rows × outputs / 2 of T, silu(gate) * up. Rows 2i and 2i + 1 of W are gate i and up i; the engine interleaves them when it loads.
};

// Auto: see linear-choice.h. The others are for measurements and tests; a product that the chosen kernel does not support (linearSupports) runs on
// Plain.
enum class LinearKernel {
  Auto,
  Plain,   // Any shape and both types, without tensor cores; a row's result does not depend on the number of rows.
  Vector,  // Up to 4 rows, bf16: warps stream W.
  Skinny,  // Up to 32 rows, bf16: tensor cores fed straight from memory; for few outputs.
  Tiles,   // Any number of rows, bf16 tensor cores.
  Cublas,
};

// Overrides for measurements; the default values leave the choice to linear-choice.h.
struct LinearTuning {
  LinearKernel kernel = LinearKernel::Auto;
  int tile = -1;    // Tiles: index into LINEAR_TILES.
  int blocks = 0;   // Tiles: thread blocks; if they do not divide the tiles evenly, tiles are split over the inputs.
  int splits = 0;   // Vector: warps that share a pair of outputs: 1, 2, 4 or 8.
  int columns = 0;  // Skinny: columns of 8 outputs per block: 2 to 6.
};

// Device memory and libraries for products; the engine creates one per stream.
struct LinearContext {
  float* workspace = nullptr;  // Counters, then partial sums of split products. Counters are zero before the first product and after each.
  size_t workspaceBytes = 0;
  int multiprocessors = 132;
  double memoryRate = 3.0e12;  // Of device memory, in bytes per second; an H100's unless set (deviceMemoryRate).
  struct CublasLt* cublas = nullptr;  // Null if the library is not found or not wanted.
  LinearTuning tuning;
};

// The rate of a large copy in a device's memory, in bytes per second: nine tenths of the peak (two transfers of the bus width a clock), or an H100's
// rate if the driver does not know clock and width.
double deviceMemoryRate(int device);

// Bytes of workspace that suffice for the fastest layout of every product of up to `maxRows` rows. `widens`: the products may have narrow weights and
// use cuBLASLt.
size_t linearWorkspaceBytes(int maxRows, int maxOutputs, int multiprocessors, bool widens = false);

// True if `kernel` supports this product.
template <typename T>
bool linearSupports(LinearKernel kernel, const Linear<T>& linear, const T* x, size_t xStride, int rows, const LinearContext& context);

// Chooses the kernel by rows: the vector kernel for one or two rows, tensor-core kernels up to 32 rows (reading W once bounds both), and cuBLASLt for
// more rows, or the tile kernel if cuBLASLt is not available. `xStride` and `yStride` are row strides in values; x and y must not overlap. The fast
// kernels require W and x 16-byte aligned and `inputs` and `xStride` multiples of 8; other products run on the plain kernel. May be captured: the
// launches depend on the arguments alone.
template <typename T>
void launchLinear(const Linear<T>& linear, const T* x, size_t xStride, void* y, size_t yStride, int rows, Epilogue epilogue, const LinearContext& context,
                  cudaStream_t stream);

// Loads cuBLASLt (from the file named by PIE_CUBLASLT, or else by the loader's search path); returns null if that fails.
struct CublasLt* openCublasLt();
void closeCublasLt(struct CublasLt*);

}  // namespace pie
