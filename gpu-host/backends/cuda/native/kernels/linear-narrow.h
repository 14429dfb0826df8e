// Products with weights of 8 or 4 bits: a half or a quarter of the bytes to read. Activations stay bf16; weights become bf16 again in registers, exactly.
#pragma once
#include "linear.h"

namespace pie {

// How weights are kept.
//   Int8    whole numbers to 127, one scale for each output.
//   Float8  e4m3 (Micikevicius et al., "FP8 formats for deep learning", 2022), one scale for each output: small values keep their three bits of fraction.
//   Int4    whole numbers from -8 to 7, one scale for each output and group of inputs. Groups are of 128, as GPTQ (Frantar et al., 2023) and AWQ (Lin et
//           al., 2024) have them: scales are then a 32nd of the bytes. Where the inputs are no multiple of it they are of 64 or 32.
enum class WeightFormat { Int8, Float8, Int4 };

// y = (x · Wᵀ) * scales + b. W is `outputs × inputs` in an order of its own (linear-weights.h), made by launchQuantise.
struct LinearNarrow {
  WeightFormat format = WeightFormat::Int8;
  uint8_t* weight = nullptr;
  float* scales = nullptr;       // Int8 and Float8: of `outputs` values.
  bf16* groupScales = nullptr;   // Int4: for each group of inputs, narrowGroupStride values.
  const bf16* bias = nullptr;    // Of `outputs` values, or null.
  int outputs = 0;
  int inputs = 0;
};

// Whether a matrix of so many inputs can be kept so.
constexpr bool narrowTakes(WeightFormat format, int inputs) { return inputs % (format == WeightFormat::Int4 ? 32 : 16) == 0; }
constexpr size_t narrowWeightBytes(WeightFormat format, int outputs, int inputs) {
  return static_cast<size_t>(outputs) * inputs / (format == WeightFormat::Int4 ? 2 : 1);
}
// Inputs that share one scale of Int4, and scales of one group: eight, that is 16 bytes, can always be read.
constexpr int narrowGroup(int inputs) { return inputs % 128 == 0 ? 128 : inputs % 64 == 0 ? 64 : 32; }
constexpr int narrowGroupStride(int outputs) { return (outputs + 7) / 8 * 8; }
constexpr size_t narrowGroupScales(int outputs, int inputs) { return static_cast<size_t>(inputs / narrowGroup(inputs)) * narrowGroupStride(outputs); }

// Lines [firstLine, firstLine + lines) of `to` from as many of `from`, to nearest. A line's (Int4: a group's) largest value takes the largest code (-8); the
// scale of a group is rounded to five significant bits, so that it times a code is exact in bf16. Infinite or NaN weights make their line or group NaN.
void launchQuantise(const LinearNarrow& to, const bf16* from, int firstLine, int lines, cudaStream_t stream);

// As for other weights (linear.h). cuBLASLt has no part in it.
void launchLinear(const LinearNarrow& linear, const bf16* x, size_t xStride, void* y, size_t yStride, int rows, Epilogue epilogue,
                  const LinearContext& context, cudaStream_t stream);
bool linearSupports(LinearKernel kernel, const LinearNarrow& linear, const bf16* x, size_t xStride, int rows, const LinearContext& context);

}  // namespace pie
